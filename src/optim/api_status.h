// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Converts results of the public API, which the optimizers call, to Status.
#pragma once

#include "base/status.h"
#include "onebit/onebit.h"

namespace onebit::optim {

inline Status FromApi(onebitResult_t result) {
  if (result == onebitSuccess) return OkStatus();
  return {static_cast<Code>(result), onebitGetLastError(nullptr)};
}

}  // namespace onebit::optim
