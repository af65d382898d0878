// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Many small tensors: the same allreduces one by one, and as one group.
#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "perf/common/codec_choice.h"
#include "perf/common/comm_handles.h"
#include "perf/common/comm_stats.h"
#include "perf/common/cuda_device.h"
#include "perf/common/device_choice.h"
#include "perf/common/flag_kinds.h"
#include "perf/common/procs.h"
#include "perf/common/rank_environment.h"
#include "perf/common/rank_exchange.h"
#include "perf/common/tool_error.h"
#include "perf/common/tool_main.h"
#include "perf/group_tensors.h"

namespace onebit::perf {
namespace {

struct GroupOptions {
  RankSource ranks;
  std::string transport;  // in use
  DeviceChoice device;
  TensorShapes shapes;
  int repetitions = 20;
  int warmup = 3;
};

// Throws UsageError. No value if help was asked for.
std::optional<GroupOptions> ParseOptions(int argc, const char* const* argv) {
  GroupOptions options;
  options.ranks.launched_rank = LaunchedRank();
  CLI::App app("Time allreduces of many small fp32 tensors: one by one, and as one group.",
               std::string(ToolName()));
  AddRankSource(app, &options.ranks, "; nccl with --device cuda");
  AddDevice(app, &options.device);
  AddCount(app, "--tensors", "tensors per group", 1, 100'000, &options.shapes.tensors);
  AddCount(app, "--min-elements", "elements of the smallest tensor", 0, 1 << 28,
           &options.shapes.least_elements);
  AddCount(app, "--max-elements", "elements of the largest tensor", 1, 1 << 28,
           &options.shapes.most_elements);
  AddCount(app, "--repetitions", "timed repetitions: calls one by one and as a group, alternating",
           1, 100'000, &options.repetitions);
  AddCount(app, "--warmup", "not timed", 0, 100'000, &options.warmup);
  AddCount(app, "--seed", "seed of the sizes", 0, INT32_MAX, &options.shapes.seed);
  AddCodecFlags(app, &options.shapes.compression);
  if (!ParseCommandLine(app, argc, argv)) return std::nullopt;
  if (options.ranks.procs == 0 && !options.ranks.is_one_rank()) {
    throw UsageError(
        "the ranks are processes: --procs 4 starts four on this host; onebit_run, torchrun, mpirun "
        "and srun start them on several hosts");
  }
  if (options.shapes.least_elements > options.shapes.most_elements) {
    throw UsageError("--min-elements is larger than --max-elements");
  }
  CompleteCodec(app, onebitCollectiveAllReduce, &options.shapes.compression);
  options.ranks.has_cuda = options.device.is_cuda;
  options.transport = CheckedTransportOf(options.ranks);
  return options;
}

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
  measured->sent = {.bytes = after.bytes - before.bytes,
                    .messages = after.messages - before.messages};
  const std::vector<double> all = GatherRecords(comm, mine);
  measured->milliseconds.push_back(*std::max_element(all.begin(), all.end()));
}

std::string LineOf(const char* name, const Measured& measured) {
  return fmt::format("{:<12} {:>10.3f} ms {:>8} messages {:>12} bytes\n", name, measured.Median(),
                     measured.sent.messages, measured.sent.bytes);
}

std::string TextOf(const CodecChoice& choice) {
  if (!choice.is_compressed()) return std::string(choice.mode_name());
  return fmt::format("{} codec {} block {}", choice.mode_name(), choice.codec_name(),
                     choice.block_text());
}

int Run(const GroupOptions& options) {
  // A transport of devices joins with the device that is current.
  if (options.device.is_cuda) {
    UseCudaDevice(CudaDeviceOf(options.device, *options.ranks.launched_rank));
  }
  onebitComm_t joined = nullptr;
  Check(JoinProcesses(options.transport, &joined), "onebitCommInitEnv");
  const CommHandle comm(joined);
  Tensors alone(options.shapes, joined, options.device.is_cuda);
  Tensors together(options.shapes, joined, options.device.is_cuda);
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
        "rank {}: the group's results differ from those of the calls one by one", RankOf(joined)));
  }
  if (options.ranks.is_speaker()) {
    fmt::print(
        "# {} tensors of {} to {} fp32 elements, {} in all, {}; {} ranks, device {}; rank 0 sent\n",
        options.shapes.tensors, options.shapes.least_elements, options.shapes.most_elements,
        alone.elements(), TextOf(options.shapes.compression), CountOf(joined),
        options.device.name());
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
  return RunTool(ToolName(), LaunchedRank().value_or(0) == 0, [&] {
    const std::optional<GroupOptions> options = ParseOptions(argc, argv);
    if (!options) return kExitOk;
    if (options->ranks.procs > 0) return LaunchSelf(ToolName(), options->ranks.procs, argc, argv);
    return Run(*options);
  });
}
