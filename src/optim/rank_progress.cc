// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/rank_progress.h"

#include <array>
#include <tuple>

#include "optim/gather_numbers.h"

namespace onebit::optim {

bool RankProgress::IsBehind(const RankProgress& other) const {
  return std::tie(commits, step) < std::tie(other.commits, other.step);
}

Result<std::vector<RankProgress>> GatherProgress(onebitComm_t comm, int rank,
                                                 const RankProgress& mine) {
  const std::array<uint64_t, 6> numbers = {mine.commits,          mine.step,
                                           mine.residual_commits, mine.skipped_steps,
                                           mine.freeze_rule,      mine.is_torn};
  ONEBIT_ASSIGN_OR_RETURN(const RankNumbers all, GatherNumbers(comm, rank, numbers));
  std::vector<RankProgress> progress;
  for (size_t r = 0; r < all.ranks(); ++r) {
    progress.push_back({.commits = all.At(r, 0),
                        .residual_commits = all.At(r, 2),
                        .step = all.At(r, 1),
                        .skipped_steps = all.At(r, 3),
                        .freeze_rule = all.At(r, 4),
                        .is_torn = all.At(r, 5) != 0});
  }
  return progress;
}

Result<int> ChooseSource(const std::vector<RankProgress>& progress, int rank) {
  const RankProgress* newest = nullptr;
  for (const RankProgress& other : progress) {
    if (!other.is_torn && (newest == nullptr || newest->IsBehind(other))) newest = &other;
  }
  if (newest == nullptr) {
    return Error(Code::kRemoteError,
                 "rank {}: the rank with the newest parameters was lost while the others were "
                 "copying them: load a checkpoint",
                 rank);
  }
  const auto source = static_cast<int>(newest - progress.data());
  for (size_t r = 0; r < progress.size(); ++r) {
    const RankProgress& other = progress[r];
    if (other.freeze_rule != newest->freeze_rule) {
      return Error(Code::kMismatch,
                   "rank {}: onebitOptimizerRewarm was called on only one of ranks {} and {}: call "
                   "it on all ranks, then repeat this call",
                   rank, source, r);
    }
    if (other.commits <= newest->commits && newest->commits - other.commits <= 1) continue;
    return Error(Code::kMismatch,
                 "rank {}: the optimizer of rank {} is at step {}, that of rank {} at {}: they do "
                 "not belong to the same training run",
                 rank, source, newest->step, r, other.step);
  }
  return source;
}

}  // namespace onebit::optim
