// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Ranks that a supervisor watches and ends together: children of this process, or processes of
// another host.
#pragma once

#include <poll.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace onebit::perf {

struct RankEnd {
  enum class Kind { kStatus, kSignal, kLost };

  int rank = 0;
  std::string process;  // "pid 7", "pid 7 on b"
  Kind kind = Kind::kStatus;
  int number = 0;    // the exit status, or the signal that killed it
  std::string loss;  // why nothing is known about it any more

  bool is_failure() const { return kind != Kind::kStatus || number != 0; }
};

class RankSet {
 public:
  using Clock = std::chrono::steady_clock;

  RankSet() = default;
  // Kills and reaps the processes that are left.
  virtual ~RankSet() = default;
  RankSet(const RankSet&) = delete;
  RankSet& operator=(const RankSet&) = delete;

  // Handles what has happened and appends the ranks that have ended since the last call. To be
  // called after each SIGCHLD, event of AppendWaits, and deadline.
  virtual void Collect(std::vector<RankEnd>* ends) = 0;
  // False once all ranks have ended and all their output is here.
  virtual bool is_live() const = 0;
  // Appends the ranks that have not ended.
  virtual void AppendLive(std::vector<int>* ranks) const = 0;
  // Signals every rank that has not ended, and what it started.
  virtual void Signal(int signal) = 0;
  // Kills what the ranks have started and left behind. To be called when all have ended.
  virtual void KillLeftovers() {}
  virtual void AppendWaits(std::vector<pollfd>*) const {}
  virtual std::optional<Clock::time_point> deadline() const { return std::nullopt; }
};

}  // namespace onebit::perf
