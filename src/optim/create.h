// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Creates an optimizer from a configuration.
#pragma once

#include <cstddef>
#include <memory>

#include "base/status.h"
#include "optim/optimizer_base.h"

namespace onebit::optim {

// A null `config` means all defaults; null `parameters`, that every segment has its own.
Result<std::unique_ptr<Optimizer>> CreateOptimizer(onebitComm_t comm, size_t count,
                                                   float* parameters,
                                                   const onebitOptimizerConfig_t* config);

}  // namespace onebit::optim
