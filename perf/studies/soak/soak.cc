// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Rank 0 decides on every round for all ranks, because their clocks differ.
#include "perf/studies/soak/soak.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "perf/common/comm_stats.h"
#include "perf/common/rank_exchange.h"
#include "perf/common/rank_pool.h"
#include "perf/common/seconds.h"
#include "perf/common/tool_error.h"

namespace onebit::soak {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array kDeadlineVariables = {"ONEBIT_COLLECTIVE_TIMEOUT_MS",
                                           "ONEBIT_CONNECT_TIMEOUT_MS"};
constexpr double kWarmUpShare = 0.2;  // of the run
constexpr uint64_t kMinWarmUpRounds = 3;
constexpr uint64_t kMiB = 1 << 20;
constexpr int kWatchdogShare = 3;  // its patience, in deadlines of a collective

// The order of rank 0 before every round.
struct Order {
  uint64_t has_round = 0;
  uint64_t is_warmed_up = 0;  // for the first time
};

class RankSoak {
 public:
  RankSoak(const SoakOptions& options, const RankSetup& setup, int ranks, const OnRound& on_round)
      : options_(options), setup_(setup), on_round_(on_round) {
    result_.ranks = ranks;
  }

  SoakResult Run() && {
    RankFigures figures{.pid = getpid()};
    figures.start = UsageAtRest();
    start_ = Clock::now();
    uint64_t round = options_.first_round;
    while (true) {
      const Order order = AgreeOnOrder();
      if (order.is_warmed_up != 0) {
        result_.was_warmed_up = true;
        figures.warmed_up = UsageAtRest();
      }
      if (order.has_round == 0) break;
      RunRound(round++, &figures);
    }
    figures.end = UsageWhenSettled(figures);
    const onebitCommStats_t stats = perf::StatsOf(setup_.base);
    figures.logical_bytes += stats.logical_bytes;
    figures.wire_bytes += stats.bytes_sent;
    result_.by_rank = perf::GatherRecords(setup_.base, figures);
    result_.seconds = perf::SecondsSince(start_);
    return std::move(result_);
  }

 private:
  Order AgreeOnOrder() {
    Order order;
    if (setup_.rank == 0) {
      if (on_round_) on_round_(result_.rounds, result_);
      order.has_round = HasRound() ? 1 : 0;
      order.is_warmed_up = order.has_round != 0 && !result_.was_warmed_up && IsWarm() ? 1 : 0;
    }
    perf::BroadcastBytes(setup_.base, std::as_writable_bytes(std::span(&order, 1)), 0);
    return order;
  }

  bool HasRound() const {
    const bool has_time = options_.seconds == 0 || perf::SecondsSince(start_) < options_.seconds;
    return has_time && (options_.rounds == 0 || result_.rounds < options_.rounds);
  }

  bool IsWarm() const {
    if (result_.rounds < kMinWarmUpRounds) return false;
    if (options_.seconds > 0 && perf::SecondsSince(start_) >= kWarmUpShare * options_.seconds) {
      return true;
    }
    return options_.rounds > 0 && static_cast<double>(result_.rounds) >=
                                      kWarmUpShare * static_cast<double>(options_.rounds);
  }

  void RunRound(uint64_t number, RankFigures* figures) {
    const Plan plan = MakePlan({.ranks = result_.ranks, .max_elements = options_.max_elements},
                               options_.seed, number);
    RankRound round(setup_, plan, number);
    try {
      round.Run();
    } catch (const perf::ToolError& error) {
      throw perf::ToolError(fmt::format("{}\nrepeat it with: {}", error.what(),
                                        RepeatCommand(options_, result_.ranks, number)),
                            error.is_consequence());
    }
    figures->logical_bytes += round.traffic().logical_bytes;
    figures->wire_bytes += round.traffic().wire_bytes;
    ++result_.rounds;
    result_.communicators += plan.groups.size() - 1;
    result_.compressors += plan.tensors.size();
    for (const Action& action : plan.actions) {
      ++result_.actions[static_cast<size_t>(action.kind)];
    }
  }

  // Measures while no rank, which may be a thread of this process, is doing anything. One rank per
  // process asks.
  ProcessUsage UsageAtRest() {
    Barrier();
    const ProcessUsage usage = setup_.asks_for_usage ? UsageNow() : ProcessUsage();
    Barrier();
    return usage;
  }

  // Connections are closed by detached threads, so the count may need a moment.
  ProcessUsage UsageWhenSettled(const RankFigures& figures) {
    constexpr auto kSettleTimeout = std::chrono::seconds(3);
    const Clock::time_point deadline = Clock::now() + kSettleTimeout;
    Barrier();
    ProcessUsage usage = setup_.asks_for_usage ? UsageNow() : ProcessUsage();
    while (result_.was_warmed_up && usage.descriptors > figures.warmed_up.descriptors &&
           Clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      usage = UsageNow();
    }
    Barrier();
    return usage;
  }

  void Barrier() { perf::Check(onebitBarrier(setup_.base, nullptr), "onebitBarrier"); }

  const SoakOptions& options_;
  const RankSetup& setup_;
  const OnRound& on_round_;
  Clock::time_point start_;
  SoakResult result_;
};

// Creates or joins the communicators of the local ranks; the first of them has rank `first`.
std::vector<onebitComm_t> MakeBase(const SoakOptions& options) {
  if (options.ranks.is_one_rank()) {
    onebitComm_t comm = nullptr;
    perf::Check(perf::JoinProcesses(options.transport, &comm), "onebitCommInitEnv");
    return {comm};
  }
  std::vector<onebitComm_t> comms(static_cast<size_t>(options.ranks.threads));
  perf::Check(onebitCommInitAll(comms.data(), options.ranks.threads, nullptr), "onebitCommInitAll");
  return comms;
}

// Returns "" if `end` is within the limit.
std::string Growth(const char* what, uint64_t warmed_up, uint64_t end, uint64_t limit) {
  if (end <= limit) return "";
  const auto mib = [](uint64_t bytes) { return static_cast<double>(bytes) / kMiB; };
  return fmt::format(
      "{:.1f} MiB {} in the end, more than the {:.1f} MiB that are allowed after {:.1f} MiB when "
      "it "
      "was warmed up",
      mib(end), what, mib(limit), mib(warmed_up));
}

}  // namespace

SoakResult RunSoak(const SoakOptions& options, const SoakHooks& hooks, const OnRound& on_round) {
  const auto deadline_ms = static_cast<int64_t>(std::ceil(options.deadline_seconds * 1000));
  // Set before the library reads its settings; a value of the user's is kept.
  for (const char* variable : kDeadlineVariables) {
    setenv(variable, std::to_string(deadline_ms).c_str(), 0);
  }
  Watchdog watchdog("soak", std::chrono::milliseconds(kWatchdogShare * deadline_ms));

  LiveComms comms;
  const std::vector<onebitComm_t> base = MakeBase(options);
  for (onebitComm_t comm : base) comms.Add(comm);
  const int first = perf::RankOf(base[0]);
  const int ranks = perf::CountOf(base[0]);
  SoakResult result;
  perf::RankPool pool(first, static_cast<int>(base.size()), [&comms] { comms.AbortAll(); });
  pool.Run([&](int rank) {
    Workspace workspace(ranks, options.max_elements);
    const RankSetup setup{.rank = rank,
                          .base = base[static_cast<size_t>(rank - first)],
                          .asks_for_usage = rank == first,
                          .comms = comms,
                          .workspace = workspace,
                          .watchdog = watchdog,
                          .hooks = hooks};
    SoakResult mine = RankSoak(options, setup, ranks, on_round).Run();
    perf::Check(onebitCommFinalize(setup.base), "onebitCommFinalize");
    if (rank == first) result = std::move(mine);
  });
  return result;
}

uint64_t HeapLimit(uint64_t warmed_up_bytes) {
  return warmed_up_bytes + warmed_up_bytes / 10 + 4 * kMiB;
}

uint64_t ResidentLimit(const ProcessUsage& warmed_up) {
  const uint64_t bytes = std::max(warmed_up.resident_bytes, warmed_up.heap_bytes);
  return bytes + bytes / 10 + 32 * kMiB;
}

std::string ProblemWithGrowth(const SoakResult& result, bool is_memory_limited) {
  if (!result.was_warmed_up) return "";
  for (size_t rank = 0; rank < result.by_rank.size(); ++rank) {
    const ProcessUsage& before = result.by_rank[rank].warmed_up;
    const ProcessUsage& end = result.by_rank[rank].end;
    if (end.descriptors > before.descriptors) {
      return fmt::format("rank {} has {} descriptors open in the end, and had {} after warm-up",
                         rank, end.descriptors, before.descriptors);
    }
    if (!is_memory_limited) continue;
    const std::string grown =
        Growth("in use", before.heap_bytes, end.heap_bytes, HeapLimit(before.heap_bytes)) +
        Growth("resident", before.resident_bytes, end.resident_bytes, ResidentLimit(before));
    if (!grown.empty()) return fmt::format("rank {} has {}", rank, grown);
  }
  return "";
}

}  // namespace onebit::soak
