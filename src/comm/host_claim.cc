// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/host_claim.h"

#include <vector>

#include "base/format.h"

namespace onebit {

Result<HostMap> MapHosts(std::span<const HostClaim> claims_by_rank, uint64_t host_ranks) {
  const bool has_words = !claims_by_rank.front().word.empty();
  const auto quoted = [](const std::string& word) {
    return word.empty() ? "none" : Format("\"{}\"", word);
  };
  std::vector<std::string> names;
  for (size_t rank = 0; rank < claims_by_rank.size(); ++rank) {
    const HostClaim& claim = claims_by_rank[rank];
    if (claim.word.empty() == has_words) {
      return Error(Code::kMismatch,
                   "ONEBIT_HOST differs between ranks: rank 0 has {}, rank {} has {}; set it on "
                   "all ranks, to the same word on those of one host, or on none",
                   quoted(claims_by_rank.front().word), rank, quoted(claim.word));
    }
    names.push_back(has_words         ? claim.word
                    : host_ranks != 0 ? Format("{}", rank / host_ranks)
                                      : claim.machine);
  }
  return HostMap(names);
}

}  // namespace onebit
