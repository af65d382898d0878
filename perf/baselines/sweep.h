// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The whole run of a program that times another system's allreduce as all_reduce_perf times ours:
// the same flags, buffers, warm-up, barriers, means over ranks, columns and report.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "perf/baselines/system.h"

namespace CLI {
class App;
}

namespace onebit::perf {

struct Baseline {
  std::string_view tool;         // name of the program
  std::string_view description;  // first line of the help
  std::string_view check_help;   // what -c compares with
  // Where its launchers say the rank of a process, before the system has started; the first counts.
  std::span<const char* const> rank_variables;
  // Declares flags of its own; may be empty.
  std::function<void(CLI::App& app)> add_flags;
  // Starts the system, after the command line was read.
  std::function<std::unique_ptr<System>()> start;
};

// What main() returns.
int RunBaseline(int argc, const char* const* argv, const Baseline& baseline);

}  // namespace onebit::perf
