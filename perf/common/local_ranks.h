// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Ranks that are children of this process, each the leader of a process group.
#pragma once

#include <sys/types.h>

#include <vector>

#include "perf/common/rank_set.h"

namespace onebit::perf {

// Children that have ended stay unreaped until the destructor, so their process numbers, and those
// of their groups, cannot be reused.
class LocalRanks : public RankSet {
 public:
  explicit LocalRanks(int first_rank = 0) : first_rank_(first_rank) {}
  ~LocalRanks() override;

  // Adds the next rank. If it may be killed, its end by SIGKILL counts as success.
  void Add(pid_t child, bool may_be_killed = false) { children_.push_back({child, may_be_killed}); }

  void Collect(std::vector<RankEnd>* ends) override;
  bool is_live() const override;
  void AppendLive(std::vector<int>* ranks) const override;
  void Signal(int signal) override;
  void KillLeftovers() override;

 private:
  struct Child {
    pid_t pid = 0;
    bool may_be_killed = false;
    bool has_ended = false;
  };

  const int first_rank_;
  std::vector<Child> children_;  // by rank
};

}  // namespace onebit::perf
