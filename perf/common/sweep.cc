// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Measures, checks and reports row after row.
#include "perf/common/sweep.h"

#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "perf/common/comm_stats.h"
#include "perf/common/elements.h"
#include "perf/common/error.h"
#include "perf/common/json_report.h"
#include "perf/common/progress.h"
#include "perf/common/rank_state.h"
#include "perf/common/row_checker.h"
#include "perf/common/row_timer.h"
#include "perf/common/sweep_output.h"
#include "perf/common/table.h"

namespace onebit::perf {
namespace {

onebitCompressorConfig_t CompressorConfig(const Collective& collective, const Options& options) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.mode = options.mode == Mode::kSign ? onebitModeSign : onebitModeEf;
  config.collective = collective.collective();
  config.scaleRule = options.scale_rule;
  config.block = options.block;
  if (options.device.is_cuda) config.memory = onebitMemoryDevice;  // of the thread's device
  return config;
}

class Sweep {
 public:
  // `ranks` and `json` are borrowed; json has no value where nothing is reported.
  Sweep(const Collective& collective, const Options& options, Ranks& ranks,
        std::optional<JsonReport>& json)
      : collective_(collective),
        options_(options),
        json_(json),
        ranks_(ranks),
        progress_(ranks.has_root()) {}

  // All rows of all types and ops.
  void Run() {
    for (onebitDataType_t type : options_.types) {
      ranks_.pool().Run([&](int rank) {
        RankState& state = ranks_.state(rank);
        const size_t elements = ranks_.buffer_bytes() / ElementBytes(type);
        FillSeeded(state.send.data(), elements, type, kTimedSeed, rank);
        state.PublishSend(ranks_.buffer_bytes());
        // Its pages must not come in while calls are timed, whatever was called for warm-up.
        state.FillRecv(0, ranks_.buffer_bytes());
      });
      for (onebitRedOp_t op : options_.ops) {
        WarmUp(type, op);
        for (size_t bytes : SweepSizes(options_.sweep)) Report(MeasureRow(bytes, type, op));
      }
    }
  }

  uint64_t wrong() const { return wrong_; }
  double average_bus_gbps() const {
    return bus_gbps_count_ == 0 ? 0 : bus_gbps_sum_ / bus_gbps_count_;
  }

 private:
  Case CaseOf(size_t bytes, onebitDataType_t type, onebitRedOp_t op) const {
    return {collective_.CountOf(bytes, type, ranks_.count()), type, op, ranks_.count()};
  }

  void CreateCompressors(const Case& row) {
    if (!options_.is_compressed()) return;
    ranks_.pool().Run([&](int rank) {
      RankState& state = ranks_.state(rank);
      const onebitCompressorConfig_t config = CompressorConfig(collective_, options_);
      onebitCompressor_t compressor = nullptr;
      state.compressor.reset();  // its memory first
      Check(onebitCompressorCreate(&compressor, state.comm.get(), row.count, row.type, &config),
            "onebitCompressorCreate");
      state.compressor.reset(compressor);
    });
  }

  void WarmUp(onebitDataType_t type, onebitRedOp_t op) {
    if (options_.warmup_iterations == 0) return;
    for (size_t bytes : WarmupSizes(options_.sweep)) {
      progress_.Show(fmt::format("{}: {} bytes: warming up", collective_.tool(), bytes));
      const Case row = CaseOf(bytes, type, op);
      CreateCompressors(row);
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
    const Case row_case = CaseOf(bytes, type, op);
    Row row;
    row.bytes = MessageBytes(collective_.ShapeOf(row_case, 0), type);
    row.count = row_case.count;
    row.type = type;
    if (collective_.has_op())
      row.op = op;
    else
      row.op.reset();

    progress_.Show(fmt::format("{}: {} bytes: timing", collective_.tool(), row.bytes));
    CreateCompressors(row_case);
    row.rel_error = RelativeErrorOfFirstCall(collective_, row_case, ranks_);
    const RowTimes times = TimeRow(collective_, row_case, options_, ranks_);
    SetTimes(times, &row);
    SetWire(row_case, times, &row);

    if (options_.checks > 0) {
      progress_.Show(fmt::format("{}: {} bytes: checking", collective_.tool(), row.bytes));
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
    row->wire_bytes = times.wire_bytes;
    row->wire_bytes_bound =
        collective_.WireBound(row_case, options_, WireFactsOf(row_case, times.messages));
    if (times.wire_bytes > 0) {
      row->ratio = collective_.DenseOptimalBytes(row->bytes, ranks_.count()) /
                   static_cast<double>(times.wire_bytes);
    }
  }

  // How the library cut the row into messages: its compressor says so; for a dense call it follows
  // from the number of messages.
  WireFacts WireFactsOf(const Case& row_case, uint64_t messages) {
    if (row_case.ranks == 1) return {};
    onebitCompressor_t compressor = ranks_.state(ranks_.first()).compressor.get();
    if (compressor == nullptr) {
      const size_t exchanges = collective_.dense_exchanges();
      // There dense messages have no headers, and an empty one is none.
      if (options_.transport == kTransportOfDevices) return {exchanges, 0};
      return {exchanges, messages / (exchanges * static_cast<size_t>(row_case.ranks - 1))};
    }
    onebitCompressorStats_t stats{};
    stats.size = sizeof(stats);
    Check(onebitCompressorGetStats(compressor, &stats), "onebitCompressorGetStats");
    return {stats.exchanges, stats.segments};
  }

  void Report(const Row& row) {
    if (!ranks_.has_root()) return;
    progress_.Clear();
    fmt::print("{}", RowText(row));
    std::fflush(stdout);
    if (json_) json_->AddRow(row);
    if (!row.problem.empty()) {
      fmt::print(stderr, "{}: {}\n", collective_.tool(), row.problem);
      if (json_) json_->AddError(row.problem);
    }
    wrong_ += row.out_of_place.wrong.value_or(0) + row.in_place.wrong.value_or(0);
    for (const Measurement* measurement : {&row.out_of_place, &row.in_place}) {
      if (!measurement->seconds) continue;
      bus_gbps_sum_ += measurement->bandwidth.bus_gbps;
      ++bus_gbps_count_;
    }
  }

  const Collective& collective_;
  const Options& options_;
  std::optional<JsonReport>& json_;
  Ranks& ranks_;
  Progress progress_;
  uint64_t wrong_ = 0;
  double bus_gbps_sum_ = 0;
  int bus_gbps_count_ = 0;
};

// The run after the command line was understood. Throws ToolError, and UsageError for a bad path.
int RunOptions(const Options& options, const Collective& collective,
               std::vector<std::string> arguments) {
  std::unique_ptr<Ranks> ranks;
  // Processes are joined before anything can fail in one of them: the others would wait for it.
  if (options.ranks.is_one_rank()) ranks = MakeRanks(options);
  SweepOutput output(options, collective.tool(), ranks ? ranks->Places() : PlacesOfThreads(options),
                     std::move(arguments));
  std::optional<Sweep> sweep;
  const auto wrong = [&] { return sweep ? sweep->wrong() : 0; };
  const auto bus_gbps = [&] { return sweep ? sweep->average_bus_gbps() : 0; };
  try {
    if (!ranks) ranks = MakeRanks(options);
    sweep.emplace(collective, options, *ranks, output.json());
    sweep->Run();
    const std::vector<SentTotal> sent =
        ranks->GatherFromAll([&](int rank) { return SentBy(ranks->state(rank).comm.get()); });
    ranks->Finish();
    output.ReportSent(sent);
  } catch (const std::exception& error) {
    output.Fail(error.what(), wrong(), bus_gbps());
    throw;
  }
  output.Finish(wrong(), bus_gbps());
  return wrong() == 0 ? kExitOk : kExitFailed;
}

}  // namespace

int RunSweepTool(int argc, const char* const* argv, const Collective& collective,
                 std::string_view description) {
  // All ranks of a job have the same command line; one of them complains.
  const bool is_speaker = LaunchedRank().value_or(0) == 0;
  try {
    std::optional<Options> options = ParseOptions(argc, argv, collective.tool(), description,
                                                  LaunchedRank(), collective.has_op());
    if (!options) return kExitOk;
    if (!collective.has_in_place()) options->is_in_place_timed = false;
    if (options->ranks.procs > 0) {
      return LaunchSelf(collective.tool(), options->ranks.procs, argc, argv);
    }
    return RunOptions(*options, collective, {argv, argv + argc});
  } catch (const UsageError& error) {
    if (!is_speaker) return kExitUsage;
    fmt::print(stderr, "{}: {}\nRun {} --help for the options.\n", collective.tool(), error.what(),
               collective.tool());
    return kExitUsage;
  } catch (const StartError& error) {
    fmt::print(stderr, "{}: {}\n", collective.tool(), error.what());
    return error.status();
  } catch (const ToolError& error) {
    if (is_speaker || !error.is_consequence()) {
      fmt::print(stderr, "{}: {}\n", collective.tool(), error.what());
    }
    return kExitFailed;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "{}: out of memory\n", collective.tool());
    return kExitFailed;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", collective.tool(), error.what());
    return kExitFailed;
  }
}

}  // namespace onebit::perf
