// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Declares the flags to CLI11 and checks what it cannot.
#include "perf/common/sweep_options.h"

#include <climits>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "perf/common/flag_kinds.h"
#include "perf/common/seeded_elements.h"
#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

constexpr int kMaxRanks = 1024;
constexpr int kMaxTimeoutSeconds = INT_MAX / 1000;

const Names<onebitDataType_t> kTypes = {{"uint8", onebitUint8},      {"int32", onebitInt32},
                                        {"int64", onebitInt64},      {"half", onebitFloat16},
                                        {"float", onebitFloat32},    {"double", onebitFloat64},
                                        {"bfloat16", onebitBfloat16}};
const Names<onebitRedOp_t> kOps = {
    {"sum", onebitSum}, {"max", onebitMax}, {"min", onebitMin}, {"avg", onebitAvg}};

// Adds a choice of one of `names`, or "all" of them.
template <class Value>
void AddNames(CLI::App& app, const std::string& flags, const std::string& help,
              const Names<Value>& names, std::vector<Value>* values) {
  const std::string choices = Choices(names) + "|all";
  AddParsed(app, flags, help, choices, NameOf(names, values->front()),
            [&names, values, choices](const std::string& text) {
              std::vector<Value> chosen;
              for (const auto& [name, value] : names) {
                if (text == "all" || text == name) chosen.push_back(value);
              }
              if (chosen.empty()) return fmt::format("{} is not {}", text, choices);
              *values = chosen;
              return std::string();
            });
}

bool IsCompressible(onebitDataType_t type) { return kernels::IsCompressible(KernelType(type)); }
bool IsCompressible(onebitRedOp_t op) { return op == onebitSum || op == onebitAvg; }

// Leaves out what only dense calls take, so that "all" means what the mode has.
template <class Value>
void KeepCompressible(const char* flag, const Names<Value>& names, std::vector<Value>* values) {
  const Value first = values->front();
  std::erase_if(*values, [](Value value) { return !IsCompressible(value); });
  if (!values->empty()) return;
  Names<Value> compressible = names;
  std::erase_if(compressible, [](const auto& name) { return !IsCompressible(name.second); });
  throw UsageError(fmt::format("{} {} needs --mode dense: the other modes take {}", flag,
                               NameOf(names, first), Choices(compressible)));
}

void AddNcclOptions(CLI::App& app, const ToolTraits& traits, Options& options) {
  AddSweepFlags(app, "passes that check results against the scalar reference; 0: none", &options);
  AddNames(app, "-d,--datatype", "element type", kTypes, &options.types);
  if (traits.has_op) AddNames(app, "-o,--op", "reduction", kOps, &options.ops);
  AddCount(app, "-t,--nthreads", "ranks, each a thread of this process", 1, kMaxRanks,
           &options.ranks.threads);
  AddOnly(app, "-g,--ngpus", "ranks per thread", "1",
          "a thread drives one rank; for more ranks give -t N or --procs N");
  AddParsed(app, "-z,--blocking", "1: wait for each timed call on a stream before the next", "0|1",
            "0, on host memory 1", [&options](const std::string& text) {
              options.is_blocking = text == "1";
              if (text == "0" || text == "1") return std::string();
              return text +
                     " is not 0|1: a row's timed calls stand between two barriers with "
                     "both, and 1 waits for each of them";
            });
  AddCount(app, "-T,--timeout",
           "seconds without progress until a call fails; 0: ONEBIT_COLLECTIVE_TIMEOUT_MS", 0,
           kMaxTimeoutSeconds, &options.timeout_seconds);
  if (traits.has_root) {
    AddCount(app, "-r,--root", "the rank that sends", 0, kMaxRanks - 1, &options.root);
  }
  if (traits.is_ragged) {
    AddCount(app, "--seed", "seed of the counts; with --block they are multiples of it", 0, INT_MAX,
             &options.seed);
  }
  AddRankSource(app, &options.ranks, "; nccl for both with --device cuda");
}

void AddCompressionOptions(CLI::App& app, Options& options) {
  AddCodecFlags(app, &options);
  app.add_flag_callback(
      "--no-dense", [&options] { options.is_dense_timed = false; },
      "do not time dense calls in turns with compressed ones");
}

}  // namespace

std::optional<Options> ParseOptions(int argc, const char* const* argv, std::string_view tool,
                                    std::string_view description, std::optional<int> launched_rank,
                                    const ToolTraits& traits) {
  Options options;
  options.ranks.launched_rank = launched_rank;
  CLI::App app{std::string(description), std::string(tool)};
  app.get_formatter()->column_width(38);
  AddNcclOptions(app, traits, options);
  if (traits.collective) AddCompressionOptions(app, options);
  AddDevice(app, &options.device);
  if (!ParseCommandLine(app, argc, argv, options.ranks.is_speaker())) return std::nullopt;
  CheckSweepFlags(options);
  if (traits.collective) CompleteCodec(app, *traits.collective, &options);
  if (options.is_compressed()) {
    KeepCompressible("-d", kTypes, &options.types);
    KeepCompressible("-o", kOps, &options.ops);
  }
  const bool has_rows = traits.is_ragged && options.block > 0 && app.count("--block") > 0;
  if (has_rows) options.row_elements = static_cast<size_t>(options.block);
  if (!options.device.is_cuda && app.count("--blocking") > 0 && !options.is_blocking) {
    throw UsageError("-z 0: calls on host memory block; those of --device cuda do not");
  }
  options.ranks.has_cuda = options.device.is_cuda;
  options.ranks.is_threads_given = app.count("--nthreads") > 0;
  options.transport = CheckedTransportOf(options.ranks);
  return options;
}

}  // namespace onebit::perf
