// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/common/local_ranks.h"

#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include <fmt/format.h>

namespace onebit::perf {

LocalRanks::~LocalRanks() {
  KillLeftovers();
  for (const Child& child : children_) {
    while (waitpid(child.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

void LocalRanks::Collect(std::vector<RankEnd>* ends) {
  for (size_t i = 0; i < children_.size(); ++i) {
    Child& child = children_[i];
    if (child.has_ended) continue;
    siginfo_t info = {};
    if (waitid(P_PID, static_cast<id_t>(child.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0) {
      continue;
    }
    child.has_ended = true;
    RankEnd end = {.rank = first_rank_ + static_cast<int>(i),
                   .process = fmt::format("pid {}", child.pid),
                   .kind = RankEnd::Kind::kStatus,
                   .number = info.si_status,
                   .loss = {}};
    if (info.si_code != CLD_EXITED) {
      const bool is_expected = info.si_status == SIGKILL && child.may_be_killed;
      if (is_expected) {
        end.number = 0;
      } else {
        end.kind = RankEnd::Kind::kSignal;
      }
    }
    ends->push_back(std::move(end));
  }
}

bool LocalRanks::is_live() const {
  return std::any_of(children_.begin(), children_.end(),
                     [](const Child& child) { return !child.has_ended; });
}

void LocalRanks::AppendLive(std::vector<int>* ranks) const {
  for (size_t i = 0; i < children_.size(); ++i) {
    if (!children_[i].has_ended) ranks->push_back(first_rank_ + static_cast<int>(i));
  }
}

void LocalRanks::Signal(int signal) {
  for (const Child& child : children_) {
    if (!child.has_ended) kill(-child.pid, signal);
  }
}

void LocalRanks::KillLeftovers() {
  for (const Child& child : children_) kill(-child.pid, SIGKILL);
}

}  // namespace onebit::perf
