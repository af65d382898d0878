// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls of the library, with its errors as exceptions.
#include "perf/soak/soak_regroup.h"

#include "perf/common/tool_error.h"
#include "perf/soak/soak_plan.h"

namespace onebit::soak {

onebitComm_t Split(onebitComm_t comm, int color, int key) {
  static_assert(kNoColor == ONEBIT_SPLIT_NOCOLOR);
  onebitComm_t split = nullptr;
  perf::Check(onebitCommSplit(comm, color, key, &split, nullptr), "onebitCommSplit");
  return split;
}

onebitComm_t Shrink(onebitComm_t comm, std::span<const int> excluded) {
  onebitComm_t rest = nullptr;
  perf::Check(onebitCommShrink(comm, excluded.data(), static_cast<int>(excluded.size()), &rest,
                               nullptr, ONEBIT_SHRINK_DEFAULT),
              "onebitCommShrink");
  return rest;
}

}  // namespace onebit::soak
