// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The command line of all sweep tools: nccl-tests' flags and defaults, and those of compression.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "onebit/onebit.h"
#include "perf/common/device_choice.h"
#include "perf/common/procs.h"
#include "perf/common/rank_launcher.h"
#include "perf/common/sweep_flags.h"

namespace onebit::perf {

enum class Mode { kDense, kSign, kEf };
std::string_view ModeName(Mode mode);

struct Options : SweepFlags {
  std::vector<onebitDataType_t> types = {onebitFloat32};
  std::vector<onebitRedOp_t> ops = {onebitSum};
  Mode mode = Mode::kDense;
  RankSource ranks;
  std::string transport = "local";  // in use, given or not
  DeviceChoice device;
  onebitScaleRule_t scale_rule = onebitScaleL2;
  int32_t block = 4096;        // elements per scale, or ONEBIT_BLOCK_TENSOR
  bool is_dense_timed = true;  // in compressed modes, for the speed-up

  bool is_compressed() const { return mode != Mode::kDense; }
};

// Parses the command line. `launched_rank` is the rank that a launcher has given this process, if
// any. Prints help to stdout and returns no value if asked for it; throws UsageError on a mistake.
// Without `has_op` there is no option for the reduction.
std::optional<Options> ParseOptions(int argc, const char* const* argv, std::string_view tool,
                                    std::string_view description,
                                    std::optional<int> launched_rank = LaunchedRank(),
                                    bool has_op = true);

}  // namespace onebit::perf
