// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Declares the flags to CLI11 and checks what it cannot.
#include "perf/common/sweep_flags.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "perf/common/flag_kinds.h"
#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

const Names<RankTime> kRankTimes = {{"0", RankTime::kRank0},
                                    {"1", RankTime::kMean},
                                    {"2", RankTime::kLeast},
                                    {"3", RankTime::kMost}};

constexpr int kMaxCalls = 1'000'000;
constexpr double kMaxRowSeconds = 1e6;

// A flag of nccl-tests with the one value that means something here, and what to do instead of
// another.
struct FixedFlag {
  const char* flags;
  const char* help;
  const char* value;
  const char* instead;
};
constexpr FixedFlag kFixedFlags[] = {
    {"-m,--agg_iters", "calls in a group", "1",
     "calls are timed one by one; group_perf compares them with groups"},
    {"-y,--stream_null", "calls on the legacy default stream", "0",
     "leave it out: calls are on a stream that does not wait for the default one"},
    {"-G,--cudagraph", "launches of a captured graph", "0",
     "a sweep does not capture its calls; docs/gpu.md says which calls a program may capture"},
    {"-C,--report_cputime", "CPU time instead of latency", "0",
     "run the sweep under 'perf stat', which counts the CPU time of its processes"},
    {"-S,--report_timestamps", "a timestamp for each row", "0",
     "-J's report has the times at which the sweep began and ended"},
    {"-R,--local_register", "registration of buffers", "0", "leave it out: there is none"},
    {"-x,--cta_policy", "policy of NCCL's kernels", "0",
     "set NCCL_CTA_POLICY, which NCCL reads under --transport nccl"},
    {"-D,--device_implementation", "kernels of nccl-tests' own", "0",
     "leave it out: a sweep times the library's collectives alone"},
    {"-V,--device_cta_count", "CTAs of those kernels", "16", "leave it out: there are none"},
    {"-M,--memory", "a report of memory", "0",
     "onebitCompressorGetStats says how many bytes a compressor holds"},
    {"-u,--unalign", "index of the first element", "0",
     "each call uses the next part of the buffers: a size that is no multiple of 64, such as "
     "-b 1000004 -e 1000004, makes calls on buffers that are not aligned"},
    {"-I,--per_iter_timing", "the time of each call", "0",
     "rows have means; ONEBIT_TRACE=FILE writes the time of each call (docs/trace.md)"},
    {"-K,--per_iter_skip", "calls that -I leaves out", "0",
     "raise -w: calls of the warm-up are not timed"},
};

}  // namespace

void AddSweepFlags(CLI::App& app, const std::string& check_help, SweepFlags* flags) {
  AddSize(app, "-b,--minbytes", "smallest message", "32M", &flags->sweep.min_bytes);
  AddSize(app, "-e,--maxbytes", "largest message", "32M", &flags->sweep.max_bytes);
  AddSize(app, "-i,--stepbytes", "bytes from one size to the next", "1M", &flags->sweep.step_bytes);
  app.add_option("-f,--stepfactor", flags->sweep.step_factor,
                 "factor from one size to the next; overrides -i when above 1; default: none")
      ->type_name("N")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 40).description(""))
      ->default_str("");
  AddSize(app, "--buffer-bytes", "bytes of each buffer, of which a row uses the first; default: -e",
          "", &flags->buffer_bytes);
  AddCount(app, "-n,--iters", "timed calls per row", 1, kMaxCalls, &flags->iterations);
  app.add_option("--row-seconds", flags->row_seconds,
                 "make as many timed calls as fit into this time, from 2 to -n; default: -n calls")
      ->type_name("S")
      ->check(Number(fmt::format("a time in seconds from 0 to {}", kMaxRowSeconds),
                     [](double seconds) { return seconds >= 0 && seconds < kMaxRowSeconds; }));
  AddCount(app, "-w,--warmup_iters", "calls at each power of two times -b, once before the sweep",
           0, kMaxCalls, &flags->warmup_iterations);
  AddCount(app, "-N,--run_cycles", "number of times that the sweep runs", 1, kMaxCalls,
           &flags->cycles);
  AddChoice(app, "-a,--average", kRankTimes, &flags->rank_time,
            "time of a row: 0: rank 0's, 1: mean over ranks, 2: the shortest, 3: the longest");
  AddCount(app, "-c,--check", check_help, 0, kMaxCalls, &flags->checks);
  app.add_flag_callback(
      "--no-in-place", [flags] { flags->is_in_place_timed = false; },
      "time calls out of place only");
  app.add_option("-J,--output_file", flags->json_path,
                 "also write a JSON report; a number is added if the file exists")
      ->type_name("FILE");
  AddParsed(app, "-p,--parallel_init", "ranks always join at the same time", "0|1", "1",
            [](const std::string& text) {
              return text == "0" || text == "1" ? std::string() : text + " is not 0|1";
            });
  for (const FixedFlag& flag : kFixedFlags) {
    AddOnly(app, flag.flags, flag.help, flag.value, flag.instead)
        ->group("Flags of nccl-tests with one possible value");
  }
}

void CheckSweepFlags(const SweepFlags& flags) {
  const SweepRange& sweep = flags.sweep;
  if (sweep.min_bytes > sweep.max_bytes) {
    throw UsageError(fmt::format("-b {} is larger than -e {}", sweep.min_bytes, sweep.max_bytes));
  }
  if (flags.buffer_bytes != 0 && flags.buffer_bytes < sweep.max_bytes) {
    throw UsageError(fmt::format("--buffer-bytes {} is too small for -e {}", flags.buffer_bytes,
                                 sweep.max_bytes));
  }
  if (sweep.step_factor > 1 && sweep.min_bytes == 0) {
    throw UsageError("-b 0 cannot grow by a factor: give a larger -b, or -i instead of -f");
  }
  if (sweep.step_factor <= 1 && sweep.step_bytes == 0) {
    throw UsageError("-i 0 never reaches -e: give a positive -i, or -f");
  }
}

}  // namespace onebit::perf
