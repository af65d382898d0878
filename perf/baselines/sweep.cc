// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Command line, rows, table and report of a baseline.
#include "perf/baselines/sweep.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "perf/baselines/rank_timer.h"
#include "perf/baselines/row_check.h"
#include "perf/common/elements.h"
#include "perf/common/error.h"
#include "perf/common/handles.h"
#include "perf/common/host.h"
#include "perf/common/progress.h"
#include "perf/common/report_file.h"
#include "perf/common/row.h"
#include "perf/common/sweep_flags.h"
#include "perf/common/sweep_json.h"
#include "perf/common/sweep_text.h"

namespace onebit::perf {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kTimedSeed = 0;

// All ranks have the same command line; one of them complains. Asked before the system has started.
bool IsFirstRank(const Baseline& baseline) {
  for (const char* name : baseline.rank_variables) {
    const char* text = std::getenv(name);
    if (text != nullptr) return std::string_view(text) == "0";
  }
  return true;
}

// A place that can travel.
struct PlaceRecord {
  int pid = 0;
  std::array<char, 64> host{};
};

std::vector<RankPlace> PlacesOf(System& system) {
  PlaceRecord mine;
  mine.pid = getpid();
  const std::string host = HostName();
  std::memcpy(mine.host.data(), host.data(), std::min(host.size(), mine.host.size() - 1));
  std::vector<RankPlace> places;
  for (const PlaceRecord& record : system.Gather(mine)) {
    places.push_back({.pid = record.pid, .host = record.host.data()});
  }
  return places;
}

// One rank's part of the sweep. Rank 0 prints and keeps the report's rows.
class Sweep {
 public:
  Sweep(std::string_view tool, const SweepFlags& flags, System& system)
      : tool_(tool),
        flags_(flags),
        system_(system),
        progress_(is_speaker()),
        send_memory_(flags.AllocatedBytes()),
        recv_memory_(flags.AllocatedBytes()) {
    const size_t elements = flags.sweep.max_bytes / sizeof(float);  // the rest is never touched
    send_ = {reinterpret_cast<float*>(send_memory_.data()), elements};
    recv_ = {reinterpret_cast<float*>(recv_memory_.data()), elements};
    FillSeeded(send_.data(), elements, onebitFloat32, kTimedSeed, system.rank());
    std::fill(recv_.begin(), recv_.end(),
              0.0f);  // its pages must not come in while calls are timed
  }

  void Run() {
    WarmUp();
    for (const size_t bytes : SweepSizes(flags_.sweep)) Report(MeasureRow(bytes / sizeof(float)));
  }

  bool is_speaker() const { return system_.rank() == 0; }
  uint64_t wrong() const { return wrong_; }
  double average_bus_gbps() const {
    return bus_gbps_count_ == 0 ? 0 : bus_gbps_sum_ / bus_gbps_count_;
  }
  const Json& rows() const { return rows_; }
  const Json& problems() const { return problems_; }

 private:
  void WarmUp() {
    if (flags_.warmup_iterations == 0) return;
    for (const size_t bytes : WarmupSizes(flags_.sweep)) {
      progress_.Show(fmt::format("{}: {} bytes: warming up", tool_, bytes));
      const size_t count = bytes / sizeof(float);
      system_.Prepare(count);
      for (int i = 0; i < flags_.warmup_iterations; ++i) {
        system_.AllReduce(send_.data(), recv_.data(), count);
      }
    }
  }

  Row MeasureRow(size_t count) {
    Row row;
    row.count = count;
    row.bytes = count * sizeof(float);
    progress_.Show(fmt::format("{}: {} bytes: timing", tool_, row.bytes));
    row.rel_error = RelativeErrorOfFirstCall(system_, count, kTimedSeed, send_, recv_);
    const RowTimes times = TimeRow(system_, count, flags_, send_, recv_);
    row.out_of_place.seconds = times.out_of_place_seconds;
    row.in_place.seconds = times.in_place_seconds;
    row.iterations = times.calls;
    row.untimed_calls = 1 + times.untimed_calls;  // the first showed the relative error
    for (Measurement* measurement : {&row.out_of_place, &row.in_place}) {
      measurement->bandwidth = BandwidthOf(row.bytes, measurement->seconds.value_or(0),
                                           AllReduceFactor(system_.ranks()));
    }
    if (flags_.checks > 0) {
      progress_.Show(fmt::format("{}: {} bytes: checking", tool_, row.bytes));
      const CheckResult check = CheckRow(system_, count, flags_.checks, send_, recv_);
      row.out_of_place.wrong = check.wrong_out_of_place;
      row.in_place.wrong = check.wrong_in_place;
      row.problem = check.problem;
      FillSeeded(send_.data(), count, onebitFloat32, kTimedSeed, system_.rank());
    }
    return row;
  }

  void Report(const Row& row) {
    if (!row.problem.empty()) fmt::print(stderr, "{}: {}\n", tool_, row.problem);
    wrong_ += row.out_of_place.wrong.value_or(0) + row.in_place.wrong.value_or(0);
    if (!is_speaker()) return;
    progress_.Clear();
    fmt::print("{}", RowText(row));
    std::fflush(stdout);
    rows_.push_back(RowJson(row, {.mode = system_.mode(),
                                  .transport = system_.transport(),
                                  .ranks = static_cast<size_t>(system_.ranks()),
                                  .is_dense = system_.is_dense()}));
    if (!row.problem.empty()) problems_.push_back(row.problem);
    for (const Measurement* measurement : {&row.out_of_place, &row.in_place}) {
      if (!measurement->seconds) continue;
      bus_gbps_sum_ += measurement->bandwidth.bus_gbps;
      ++bus_gbps_count_;
    }
  }

  const std::string_view tool_;
  const SweepFlags& flags_;
  System& system_;
  Progress progress_;
  Buffer send_memory_;
  Buffer recv_memory_;
  std::span<float> send_;
  std::span<float> recv_;
  Json rows_ = Json::array();
  Json problems_ = Json::array();
  uint64_t wrong_ = 0;
  double bus_gbps_sum_ = 0;
  int bus_gbps_count_ = 0;
};

std::string HeaderText(std::string_view tool, const SweepFlags& flags, const System& system,
                       std::span<const RankPlace> places) {
  std::string text = fmt::format("# {}\n# Collective test starting: {}\n", system.version(), tool);
  text += ParametersText(flags, 1);
  text += fmt::format("# mode: {} transport: {} nranks: {}\n#\n# Using devices\n{}#\n",
                      system.mode(), system.transport(), system.ranks(), ProcessesText(places));
  text += ColumnsText();
  return text;
}

Json ReportHead(std::vector<std::string> arguments, const SweepFlags& flags, const System& system,
                std::span<const RankPlace> places) {
  Json config = ConfigJson(flags, 1);
  config["devices"] = DevicesJson(places);
  return {{"version", kReportLayoutVersion}, {"start_time", LocalTime()},
          {"args", std::move(arguments)},    {"env", LibraryEnvironment()},
          {"system", system.version()},      {"config", std::move(config)}};
}

std::optional<SweepFlags> ParseFlags(int argc, const char* const* argv, const Baseline& baseline) {
  SweepFlags flags;
  CLI::App app{std::string(baseline.description), std::string(baseline.tool)};
  app.get_formatter()->column_width(38);
  AddSweepFlags(app, std::string(baseline.check_help), &flags);
  if (baseline.add_flags) baseline.add_flags(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    if (IsFirstRank(baseline)) std::fputs(app.help().c_str(), stdout);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  CheckSweepFlags(flags);
  return flags;
}

// On a system that has started.
int RunSweep(const SweepFlags& flags, std::string_view tool, std::vector<std::string> arguments,
             System& system, std::optional<ReportFile>& file) {
  if (flags.sweep.max_bytes / sizeof(float) > system.max_count()) {
    throw UsageError(fmt::format("-e {}: a call of this system takes {} elements at most",
                                 flags.sweep.max_bytes, system.max_count()));
  }
  const std::vector<RankPlace> places = PlacesOf(system);
  const Json head = ReportHead(std::move(arguments), flags, system, places);
  if (system.rank() == 0) {
    if (file) fmt::print("# Writing JSON output to {}\n", file->path());
    fmt::print("{}", HeaderText(tool, flags, system, places));
    std::fflush(stdout);
  }
  Sweep sweep(tool, flags, system);
  const auto write = [&](const Json& errors) {
    if (!file) return;
    Json report = head;
    CompleteReport(sweep.rows(), errors, sweep.wrong(), sweep.average_bus_gbps(), &report);
    file->Write(report);
  };
  try {
    sweep.Run();
  } catch (const std::exception& error) {
    Json errors = sweep.problems();
    errors.push_back(error.what());
    write(errors);
    throw;
  }
  write(sweep.problems());
  if (sweep.is_speaker()) {
    fmt::print("{}", FooterText(tool, sweep.wrong(), sweep.average_bus_gbps()));
  }
  return sweep.wrong() == 0 ? kExitOk : kExitFailed;
}

// In a handler: says what was caught, and returns the status that stands for it.
int Complain(const Baseline& baseline) {
  const std::string_view tool = baseline.tool;
  try {
    throw;
  } catch (const UsageError& error) {
    if (IsFirstRank(baseline)) {
      fmt::print(stderr, "{}: {}\nRun {} --help for the options.\n", tool, error.what(), tool);
    }
    return kExitUsage;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "{}: out of memory\n", tool);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", tool, error.what());
  }
  return kExitFailed;
}

int RunFlags(const SweepFlags& flags, const Baseline& baseline,
             std::vector<std::string> arguments) {
  // A wrong path is noticed before hours of work, and before other ranks wait for this one.
  std::optional<ReportFile> file;
  if (!flags.json_path.empty() && IsFirstRank(baseline)) file.emplace(flags.json_path);
  const std::unique_ptr<System> system = baseline.start();
  int status = kExitOk;
  try {
    status = RunSweep(flags, baseline.tool, std::move(arguments), *system, file);
  } catch (...) {
    // Said while the system lives: when it aborts nothing more can be.
    status = Complain(baseline);
    // Wrong usage is wrong on all ranks. After anything else the others may wait for this one.
    if (status != kExitUsage) system->Abort(status);
  }
  system->Finish(status);
  return status;
}

}  // namespace

int RunBaseline(int argc, const char* const* argv, const Baseline& baseline) {
  try {
    const std::optional<SweepFlags> flags = ParseFlags(argc, argv, baseline);
    if (!flags) return kExitOk;
    return RunFlags(*flags, baseline, {argv, argv + argc});
  } catch (...) {
    return Complain(baseline);
  }
}

}  // namespace onebit::perf
