// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The whole run of a program that measures the allreduce of another system. The driver is that of
// all_reduce_perf, so flags, buffers, warm-up, means over ranks, columns and report are the same.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "perf/studies/baselines/system.h"

namespace CLI {
class App;
}

namespace onebit::perf {

struct Baseline {
  std::string_view tool;         // name of the program
  std::string_view description;  // first line of the help
  std::string_view check_help;   // what -c compares with
  // Variables in which its launchers tell a process its rank. They are read before the system has
  // started; the first that is set counts.
  std::span<const char* const> rank_variables;
  // Declares more flags; may be empty.
  std::function<void(CLI::App& app)> add_flags;
  // Starts the system once the command line is known to be right.
  std::function<std::unique_ptr<System>()> start;
};

// Implements main().
int RunBaseline(int argc, const char* const* argv, const Baseline& baseline);

}  // namespace onebit::perf
