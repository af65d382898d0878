// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The residuals that compression to low-bit and sparse packets writes.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"
#include "kernels/reference/elements.h"

namespace onebit::kernels::reference {

struct ResidualTarget {
  void* residual_out;  // or null
  DataType residual_type;
  DataType value_type;  // decoded values are rounded to it
  const uint8_t* mask;
  size_t count;
};

inline ResidualTarget WorkerTarget(const CompressInput& in) {
  return {in.residual_out, in.residual_type, in.scale_type, in.mask, in.count};
}

template <class ReduceInput>
ResidualTarget ServerTarget(const ReduceInput& in) {
  return {in.residual_out, in.residual_type, in.output_type, in.mask, in.count};
}

// Returns false if the residual is not finite once it is stored.
inline bool WriteResidual(const ResidualTarget& target, size_t i, float lost) {
  if (!TakesPart(target.mask, i)) lost = 0;
  StoreElement(lost, target.residual_type, i, target.residual_out);
  return std::isfinite(RoundTo(target.residual_type, lost));
}

}  // namespace onebit::kernels::reference
