// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sweep of Gloo's ring allreduce: onebit_run -n 4 allreduce_gloo, perf/lab run ... allreduce_gloo.
#include <array>
#include <memory>

#include <CLI/CLI.hpp>

#include "perf/studies/baselines/baseline.h"
#include "perf/studies/baselines/gloo_system.h"

namespace {

constexpr std::array<const char*, 1> kRankVariables = {"RANK"};  // as onebit_run and the lab say it

}  // namespace

int main(int argc, char** argv) {
  onebit::perf::GlooOptions options;
  return onebit::perf::RunBaseline(
      argc, argv,
      {.tool = ONEBIT_BASELINE_NAME,
       .description = "Time and check Gloo's allreduce of fp32 sums over message sizes.",
       .check_help = "passes that check results against exact sums; 0: none",
       .rank_variables = kRankVariables,
       .add_flags =
           [&options](CLI::App& app) {
             app.add_option("--store", options.store,
                            "new folder where the ranks meet; default: that of onebit_run")
                 ->type_name("DIR");
             app.add_option("--interface", options.interface,
                            "network interface; default: lo on one host, else eth0")
                 ->type_name("NAME");
           },
       .start = [&options] { return std::make_unique<onebit::perf::GlooSystem>(options); }});
}
