// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "base/group_depth.h"

namespace onebit {

int& GroupDepth() {
  thread_local int depth = 0;  // NOLINT: a group belongs to a thread, as in NCCL
  return depth;
}

}  // namespace onebit
