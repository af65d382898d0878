// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Size of a message as nccl-tests counts it.
#include "perf/common/collective.h"

#include <algorithm>

#include "perf/common/elements.h"

namespace onebit::perf {

size_t MessageBytes(const Shape& shape, onebitDataType_t type) {
  return std::max(shape.send_elements, shape.recv_elements) * ElementBytes(type);
}

}  // namespace onebit::perf
