// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/create.h"

#include <utility>

#include "optim/parameter_location.h"
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
  ONEBIT_ASSIGN_OR_RETURN(const MemoryLocation location, LocationOf(parameters));
  ONEBIT_TRY(CheckLocation("parameterCopy", options.parameter_copy, location));
  ONEBIT_TRY(CheckResidualLocation(compressor, location));
  ONEBIT_ASSIGN_OR_RETURN(auto arithmetic, Arithmetic::Create(location, FindDevices(), count));
  ONEBIT_TRY(arithmetic->BeginAlone());
  Optimizer::Setup setup{comm, count, parameters, options, std::move(table), std::move(arithmetic)};
  auto made = options.policy.algorithm == onebitAlgorithmZeroOneAdam
                  ? ZeroOneAdam::Create(std::move(setup), compressor)
                  : TwoStage::Create(std::move(setup), compressor);
  if (made.ok()) made.value()->arithmetic().End();
  return made;
}

}  // namespace onebit::optim
