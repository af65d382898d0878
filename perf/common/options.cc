// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Declares the flags to CLI11 and checks what it cannot.
#include "perf/common/options.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "perf/common/elements.h"
#include "perf/common/error.h"
#include "perf/common/flag_kinds.h"

namespace onebit::perf {
namespace {

constexpr int kMaxRanks = 1024;

// A name out of `names`, or "all" of them.
template <class Value>
void AddNames(CLI::App& app, const std::string& flags, const std::string& help,
              std::vector<std::pair<std::string, Value>> names, std::vector<Value>* values) {
  std::vector<std::string> known;
  known.reserve(names.size());
  for (const auto& [name, value] : names) known.push_back(name);
  const std::string choices = fmt::format("{}|all", fmt::join(known, "|"));
  const auto default_name = std::find_if(names.begin(), names.end(), [&](const auto& entry) {
    return entry.second == values->front();
  });
  AddParsed(app, flags, help, choices, default_name->first,
            [names, values, choices](const std::string& text) {
              std::vector<Value> chosen;
              for (const auto& [name, value] : names) {
                if (text == "all" || text == name) chosen.push_back(value);
              }
              if (chosen.empty()) return fmt::format("'{}' is none of {}", text, choices);
              *values = chosen;
              return std::string();
            });
}

std::string ParseBlock(const std::string& text, int32_t* block) {
  if (text == "tensor") {
    *block = ONEBIT_BLOCK_TENSOR;
    return "";
  }
  const std::optional<size_t> size = ParseSize(text);
  if (!size || *size == 0 || *size % 64 != 0 || *size > INT32_MAX) {
    return fmt::format("'{}' is neither a positive multiple of 64 nor 'tensor'", text);
  }
  *block = static_cast<int32_t>(*size);
  return "";
}

void AddNcclOptions(CLI::App& app, bool has_op, Options& options) {
  AddSweepFlags(app, "passes that check results against the scalar reference; 0: none", &options);
  AddNames<onebitDataType_t>(
      app, "-d,--datatype", "element type",
      {{"half", onebitFloat16}, {"float", onebitFloat32}, {"bfloat16", onebitBfloat16}},
      &options.types);
  if (has_op) {
    AddNames<onebitRedOp_t>(app, "-o,--op", "reduction", {{"sum", onebitSum}, {"avg", onebitAvg}},
                            &options.ops);
  }
  AddCount(app, "-t,--nthreads", "ranks, each a thread of this process", 1, kMaxRanks,
           &options.ranks.threads);
  app.add_option("--procs", options.ranks.procs, kProcsHelp)
      ->check(CLI::Range(1, kMaxProcesses).description(""))
      ->type_name("N");
}

void AddCompressionOptions(CLI::App& app, Options& options) {
  const std::vector<std::pair<std::string, Mode>> modes = {
      {"dense", Mode::kDense}, {"sign", Mode::kSign}, {"ef", Mode::kEf}};
  AddParsed(app, "--mode", "full precision, signs, or signs with error feedback", "dense|sign|ef",
            "dense", [modes, &options](const std::string& text) {
              for (const auto& [name, mode] : modes) {
                if (text != name) continue;
                options.mode = mode;
                return std::string();
              }
              return fmt::format("'{}' is none of dense|sign|ef", text);
            });
  app.add_flag_callback(
      "--no-dense", [&options] { options.is_dense_timed = false; },
      "do not time dense calls in turns with compressed ones");
  app.add_option("--transport", options.ranks.transport,
                 std::string(kTransportHelp) + "; nccl for both with --device cuda")
      ->type_name("NAME");
  AddDevice(app, &options.device);
  AddParsed(app, "--scale", "scale of a block: root mean square or mean magnitude", "l1|l2", "l2",
            [&options](const std::string& text) {
              if (text != "l1" && text != "l2") return fmt::format("'{}' is none of l1|l2", text);
              options.scale_rule = text == "l1" ? onebitScaleL1 : onebitScaleL2;
              return std::string();
            });
  AddParsed(app, "--block", "elements per scale, or 'tensor' for one per tensor", "N|tensor",
            "4096",
            [&options](const std::string& text) { return ParseBlock(text, &options.block); });
}

}  // namespace

std::string_view ModeName(Mode mode) {
  switch (mode) {
    case Mode::kDense:
      return "dense";
    case Mode::kSign:
      return "sign";
    case Mode::kEf:
      return "ef";
  }
  return "?";
}

std::optional<Options> ParseOptions(int argc, const char* const* argv, std::string_view tool,
                                    std::string_view description, std::optional<int> launched_rank,
                                    bool has_op) {
  Options options;
  options.ranks.launched_rank = launched_rank;
  CLI::App app{std::string(description), std::string(tool)};
  app.get_formatter()->column_width(38);
  AddNcclOptions(app, has_op, options);
  AddCompressionOptions(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    if (options.ranks.is_speaker()) std::fputs(app.help().c_str(), stdout);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  CheckSweepFlags(options);
  options.ranks.has_cuda = options.device.is_cuda;
  options.ranks.is_threads_given = app.count("--nthreads") > 0;
  const char* set_transport = std::getenv("ONEBIT_TRANSPORT");
  const std::string problem = ProblemWith(options.ranks, set_transport);
  if (!problem.empty()) throw UsageError(problem);
  options.transport = TransportOf(options.ranks, set_transport);
  return options;
}

}  // namespace onebit::perf
