// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/gather_numbers.h"

#include "api/optimizer_calls.h"
#include "optim/api_status.h"

namespace onebit::optim {
namespace {

// Represents a number as floats whose sum is exact when all other ranks contribute zeros.
constexpr size_t kDigits = 4;
constexpr unsigned kDigitBits = 16;

void WriteNumber(uint64_t number, float* digits) {
  for (size_t i = 0; i < kDigits; ++i) {
    digits[i] = static_cast<float>(number >> (i * kDigitBits) & 0xffff);
  }
}

uint64_t ReadNumber(const float* digits) {
  uint64_t number = 0;
  for (size_t i = 0; i < kDigits; ++i) {
    number |= static_cast<uint64_t>(digits[i]) << (i * kDigitBits);
  }
  return number;
}

}  // namespace

Result<RankNumbers> GatherNumbers(onebitComm_t comm, int rank, std::span<const uint64_t> mine) {
  int ranks = 0;
  ONEBIT_TRY(FromApi(onebitCommCount(comm, &ranks)));
  const size_t width = mine.size() * kDigits;
  std::vector<float> all(static_cast<size_t>(ranks) * width, 0.0f);
  float* own = &all[static_cast<size_t>(rank) * width];
  for (size_t i = 0; i < mine.size(); ++i) WriteNumber(mine[i], own + i * kDigits);
  ONEBIT_TRY(
      FromApi(OwnAllReduce(all.data(), all.size(), onebitFloat32, onebitSum, comm, nullptr)));
  std::vector<uint64_t> numbers;
  for (size_t at = 0; at < all.size(); at += kDigits) numbers.push_back(ReadNumber(&all[at]));
  return RankNumbers(std::move(numbers), mine.size());
}

}  // namespace onebit::optim
