// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Launches of CUDA kernels on the host, each with another number of CTAs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <stdexcept>

#include "kernels/cuda/host.h"
#include "kernels/cuda/params.h"

namespace onebit::kernels::cuda {

// Changes from call to call, the same in every run of a test.
inline uint32_t NextChoice() {
  static std::mt19937 choices{17};
  return choices();
}

template <class Params>
void Launch(Kernel kernel, const Params& params) {
  const auto index = static_cast<size_t>(kernel);
  if (kKernels[index].param_bytes != sizeof(Params)) throw std::logic_error("not its type");
  constexpr unsigned kCtas[] = {1, 2, 3, 7, 40};
  RunOnHost(kernel, &params, kCtas[NextChoice() % 5]);
}

inline PieceList OnePiece(size_t count, size_t tile_elements, float* scales, uint8_t* bits) {
  PieceList list;
  list.count = 1;
  list.tiles = static_cast<uint32_t>(BlockCount(count, tile_elements));
  list.pieces[0].count = count;
  list.pieces[0].scales = scales;
  list.pieces[0].bits = bits;
  return list;
}

}  // namespace onebit::kernels::cuda
