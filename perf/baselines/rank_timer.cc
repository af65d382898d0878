// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// An untimed call, a barrier, then calls without a pause; out of place, then in place.
#include "perf/baselines/rank_timer.h"

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstring>

#include "perf/common/bursts.h"

namespace onebit::perf {
namespace {

using Clock = std::chrono::steady_clock;

struct Sample {
  double seconds = 0;
  int calls = 0;
};

// The calls of this rank.
class RankTimer {
 public:
  RankTimer(System& system, size_t count, std::span<const float> send, std::span<float> recv)
      : system_(system), count_(count), send_(send), recv_(recv) {
    slots_ = count == 0 ? 1 : std::max<size_t>(1, send.size() / count);
  }

  void OutOfPlace(int calls, bool has_untimed_call, Sample* sample) {
    if (has_untimed_call) CallOutOfPlace(0);
    Time(calls, sample, [this](int i) { CallOutOfPlace(i); });
  }

  void InPlace(int calls, bool has_untimed_call, Sample* sample) {
    if (has_untimed_call) {
      Refill(1);
      CallInPlace(0);
    }
    Refill(calls);
    Time(calls, sample, [this](int i) { CallInPlace(i); });
  }

  int64_t calls() const { return calls_; }

 private:
  template <class CallOnce>
  void Time(int calls, Sample* sample, const CallOnce& call) {
    system_.Barrier();
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < calls; ++i) call(i);
    sample->seconds += std::chrono::duration<double>(Clock::now() - start).count();
    sample->calls += calls;
  }

  // Each call uses the next part of the buffers, so that small messages are not always in cache.
  size_t OffsetOf(int call) const { return static_cast<size_t>(call) % slots_ * count_; }

  void CallOutOfPlace(int i) { Call(send_.data() + OffsetOf(i), recv_.data() + OffsetOf(i)); }
  void CallInPlace(int i) { Call(recv_.data() + OffsetOf(i), recv_.data() + OffsetOf(i)); }

  void Call(const float* send, float* recv) {
    ++calls_;
    system_.AllReduce(send, recv, count_);
  }

  // Fresh inputs for `calls` calls in place, which make numbers grow, and no memory of grown ones.
  void Refill(int calls) {
    const size_t used = std::min(static_cast<size_t>(calls), slots_);
    if (count_ > 0) std::memcpy(recv_.data(), send_.data(), used * count_ * sizeof(float));
    system_.Prepare(count_);
  }

  System& system_;
  const size_t count_;
  const std::span<const float> send_;
  const std::span<float> recv_;
  size_t slots_ = 1;
  int64_t calls_ = 0;
};

double Mean(System& system, const Sample& sample) {
  double sum = 0;
  for (const double seconds : system.Gather(sample.seconds / sample.calls)) sum += seconds;
  return sum / system.ranks();
}

}  // namespace

RowTimes TimeRow(System& system, size_t count, const SweepFlags& flags, std::span<const float> send,
                 std::span<float> recv) {
  RankTimer timer(system, count, send, recv);
  RowTimes times;
  times.calls = flags.iterations;
  Sample out_of_place;
  if (!flags.row_seconds) {
    timer.OutOfPlace(times.calls, true, &out_of_place);
  } else {
    // A first call shows how many there is time for; the slowest rank decides for all. Where calls
    // are slow the first is a sample like the others.
    Sample first;
    timer.OutOfPlace(1, false, &first);
    const std::vector<double> seconds = system.Gather(first.seconds);
    times.calls = CallsThatFit(*flags.row_seconds,
                               *std::max_element(seconds.begin(), seconds.end()), flags.iterations);
    const bool is_first_counted = times.calls <= kFewestCalls;
    if (is_first_counted) out_of_place = first;
    const int calls_left = times.calls - (is_first_counted ? 1 : 0);
    if (calls_left > 0) timer.OutOfPlace(calls_left, false, &out_of_place);
  }
  times.out_of_place_seconds = Mean(system, out_of_place);

  if (flags.is_in_place_timed) {
    Sample in_place;
    const int longest = LongestInPlaceBurst(onebitFloat32, onebitSum, system.ranks());
    bool is_first = true;
    for (int calls : BurstLengths(times.calls, 1, longest)) {
      timer.InPlace(calls, is_first, &in_place);
      is_first = false;
    }
    times.in_place_seconds = Mean(system, in_place);
  }
  times.untimed_calls = timer.calls() - times.calls;
  return times;
}

}  // namespace onebit::perf
