// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The command line of all sweep tools: nccl-tests' flags and defaults, and those of compression.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "onebit/onebit.h"
#include "perf/common/codec_choice.h"
#include "perf/common/device_choice.h"
#include "perf/common/procs.h"
#include "perf/common/rank_environment.h"
#include "perf/common/sweep_flags.h"

namespace onebit::perf {

struct Options : SweepFlags, CodecChoice {
  std::vector<onebitDataType_t> types = {onebitFloat32};
  std::vector<onebitRedOp_t> ops = {onebitSum};
  RankSource ranks;
  std::string transport = "local";  // in use, given or not
  DeviceChoice device;
  bool is_dense_timed = true;  // in compressed modes, for the speed-up
  // Waits for each timed call on a stream before the next one. Calls on host memory block anyway.
  bool is_blocking = false;
  int timeout_seconds = 0;  // without progress, until a call fails; 0: the library's default
  int root = 0;
  // Ragged counts follow from the seed, and are multiples of a row.
  int seed = 1;
  size_t row_elements = 1;
};

// The properties of a tool's collective that its flags depend on.
struct ToolTraits {
  std::optional<onebitCollective_t> collective = onebitCollectiveAllReduce;  // none: only dense
  bool has_op = true;                                                        // it reduces
  bool has_root = false;
  bool is_ragged = false;  // every pair of ranks has a count of its own
};

// Parses the command line. `launched_rank` is the rank that a launcher has given this process, if
// any. Prints help to stdout and returns no value if asked for it; throws UsageError on a mistake.
std::optional<Options> ParseOptions(int argc, const char* const* argv, std::string_view tool,
                                    std::string_view description,
                                    std::optional<int> launched_rank = LaunchedRank(),
                                    const ToolTraits& traits = {});

}  // namespace onebit::perf
