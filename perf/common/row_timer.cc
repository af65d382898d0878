// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Times bursts of calls on all ranks and reads the counters around them.
#include "perf/common/row_timer.h"

#include <algorithm>
#include <chrono>
#include <climits>
#include <optional>
#include <vector>

#include "perf/common/bursts.h"
#include "perf/common/seconds.h"
#include "perf/common/seeded_elements.h"
#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

using Clock = std::chrono::steady_clock;

// Measurements of one rank on one path.
struct Sample {
  double seconds = 0;
  uint64_t calls = 0;
  uint64_t bytes_sent = 0;
  uint64_t messages_sent = 0;
  uint64_t native_calls = 0;
  uint64_t two_level_calls = 0;

  double seconds_per_call() const { return calls == 0 ? 0 : seconds / static_cast<double>(calls); }
};

struct RankSamples {
  Sample out_of_place;
  Sample in_place;
  Sample dense;
  uint64_t calls = 0;  // in the row's mode, timed or not
};

// The same on all ranks.
struct CallPlan {
  int calls = 0;
  // The call that showed how slow calls are. It is warm-up, or, if calls are slow, a sample.
  std::optional<Sample> first;
};

// The calls of one rank, on its thread.
class RankTimer {
 public:
  RankTimer(const Collective& collective, const Case& row, const Options& options, Ranks& ranks,
            int rank)
      : collective_(collective),
        row_(row),
        is_blocking_(options.is_blocking),
        state_(ranks.state(rank)) {
    const Shape shape = collective.ShapeOf(row, rank);
    const size_t element_bytes = ElementBytes(row.type);
    send_bytes_ = shape.send_elements * element_bytes;
    in_place_send_ = shape.in_place_send_offset * element_bytes;
    in_place_recv_ = shape.in_place_recv_offset * element_bytes;
    stride_ = MessageBytes(shape, row.type);
    slots_ = stride_ == 0 ? 1 : std::max<size_t>(1, ranks.buffer_bytes() / stride_);
  }

  // Makes timed calls on one path, after a barrier and, if asked for, an untimed call.
  void OutOfPlace(onebitCompressor_t compressor, int calls, bool has_untimed_call, Sample* sample) {
    if (has_untimed_call) CallOutOfPlace(compressor, 0);
    Time(calls, sample, [&](int i) { CallOutOfPlace(compressor, i); });
  }

  void InPlace(int calls, bool has_untimed_call, Sample* sample) {
    if (has_untimed_call) {
      Refill(1);
      CallInPlace(0);
    }
    Refill(calls);
    Time(calls, sample, [&](int i) { CallInPlace(i); });
  }

  onebitCompressor_t compressor() const { return state_.compressor.get(); }
  // Calls so far in the row's mode.
  uint64_t calls() const { return calls_; }

 private:
  template <class CallOnce>
  void Time(int calls, Sample* sample, const CallOnce& call) {
    state_.Await();  // includes earlier work on the stream
    state_.link->Barrier();
    const SentTotal before = state_.link->Sent();
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < calls; ++i) call(i);
    state_.Await();
    sample->seconds += SecondsSince(start);
    const SentTotal after = state_.link->Sent();
    sample->calls += static_cast<uint64_t>(calls);
    sample->bytes_sent += after.bytes - before.bytes;
    sample->messages_sent += after.messages - before.messages;
    sample->native_calls += after.native_calls - before.native_calls;
    sample->two_level_calls += after.two_level_calls - before.two_level_calls;
  }

  // Each call uses the next part of the buffers, so that small messages are not always in cache.
  size_t OffsetOf(int call) const { return static_cast<size_t>(call) % slots_ * stride_; }

  void CallOutOfPlace(onebitCompressor_t compressor, int i) {
    Call(state_.CallAt(OffsetOf(i), OffsetOf(i), compressor));
  }

  void CallInPlace(int i) {
    Call(state_.CallInPlaceAt(OffsetOf(i) + in_place_send_, OffsetOf(i) + in_place_recv_,
                              compressor()));
  }

  void Call(const RankCall& call) {
    if (call.compressor == state_.compressor.get()) ++calls_;
    Check(collective_.Run(row_, call), collective_.call());
    if (is_blocking_) state_.Await();
  }

  // Results replace the inputs of calls in place, and grow from call to call. Restores the inputs
  // for `calls` calls, and clears the residuals of grown ones.
  void Refill(int calls) {
    state_.Await();
    const size_t used = std::min(static_cast<size_t>(calls), slots_);
    for (size_t slot = 0; slot < used; ++slot) {
      state_.CopySendToRecv(slot * stride_, slot * stride_ + in_place_send_, send_bytes_);
    }
    collective_.Reset(state_);
  }

  const Collective& collective_;
  const Case& row_;
  const bool is_blocking_;
  RankState& state_;
  size_t send_bytes_ = 0;
  size_t in_place_send_ = 0;
  size_t in_place_recv_ = 0;
  size_t stride_ = 0;
  size_t slots_ = 1;
  uint64_t calls_ = 0;
};

// Makes all timed calls of one rank. The barrier before each burst keeps the ranks together.
RankSamples TimeRank(RankTimer& timer, const Case& row, const Options& options, CallPlan plan) {
  onebitCompressor_t compressor = timer.compressor();
  const bool has_dense = compressor != nullptr && options.is_dense_timed;
  const int rounds = has_dense ? 4 : 1;
  RankSamples samples;
  int calls_left = plan.calls;
  bool has_untimed_call = !plan.first.has_value();
  if (plan.first && plan.calls <= kFewestCalls) {
    samples.out_of_place = *plan.first;
    --calls_left;
  }
  bool is_first = true;
  for (int calls : BurstLengths(calls_left, rounds, INT_MAX)) {
    timer.OutOfPlace(compressor, calls, is_first && has_untimed_call, &samples.out_of_place);
    if (has_dense) timer.OutOfPlace(nullptr, calls, is_first, &samples.dense);
    is_first = false;
  }
  if (options.is_in_place_timed) {
    is_first = true;
    const int longest = LongestInPlaceBurst(row.type, row.op, row.ranks);
    for (int calls : BurstLengths(plan.calls, 1, longest)) {
      timer.InPlace(calls, is_first, &samples.in_place);
      is_first = false;
    }
  }
  samples.calls = timer.calls() + (plan.first ? 1 : 0);
  return samples;
}

// Makes a first call to see how many fit in the time. The slowest rank decides for all.
std::vector<CallPlan> PlanCalls(const Collective& collective, const Case& row,
                                const Options& options, Ranks& ranks) {
  CallPlan plan;
  plan.calls = options.iterations;
  std::vector<CallPlan> plans(static_cast<size_t>(ranks.count()), plan);
  if (!options.row_seconds) return plans;
  const std::vector<Sample> firsts = ranks.GatherFromAll([&](int rank) {
    Sample first;
    RankTimer timer(collective, row, options, ranks, rank);
    timer.OutOfPlace(timer.compressor(), 1, false, &first);
    return first;
  });
  double slowest = 0;
  for (const Sample& first : firsts) slowest = std::max(slowest, first.seconds);
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    plans[rank].calls = CallsThatFit(*options.row_seconds, slowest, options.iterations);
    plans[rank].first = firsts[rank];
  }
  return plans;
}

}  // namespace

RowTimes TimeRow(const Collective& collective, const Case& row, const Options& options,
                 Ranks& ranks) {
  const std::vector<CallPlan> plans = PlanCalls(collective, row, options, ranks);
  const std::vector<RankSamples> samples = ranks.GatherFromAll([&](int rank) {
    RankTimer timer(collective, row, options, ranks, rank);
    return TimeRank(timer, row, options, plans[static_cast<size_t>(rank)]);
  });

  RowTimes times;
  times.calls = plans.front().calls;
  times.untimed_calls = static_cast<int64_t>(samples.front().calls) - times.calls;
  const bool has_dense = samples.front().dense.calls > 0;
  const auto seconds_of = [&](Sample RankSamples::*path) {
    std::vector<double> seconds;
    for (const RankSamples& rank : samples) seconds.push_back((rank.*path).seconds_per_call());
    return SecondsOver(seconds, options.rank_time);
  };
  times.out_of_place_seconds = seconds_of(&RankSamples::out_of_place);
  if (options.is_in_place_timed) times.in_place_seconds = seconds_of(&RankSamples::in_place);
  if (has_dense) {
    times.dense_seconds = seconds_of(&RankSamples::dense);
  } else if (!options.is_compressed()) {
    times.dense_seconds = times.out_of_place_seconds;
  }
  for (const RankSamples& rank : samples) {
    const Sample& sample = rank.out_of_place;
    times.wire_bytes = std::max(times.wire_bytes, sample.bytes_sent / sample.calls);
    times.is_native |= sample.native_calls != 0;
    times.has_two_levels |= sample.two_level_calls != 0;
    times.messages = std::max(times.messages, sample.messages_sent / sample.calls);
  }
  return times;
}

}  // namespace onebit::perf
