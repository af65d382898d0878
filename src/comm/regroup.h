// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// New communicators from the ranks of one.
#pragma once

#include <memory>
#include <span>

#include "base/status.h"
#include "comm/comm.h"

namespace onebit {

// Makes one communicator from `comm`, which the calling thread has acquired. Ranks that are threads
// find each other in the group they share, processes at a MeetingPoint. Split needs a healthy
// communicator; Shrink does not.
class Regroup {
 public:
  static constexpr int kNoColor = -1;

  // The new one uses the time-outs and the options of collectives from `options`; null: those of
  // `comm`. Both outlive this object.
  Regroup(Comm& comm, const JoinOptions* options) : comm_(comm), options_(options) {}

  // Collective on the communicator. Ranks of equal color, 0 or more, become one communicator,
  // ordered by key and then by rank; null for kNoColor.
  Result<std::unique_ptr<Comm>> Split(int color, int key);
  // Called by the ranks that are not excluded, or, if none is, makes a communicator of those that
  // come. Keeps their order.
  Result<std::unique_ptr<Comm>> Shrink(std::span<const int> excluded);

 private:
  const CommOptions& options() const {
    return options_ == nullptr ? comm_.options() : options_->comm;
  }
  // Options for a communicator of ranks of this one, which stay on their hosts.
  CommOptions OptionsOnThisHost() const;
  StopCheck StopOfThisCall() const;
  // Make a communicator of these ranks, in the order of their new ranks. Processes: if there are
  // none, of those that come.
  Result<std::unique_ptr<Comm>> JoinMembers(std::span<const int> members);
  Result<std::unique_ptr<Comm>> JoinProcesses(std::span<const int> members);
  // Joins those who have met.
  Result<std::unique_ptr<Comm>> JoinAgreed(const MeetingPoint::Agreement& agreement) const;
  Result<std::unique_ptr<Comm>> JoinThreads(std::span<const int> members) const;
  Result<std::unique_ptr<Comm>> JoinAlone() const;
  // Connects the threads of a new communicator.
  static Status Connect(Comm* comm);

  Comm& comm_;
  const JoinOptions* const options_;
};

}  // namespace onebit
