// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Names of element types and ops, seeded input data, comparison of buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "kernels/types.h"
#include "onebit/onebit.h"

namespace onebit::perf {

// Names as in nccl-tests.
std::string_view TypeName(onebitDataType_t type);
std::string_view OpName(std::optional<onebitRedOp_t> op);  // "none"

size_t ElementBytes(onebitDataType_t type);
kernels::DataType KernelType(onebitDataType_t type);
kernels::DenseOp KernelOp(onebitRedOp_t op);
bool IsInteger(onebitDataType_t type);

// Exact, but for 64-bit integers above 2^53.
double ElementAt(const void* values, onebitDataType_t type, size_t i);

// The input of one rank: numbers of mean 0, standard deviation 1 and magnitude below 4, rounded to
// `type`; of onebitUint8 any, of the other integers some up to 2^17. They are a pure function of
// (seed, rank, index), so every process can compute those of all ranks.
class SeededInput {
 public:
  SeededInput(onebitDataType_t type, uint64_t seed, int rank);
  double At(size_t index) const;

 private:
  onebitDataType_t type_;
  uint64_t stream_;
};

// Writes the first `count` numbers of a SeededInput.
void FillSeeded(void* values, size_t count, onebitDataType_t type, uint64_t seed, int rank);

// The number of elements whose bytes differ, and the first of them.
struct Difference {
  uint64_t count = 0;
  size_t first = 0;
};
Difference CompareElements(const void* a, const void* b, size_t count, onebitDataType_t type);

}  // namespace onebit::perf
