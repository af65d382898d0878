// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// How far the optimizers of all ranks have come, and whose state the others take when they meet on
// a new communicator.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "onebit/onebit.h"

namespace onebit::optim {

// The progress of one rank.
struct RankProgress {
  // Steps, skips and syncs since creation or the last loaded checkpoint that changed the common
  // state of the ranks, and those of them that left residuals. A rank with fewer than another has
  // missed the last one.
  uint64_t commits = 0;
  uint64_t residual_commits = 0;
  uint64_t step = 0;
  uint64_t skipped_steps = 0;
  uint64_t freeze_rule = 0;
  bool is_torn = false;  // has no whole state

  // Commits, which ranks agreed on, are compared first: a rank may have made local steps since
  // then.
  bool IsBehind(const RankProgress& other) const;
};

// Collective over `comm`, where this is rank `rank`. Returns the progress of every rank.
Result<std::vector<RankProgress>> GatherProgress(onebitComm_t comm, int rank,
                                                 const RankProgress& mine);

// Returns the first of the newest ranks that have their whole state; every rank decides alike. An
// error if there is none, or if the ranks are not of one training. `rank` is for texts.
Result<int> ChooseSource(const std::vector<RankProgress>& progress, int rank);

}  // namespace onebit::optim
