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
#include "comm/call_record_ring.h"
#include "comm/socket.h"

namespace onebit {

// What a rank gives to a gather, and the text of an error, may be this long.
inline constexpr size_t kMaxContentBytes = 8192;

// A rank's way to hear that another one failed, or that their calls differ. Called from the failing
// rank's thread, one that tells of calls, or that of the control channel; returns at once and calls
// nothing of Control.
class FailureListener {
 public:
  virtual void OnRemoteFailure() = 0;

 protected:
  ~FailureListener() = default;
};

// Whether somebody has called off what is being waited for. Empty: nobody can.
using StopCheck = std::function<bool()>;

// Waits until `is_settled` or the deadline; false if neither it nor the deadline but `stop` ended
// the wait, which is asked often enough for a person.
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

// What a wait that was called off returns.
Status CalledOff(int rank, std::string_view what);

struct Failure {
  int rank = 0;          // who saw it first; of a loss, who is gone
  bool is_loss = false;  // the rank did not say so itself: its process has ended or is silent
  // No rank said so: it shows when what they told of their calls is compared. `rank` told last.
  bool is_verdict = false;
  Status cause;
};

// The group's failure as `rank` tells it to its user: which rank failed first, and of what.
Status DescribeFailure(const Failure& failure, int rank);

// One rank's end. Thread-safe. The first failure of the group is the one that everybody sees.
class Control {
 public:
  virtual ~Control() = default;
  // Who may call off this rank's gathers; for the thread that gathers.
  void SetStop(StopCheck stop) { stop_ = std::move(stop); }
  // All have come: from now on ranks are known by the numbers they have here.
  virtual void EndJoining() { SetStop({}); }
  // Tells the group that this rank failed, or that it sees the loss of another. Only the first
  // report of the group counts: returns that of the group, or this one if the group cannot be heard
  // in time.
  virtual Failure Report(const Failure& failure) = 0;
  virtual std::optional<Failure> first_failure() const = 0;

  // Must precede PostCall. Calls that are compared in their own messages need no records.
  virtual void RecordCalls() { calls_ = std::make_unique<CallRecordRing>(); }
  // Records a call of this rank, in the order of sequence numbers, for comparison with those of the
  // other ranks. Neither waits nor allocates; one thread at a time. If ranks are thousands of calls
  // apart, or the group does not answer, calls are dropped: false for the first one.
  [[nodiscard]] bool PostCall(const CallDescriptor& call) { return calls_->Post(call); }
  // Sends what was posted to whoever compares it, without waiting. A call that differs from that of
  // another rank is the group's failure; every rank's listener learns of it, this one's possibly
  // before SendCalls returns. Ranks that are late, or post nothing, are no failure.
  virtual void SendCalls() = 0;

  // What every rank has to say, by rank; at most kMaxContentBytes each. Collective, one thread at a
  // time; after an error there is no other gather. kTimeout, whose text names who is missing; or
  // the group's first failure as this rank sees it. `what` is for texts.
  virtual Result<std::vector<Bytes>> Gather(std::span<const std::byte> mine, Deadline deadline,
                                            std::string_view what) = 0;

 protected:
  StopCheck stop_;
  std::unique_ptr<CallRecordRing> calls_;  // null before RecordCalls
};

}  // namespace onebit
