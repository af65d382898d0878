// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/create.h"

#include <utility>
#include <vector>

#include "optim/parameter_location.h"
#include "optim/two_stage.h"
#include "optim/zero_one_adam.h"

namespace onebit::optim {
namespace {

// Returns the location of the first parameters, after checking that all memory of all segments is
// there.
Result<MemoryLocation> LocateParameters(const SegmentTable& table) {
  const std::vector<ParameterRun>& runs = table.runs();
  if (runs.empty()) return MemoryLocation{};
  ONEBIT_ASSIGN_OR_RETURN(const MemoryLocation location, LocationOf(runs[0].x));
  for (const ParameterRun& run : runs) {
    ONEBIT_TRY(CheckLocation("a segment's parameters", run.x, location));
    ONEBIT_TRY(CheckLocation("parameterCopy", run.copy, location));
  }
  return location;
}

}  // namespace

Result<std::unique_ptr<Optimizer>> CreateOptimizer(onebitComm_t comm, size_t count,
                                                   float* parameters,
                                                   const onebitOptimizerConfig_t* config) {
  ONEBIT_ASSIGN_OR_RETURN(const Options options, ReadOptions(config));
  SegmentTable::Source source{.element_count = count, .parameters = parameters};
  if (config != nullptr) {
    source.segments = config->segments;
    source.segment_count = config->segmentCount;
  }
  ONEBIT_ASSIGN_OR_RETURN(SegmentTable table, SegmentTable::Create(source, options));
  const onebitCompressorConfig_t* compressor = config == nullptr ? nullptr : config->compressor;
  ONEBIT_ASSIGN_OR_RETURN(const MemoryLocation location, LocateParameters(table));
  ONEBIT_TRY(CheckResidualLocation(compressor, location));
  ONEBIT_ASSIGN_OR_RETURN(auto arithmetic, Arithmetic::Create(location, FindDevices(), count));
  ONEBIT_TRY(arithmetic->BeginAlone());
  Optimizer::Setup setup{comm, options, std::move(table), std::move(arithmetic)};
  auto made = options.policy.algorithm == onebitAlgorithmZeroOneAdam
                  ? ZeroOneAdam::Create(std::move(setup), compressor)
                  : TwoStage::Create(std::move(setup), compressor);
  if (made.ok()) made.value()->arithmetic().End();
  return made;
}

}  // namespace onebit::optim
