// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/gather_numbers.h"

#include <algorithm>

#include "api/optimizer_calls.h"
#include "optim/api_status.h"

namespace onebit::optim {

Result<RankNumbers> GatherNumbers(onebitComm_t comm, int rank, std::span<const uint64_t> mine) {
  int ranks = 0;
  ONEBIT_TRY(FromApi(onebitCommCount(comm, &ranks)));
  std::vector<uint64_t> all(static_cast<size_t>(ranks) * mine.size());
  std::copy(mine.begin(), mine.end(),
            all.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(rank) * mine.size()));
  // All other ranks add zeros to a rank's numbers.
  ONEBIT_TRY(FromApi(OwnAllReduce(all.data(), all.size(), onebitInt64, onebitSum, comm, nullptr)));
  return RankNumbers(std::move(all), mine.size());
}

}  // namespace onebit::optim
