// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Exchanges integers between ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "onebit/onebit.h"

namespace onebit::optim {

// The numbers of all ranks, equally many of each.
class RankNumbers {
 public:
  RankNumbers(std::vector<uint64_t> numbers, size_t numbers_per_rank)
      : numbers_(std::move(numbers)), numbers_per_rank_(numbers_per_rank) {}

  size_t ranks() const { return numbers_.size() / numbers_per_rank_; }
  uint64_t At(size_t rank, size_t i) const { return numbers_[rank * numbers_per_rank_ + i]; }

 private:
  std::vector<uint64_t> numbers_;
  size_t numbers_per_rank_;
};

// Collective over `comm`, where this is rank `rank`. `mine` has the same size on every rank, at
// least one.
Result<RankNumbers> GatherNumbers(onebitComm_t comm, int rank, std::span<const uint64_t> mine);

}  // namespace onebit::optim
