// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/wait_records.h"

#include <utility>

namespace onebit {

std::optional<Failure> WaitRecords::Add(uint32_t rank, Waits waits) {
  if (waits.what.empty()) {
    waits_[rank].reset();
    return std::nullopt;
  }
  const Waits& mine = waits_[rank].emplace(std::move(waits));
  for (uint32_t other = 0; other < waits_.size(); ++other) {
    const std::optional<Waits>& theirs = waits_[other];
    if (!theirs || theirs->is_gather == mine.is_gather || theirs->gathers != mine.gathers) continue;
    const Waits& gather = mine.is_gather ? mine : *theirs;
    const Waits& data = mine.is_gather ? *theirs : mine;
    if (data.calls < gather.calls) continue;  // a rank that is late
    return Failure{
        .rank = static_cast<int>(rank),
        .is_of_group = true,
        .cause = Error(Code::kMismatch,
                       "the ranks' calls differ: rank {} is {}, rank {} in {}; both are "
                       "collective: all ranks must make the same calls in the same order",
                       mine.is_gather ? rank : other, gather.what, mine.is_gather ? other : rank,
                       data.what)};
  }
  return std::nullopt;
}

}  // namespace onebit
