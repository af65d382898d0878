// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Measures, checks and reports row after row.
#include "perf/common/sweep_driver.h"

#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "perf/common/comm_stats.h"
#include "perf/common/row_checker.h"
#include "perf/common/row_timer.h"
#include "perf/common/run_facts.h"
#include "perf/common/seeded_elements.h"
#include "perf/common/standard_output.h"
#include "perf/common/tool_error.h"
#include "perf/common/tool_main.h"

namespace onebit::perf {
namespace {

// Empty if a host is not known.
std::vector<uint32_t> HostOfEachRank(std::span<const RankInfo> infos) {
  std::vector<uint32_t> hosts;
  for (const RankInfo& info : infos) {
    if (!info.host_number) return {};
    hosts.push_back(static_cast<uint32_t>(*info.host_number));
  }
  return hosts;
}

class Sweep {
 public:
  // Everything is borrowed.
  Sweep(const Collective& collective, const Options& options, Ranks& ranks, SweepOutput& output)
      : collective_(collective),
        options_(options),
        ranks_(ranks),
        output_(output),
        hosts_(HostOfEachRank(ranks.GatherInfo())) {}

  // All rows of all types and ops.
  void Run() {
    for (onebitDataType_t type : options_.types) {
      ranks_.pool().Run([&](int rank) {
        RankState& state = ranks_.state(rank);
        const size_t elements = ranks_.buffer_bytes() / ElementBytes(type);
        FillSeeded(state.send.data(), elements, type, kTimedSeed, rank);
        state.PublishSend(ranks_.buffer_bytes());
        // Faults its pages in before calls are timed, as warm-up calls may not reach all of them.
        state.FillRecv(0, ranks_.buffer_bytes());
      });
      for (onebitRedOp_t op : options_.ops) {
        WarmUp(type, op);
        for (size_t bytes : SweepSizes(options_.sweep)) {
          output_.AddRow(MeasureRow(bytes, type, op));
        }
      }
    }
  }

 private:
  Case CaseOf(size_t bytes, onebitDataType_t type, onebitRedOp_t op) const {
    return {.count = collective_.CountOf(bytes, type, ranks_.count()),
            .type = type,
            .op = op,
            .ranks = ranks_.count(),
            .root = options_.root,
            .ragged = {static_cast<uint32_t>(options_.seed), options_.row_elements}};
  }

  void Prepare(const Case& row) {
    ranks_.pool().Run([&](int rank) { collective_.Prepare(row, options_, ranks_.state(rank)); });
  }

  void WarmUp(onebitDataType_t type, onebitRedOp_t op) {
    if (options_.warmup_iterations == 0) return;
    for (size_t bytes : WarmupSizes(options_.sweep)) {
      output_.ShowProgress(bytes, "warming up");
      const Case row = CaseOf(bytes, type, op);
      Prepare(row);
      ranks_.pool().Run([&](int rank) {
        RankState& state = ranks_.state(rank);
        for (int i = 0; i < options_.warmup_iterations; ++i) {
          Check(collective_.Run(row, state.CallAt(0, 0, state.compressor.get())),
                collective_.call());
        }
        state.Await();
      });
    }
  }

  Row MeasureRow(size_t bytes, onebitDataType_t type, onebitRedOp_t op) {
    Case row_case = CaseOf(bytes, type, op);
    Row row;
    row.bytes = collective_.BytesOf(row_case);
    row.count = row_case.count;
    row.type = type;
    row.op = collective_.has_op() ? std::optional(op) : std::nullopt;
    if (collective_.has_root()) row.root = row_case.root;

    output_.ShowProgress(row.bytes, "timing");
    Prepare(row_case);
    row.rel_error = RelativeErrorOfFirstCall(collective_, row_case, ranks_);
    const RowTimes times = TimeRow(collective_, row_case, options_, ranks_);
    if (times.has_two_levels) row_case.hosts = hosts_;
    row.levels = times.has_two_levels ? 2 : 1;
    SetTimes(times, &row);
    SetWire(row_case, times, &row);

    if (options_.checks > 0) {
      output_.ShowProgress(row.bytes, "checking");
      const CheckResult check = CheckRow(collective_, row_case, options_, ranks_);
      row.out_of_place.wrong = check.wrong_out_of_place;
      row.in_place.wrong = check.wrong_in_place;
      row.problem = check.problem;
    }
    return row;
  }

  void SetTimes(const RowTimes& times, Row* row) const {
    const double factor = collective_.BusFactor(ranks_.count());
    row->out_of_place.seconds = times.out_of_place_seconds;
    row->in_place.seconds = times.in_place_seconds;
    for (Measurement* measurement : {&row->out_of_place, &row->in_place}) {
      measurement->bandwidth = BandwidthOf(row->bytes, measurement->seconds.value_or(0), factor);
    }
    if (options_.is_compressed() && times.dense_seconds && times.out_of_place_seconds > 0) {
      row->speedup_vs_dense = *times.dense_seconds / times.out_of_place_seconds;
    }
    row->iterations = times.calls;
    row->untimed_calls = 1 + times.untimed_calls;  // the first showed the relative error
  }

  void SetWire(const Case& row_case, const RowTimes& times, Row* row) {
    if (!ranks_.counts_sent() || times.is_native) return;
    row->wire_bytes = times.wire_bytes;
    row->wire_bytes_bound = WireBoundOf(row_case, WireFactsOf(row_case, times.messages));
    if (times.wire_bytes > 0) {
      row->ratio = collective_.DenseOptimalBytes(row_case) / static_cast<double>(times.wire_bytes);
    }
  }

  TwoLevelWire TwoLevelWireOf(const Case& row_case) const {
    TwoLevelWire wire = {.call = collective_.two_level_call().value(),
                         .count = row_case.count,
                         .hosts = model::HostLayout(row_case.hosts),
                         .root = static_cast<size_t>(row_case.root),
                         .element_bytes = ElementBytes(row_case.type)};
    if (options_.is_compressed()) wire.packet = options_.packet();
    return wire;
  }

  uint64_t WireBoundOf(const Case& row_case, const WireFacts& facts) const {
    if (row_case.hosts.empty()) return collective_.WireBound(row_case, options_, facts);
    TwoLevelWire wire = TwoLevelWireOf(row_case);
    wire.segments = facts.segments;
    return MaxTwoLevelBytes(wire);
  }

  // The segments of a chunk of a dense call in which no rank sends more messages.
  size_t DenseSegments(const Case& row_case, uint64_t messages) const {
    if (!row_case.hosts.empty()) return SegmentsOfMessages(TwoLevelWireOf(row_case), messages);
    return messages / (collective_.dense_exchanges() * static_cast<size_t>(row_case.ranks - 1));
  }

  // Tells into how many messages the library cut the row: its compressor knows; for a dense call it
  // follows from the number of messages.
  WireFacts WireFactsOf(const Case& row_case, uint64_t messages) {
    if (row_case.ranks == 1) return {};
    onebitCompressor_t compressor = ranks_.state(ranks_.first()).compressor.get();
    if (compressor == nullptr) {
      const size_t exchanges = collective_.dense_exchanges();
      // Dense messages over NCCL have no headers, and an empty message is not sent.
      if (options_.transport == kTransportOfDevices) return {exchanges, 0};
      return {exchanges, DenseSegments(row_case, messages)};
    }
    const onebitCompressorStats_t stats = StatsOf(compressor);
    return {stats.exchanges, stats.segments};
  }

  const Collective& collective_;
  const Options& options_;
  Ranks& ranks_;
  SweepOutput& output_;
  const std::vector<uint32_t> hosts_;  // by rank; empty if not known
};

// Runs a parsed command line. Throws ToolError, and UsageError for a bad path.
int RunOptions(const Options& options, const Collective& collective,
               std::vector<std::string> arguments) {
  std::unique_ptr<Ranks> ranks;
  // Processes are joined before anything can fail in one of them: the others would wait for it.
  if (options.ranks.is_one_rank()) ranks = MakeRanks(options);
  SweepOutput output(collective.tool(), options.ranks.is_speaker(), options);
  try {
    output.Begin(FactsOfLibrary(options, ranks ? ranks->GatherInfo() : InfoOfThreads(options)),
                 std::move(arguments));
    if (!ranks) ranks = MakeRanks(options);
  } catch (const std::exception& error) {
    output.Fail(error.what());
    throw;
  }
  return RunSweep(collective, options, *ranks, output);
}

// Communicators of threads have no configuration, so it is a setting for all.
void SetTimeout(const Options& options) {
  if (options.timeout_seconds == 0) return;
  const std::string milliseconds = fmt::format("{}000", options.timeout_seconds);
  setenv("ONEBIT_COLLECTIVE_TIMEOUT_MS", milliseconds.c_str(), 1);
}

ToolTraits TraitsOf(const Collective& collective) {
  return {.collective = collective.collective(),
          .has_op = collective.has_op(),
          .has_root = collective.has_root(),
          .is_ragged = collective.is_ragged()};
}

}  // namespace

int RunSweep(const Collective& collective, const Options& options, Ranks& ranks,
             SweepOutput& output) {
  try {
    if (options.root >= ranks.count()) {
      throw UsageError(fmt::format("--root {}: there are {} ranks", options.root, ranks.count()));
    }
    Sweep sweep(collective, options, ranks, output);
    for (int cycle = 0; cycle < options.cycles; ++cycle) sweep.Run();
    std::vector<SentTotal> sent;
    if (ranks.counts_sent()) {
      sent = ranks.GatherFromAll([&](int rank) { return ranks.state(rank).link->Sent(); });
    }
    ranks.Finish();
    output.ReportSent(sent);
  } catch (const std::exception& error) {
    output.Fail(error.what());
    throw;
  }
  output.Finish();
  return output.wrong() == 0 ? kExitOk : kExitFailed;
}

int RunSweepTool(int argc, const char* const* argv, const Collective& collective,
                 std::string_view description) {
  return RunTool(ToolName(), LaunchedRank().value_or(0) == 0, [&] {
    std::optional<Options> options =
        ParseOptions(argc, argv, ToolName(), description, LaunchedRank(), TraitsOf(collective));
    if (!options) return kExitOk;
    RequireRanks(options->ranks);
    if (!collective.has_in_place()) options->is_in_place_timed = false;
    SetTimeout(*options);
    if (options->ranks.procs > 0) {
      return LaunchSelf(ToolName(), options->ranks.procs, argc, argv);
    }
    IgnoreClosedOutput();
    return RunOptions(*options, collective, {argv, argv + argc});
  });
}

}  // namespace onebit::perf
