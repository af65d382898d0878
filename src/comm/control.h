// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The control channel of a communicator: how ranks learn of each other's failures, independent of
// the transport that moves data.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "comm/byte_stream.h"
#include "comm/record_ring.h"
#include "comm/socket.h"

namespace onebit {

// Limits a rank's contribution to a gather, and the text of an error.
inline constexpr size_t kMaxContentBytes = 8192;

// For texts.
inline double SecondsOf(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// Learns that another rank failed, or that the ranks' calls differ. Called by the failing rank's
// thread, one that sends calls, or the control thread; returns at once and calls nothing of
// Control.
class FailureListener {
 public:
  virtual void OnRemoteFailure() = 0;

 protected:
  ~FailureListener() = default;
};

// Returns true once a wait has been cancelled. Empty if nobody can cancel it.
using StopCheck = std::function<bool()>;

// Waits until `is_settled` or the deadline. False if `stop` ended the wait; it is checked often
// enough for a person not to notice the delay.
template <typename IsSettled>
bool WaitUnlessStopped(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                       Deadline deadline, const StopCheck& stop, IsSettled is_settled) {
  constexpr std::chrono::milliseconds kSlice{100};
  while (!is_settled()) {
    if (stop && stop()) return false;
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) return true;
    changed.wait_until(lock, stop ? std::min(deadline, now + kSlice) : deadline);
  }
  return true;
}

// A wait so long is worth a message. Ranks that wait for each other in different calls learn of it
// after this time.
inline constexpr std::chrono::milliseconds kPatience{300};

// The error of a wait that was cancelled.
Status Cancelled(int rank, std::string_view what);

// A peer is lost after a silence of the loss time-out. If its connection is lossy, twice that: TCP
// doubles the pauses between its attempts, so after an outage the first byte comes up to as long
// again as the outage lasted. This end cannot see the attempts of the other one, but makes its own
// at the same time.
constexpr std::chrono::milliseconds LongestSilence(std::chrono::milliseconds loss_timeout,
                                                   bool is_lossy) {
  return is_lossy ? 2 * loss_timeout : loss_timeout;
}
// Why such a peer is lost.
std::string SilenceText(std::chrono::steady_clock::duration silence, bool is_lossy);

struct Failure {
  int rank = 0;          // who saw it first; for a loss, the lost rank
  bool is_loss = false;  // not reported by the rank: its process has ended or is silent
  // The group's as a whole: found by who compares call records, `rank` having sent its record last,
  // or by who lets the ranks in; not reported by a rank.
  bool is_of_group = false;
  Status cause;
};

// Why a call that needs a rank fails which has left without an error.
Status HasLeft(int rank);

// The group's failure as the user of `rank` reads it: which rank failed first, and why.
Status DescribeFailure(const Failure& failure, int rank);

// The call in which a rank waits for others.
struct Waits {
  bool is_gather = false;  // a collective of the control channel; otherwise one that moves data
  uint64_t gathers = 0;    // collectives of the control channel before it
  uint64_t calls = 0;      // collectives that move data before it
  std::string what;        // empty: nothing is waited for
};

// One rank's end of the channel. Thread-safe. All ranks see the group's first failure, and no
// other.
class Control {
 public:
  virtual ~Control() = default;
  // Sets the check that cancels this rank's gathers. For the thread that gathers.
  void SetStop(StopCheck stop) { stop_ = std::move(stop); }
  // All ranks have joined: from now on texts use their numbers in this communicator.
  virtual void EndJoining() { SetStop({}); }
  // Reports to the group that this rank failed, or that it lost another one. Only the group's first
  // report counts, and is returned; `failure` itself if the group does not answer in time.
  virtual Failure Report(const Failure& failure) = 0;
  virtual std::optional<Failure> first_failure() const = 0;
  // The ranks whose loss the group has learned of, in ascending order: that of the first failure,
  // and others since then.
  virtual std::vector<int> lost_ranks() const = 0;

  // Must precede PostCall. Calls that are compared in their own messages need no records.
  virtual void RecordCalls() { calls_ = std::make_unique<RecordRing>(); }
  // Records a call of this rank, in the order of sequence numbers, for comparison with those of the
  // other ranks. Neither waits nor allocates; one thread at a time. If ranks are thousands of calls
  // apart, or the group does not answer, calls are dropped: false for the first one.
  [[nodiscard]] bool PostCall(const CallDescriptor& call) { return calls_->Post(call); }
  // Sends what was posted to whoever compares it, without waiting. A call that differs from that of
  // another rank is the group's failure; every rank's listener learns of it, this one's possibly
  // before SendCalls returns. Ranks that are late, or post nothing, are no failure.
  virtual void SendCalls() = 0;

  // Reports to the group in which call this rank waits; `gathers` is filled in here. If another
  // rank waits in a call that no rank in the order of this one would have made, that is the group's
  // failure. The control channel and the transport have no message in common that would show it.
  virtual void ReportWait(Waits waits) = 0;
  // Withdraws what ReportWait has reported. From now on this rank reports nothing.
  virtual void WithdrawWait() = 0;
  // Collectives that move data so far, for texts and comparison. For the thread that gathers.
  void SetCallsMade(uint64_t calls) { calls_made_ = calls; }

  // Collects the contents of all ranks, by rank; at most kMaxContentBytes each. Collective, one
  // thread at a time; no gather may follow an error. Fails with kTimeout, whose text names the
  // missing ranks, or with the group's first failure. `what` names the gather in texts.
  virtual Result<std::vector<Bytes>> Gather(std::span<const std::byte> mine, Deadline deadline,
                                            std::string_view what) = 0;

 protected:
  StopCheck stop_;
  uint64_t calls_made_ = 0;
  bool has_withdrawn_ = false;
  std::unique_ptr<RecordRing> calls_;  // null before RecordCalls
};

}  // namespace onebit
