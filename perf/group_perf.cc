// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Many small tensors: the same allreduces one by one, and as one group.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "perf/common/comm_stats.h"
#include "perf/common/error.h"
#include "perf/common/flag_kinds.h"
#include "perf/common/handles.h"
#include "perf/common/launcher.h"
#include "perf/common/procs.h"
#include "perf/common/rank_exchange.h"

namespace onebit::perf {
namespace {

constexpr char kTool[] = "group_perf";

struct GroupOptions {
  RankSource ranks;
  int tensors = 400;
  int least_elements = 1024;
  int most_elements = 102'400;
  int repetitions = 20;
  int warmup = 3;
  int seed = 1;
  bool is_dense = false;
};

// Throws UsageError; no value when help was asked for.
std::optional<GroupOptions> ParseOptions(int argc, const char* const* argv) {
  GroupOptions options;
  options.ranks.launched_rank = LaunchedRank();
  CLI::App app("Time allreduces of many small fp32 tensors: one by one, and as one group.", kTool);
  app.add_option("--procs", options.ranks.procs, kProcsHelp)
      ->check(CLI::Range(1, kMaxProcesses).description(""))
      ->type_name("N");
  app.add_option("--transport", options.ranks.transport, kTransportHelp)->type_name("NAME");
  AddCount(app, "--tensors", "tensors of a group", 1, 100'000, &options.tensors);
  AddCount(app, "--min-elements", "elements of the smallest tensor", 0, 1 << 28,
           &options.least_elements);
  AddCount(app, "--max-elements", "elements of the largest tensor", 1, 1 << 28,
           &options.most_elements);
  AddCount(app, "--repetitions", "timed, each of both in turns", 1, 100'000, &options.repetitions);
  AddCount(app, "--warmup", "not timed", 0, 100'000, &options.warmup);
  AddCount(app, "--seed", "what sizes depend on", 0, INT32_MAX, &options.seed);
  app.add_flag("--dense", options.is_dense, "full precision, not one bit with error feedback");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  if (options.ranks.procs == 0 && !options.ranks.is_one_rank()) {
    throw UsageError("the ranks are processes: start some with --procs N");
  }
  if (options.least_elements > options.most_elements) {
    throw UsageError("--min-elements is larger than --max-elements");
  }
  const std::string problem = ProblemWith(options.ranks, std::getenv("ONEBIT_TRANSPORT"));
  if (!problem.empty()) throw UsageError(problem);
  return options;
}

// One set of tensors. Sizes are spread evenly over their logarithm, as those of a model are.
class Tensors {
 public:
  Tensors(const GroupOptions& options, onebitComm_t comm) : comm_(comm) {
    std::mt19937 random(static_cast<uint32_t>(options.seed));
    std::uniform_real_distribution<double> exponent(std::log2(options.least_elements + 1.0),
                                                    std::log2(options.most_elements + 1.0));
    for (int i = 0; i < options.tensors; ++i) {
      const auto count = static_cast<size_t>(std::exp2(exponent(random)) - 0.5);
      inputs_.emplace_back(count);
      outputs_.emplace_back(count);
      elements_ += count;
      compressors_.emplace_back();
      if (options.is_dense) continue;
      onebitCompressor_t compressor = nullptr;
      Check(onebitCompressorCreate(&compressor, comm, count, onebitFloat32, nullptr),
            "onebitCompressorCreate");
      compressors_.back().reset(compressor);
    }
    std::mt19937 values(static_cast<uint32_t>(1000 + RankOf(comm)));
    std::normal_distribution<float> normal;
    for (auto& input : inputs_) {
      for (float& value : input) value = normal(values);
    }
  }

  void CallAll() {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      Check(onebitAllReduce(inputs_[i].data(), outputs_[i].data(), inputs_[i].size(), onebitFloat32,
                            onebitAvg, compressors_[i].get(), comm_, nullptr),
            "onebitAllReduce");
    }
  }
  void CallGroup() {
    Check(onebitGroupStart(), "onebitGroupStart");
    CallAll();
    Check(onebitGroupEnd(), "onebitGroupEnd");
  }

  size_t elements() const { return elements_; }
  bool HasResultsOf(const Tensors& other) const {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const auto& mine = outputs_[i];
      if (std::memcmp(mine.data(), other.outputs_[i].data(), mine.size() * sizeof(float)) != 0) {
        return false;
      }
    }
    return true;
  }

 private:
  onebitComm_t comm_;
  std::vector<std::vector<float>> inputs_;
  std::vector<std::vector<float>> outputs_;
  std::vector<CompressorHandle> compressors_;
  size_t elements_ = 0;
};

struct Measured {
  std::vector<double> milliseconds;  // of the slowest rank, by repetition
  SentTotal sent;                    // by this rank, in one repetition

  double Median() const {
    std::vector<double> sorted = milliseconds;
    std::sort(sorted.begin(), sorted.end());
    const size_t middle = sorted.size() / 2;
    return sorted.size() % 2 != 0 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  }
};

template <class Body>
void Measure(onebitComm_t comm, Measured* measured, Body&& body) {
  Check(onebitBarrier(comm, nullptr), "onebitBarrier");
  const SentTotal before = SentBy(comm);
  const auto begin = std::chrono::steady_clock::now();
  body();
  const double mine =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  const SentTotal after = SentBy(comm);
  measured->sent = {after.bytes - before.bytes, after.messages - before.messages};
  const std::vector<double> all = GatherRecords(comm, mine);
  measured->milliseconds.push_back(*std::max_element(all.begin(), all.end()));
}

std::string LineOf(const char* name, const Measured& measured) {
  return fmt::format("{:<12} {:>10.3f} ms {:>8} messages {:>12} bytes\n", name, measured.Median(),
                     measured.sent.messages, measured.sent.bytes);
}

int RunTool(const GroupOptions& options) {
  onebitComm_t joined = nullptr;
  Check(JoinProcesses(TransportOf(options.ranks, std::getenv("ONEBIT_TRANSPORT")), &joined),
        "onebitCommInitEnv");
  const CommHandle comm(joined);
  Tensors alone(options, joined);
  Tensors together(options, joined);
  Measured one_by_one;
  Measured grouped;
  for (int i = 0; i < options.warmup + options.repetitions; ++i) {
    Measure(joined, &one_by_one, [&] { alone.CallAll(); });
    Measure(joined, &grouped, [&] { together.CallGroup(); });
    if (i + 1 != options.warmup) continue;
    one_by_one.milliseconds.clear();
    grouped.milliseconds.clear();
  }
  if (!together.HasResultsOf(alone)) {
    throw ToolError(fmt::format(
        "rank {}: the group's results are not those of the calls one by one", RankOf(joined)));
  }
  if (options.ranks.is_speaker()) {
    fmt::print("# {} tensors of {} to {} fp32 elements, {} in all, {}; {} ranks; rank 0 sent\n",
               options.tensors, options.least_elements, options.most_elements, alone.elements(),
               options.is_dense ? "dense" : "ef", CountOf(joined));
    fmt::print("{}{}ratio        {:>10.2f}\n", LineOf("one by one", one_by_one),
               LineOf("group", grouped), one_by_one.Median() / grouped.Median());
  }
  Check(onebitCommFinalize(joined), "onebitCommFinalize");
  return kExitOk;
}

}  // namespace
}  // namespace onebit::perf

int main(int argc, char** argv) {
  using namespace onebit::perf;
  bool is_speaker = true;
  try {
    const std::optional<GroupOptions> options = ParseOptions(argc, argv);
    if (!options) return kExitOk;
    is_speaker = options->ranks.is_speaker();
    if (options->ranks.procs > 0) return LaunchSelf(kTool, options->ranks.procs, argc, argv);
    return RunTool(*options);
  } catch (const UsageError& error) {
    // Of ranks that were started with the same command line only the first says so.
    if (LaunchedRank().value_or(0) == 0) {
      fmt::print(stderr, "{}: {}\nRun {} --help for the options.\n", kTool, error.what(), kTool);
    }
    return kExitUsage;
  } catch (const ToolError& error) {
    if (is_speaker || !error.is_consequence()) fmt::print(stderr, "{}: {}\n", kTool, error.what());
    return kExitFailed;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", kTool, error.what());
    return kExitFailed;
  }
}
