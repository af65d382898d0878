// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/create.h"

#include <utility>

#include "optim/two_stage.h"
#include "optim/zero_one_adam.h"

namespace onebit::optim {

Result<std::unique_ptr<Optimizer>> CreateOptimizer(onebitComm_t comm, size_t count,
                                                   float* parameters,
                                                   const onebitOptimizerConfig_t* config) {
  ONEBIT_ASSIGN_OR_RETURN(const Options options, ReadOptions(config));
  ONEBIT_ASSIGN_OR_RETURN(SegmentTable table,
                          SegmentTable::Create(config == nullptr ? nullptr : config->segments,
                                               config == nullptr ? 0 : config->segmentCount, count,
                                               options.weight_decay));
  const onebitCompressorConfig_t* compressor = config == nullptr ? nullptr : config->compressor;
  if (options.policy.algorithm == onebitAlgorithmZeroOneAdam) {
    return ZeroOneAdam::Create(comm, count, parameters, options, std::move(table), compressor);
  }
  return TwoStage::Create(comm, count, parameters, options, std::move(table), compressor);
}

}  // namespace onebit::optim
