// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A configuration of a call that asks for nothing.
#pragma once

#include <climits>

#include "plugins/nccl_preload/nccl_types.h"

namespace onebit::preload {

// NCCL 2.32 initialises a configuration like this.
inline CollConfig InitialConfig(const ConfigOption* options = nullptr) {
  return {.size = sizeof(CollConfig),
          .magic = kConfigMagic,
          .version = 23203,
          .options = options,
          .min_ctas = INT_MIN,
          .max_ctas = INT_MIN,
          .nvls_ctas = INT_MIN,
          .cga_cluster_size = INT_MIN,
          .algorithms = nullptr,
          .must_have_algorithm = 1,
          .cta_policy = INT_MIN,
          .profiler_tag = 0,
          .launch_completion_event = nullptr};
}

}  // namespace onebit::preload
