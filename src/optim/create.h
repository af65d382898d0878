// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// From a configuration to an optimizer.
#pragma once

#include <cstddef>
#include <memory>

#include "base/status.h"
#include "optim/optimizer_base.h"

namespace onebit::optim {

// `config` null: all defaults.
Result<std::unique_ptr<Optimizer>> CreateOptimizer(onebitComm_t comm, size_t count,
                                                   float* parameters,
                                                   const onebitOptimizerConfig_t* config);

}  // namespace onebit::optim
