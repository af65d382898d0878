// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Launches CUDA kernels in tests: on the host, or on a device with copies of host memory. Tests are
// written once; the file that they are linked with decides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <vector>

#include "kernels/cuda/kernel_table.h"
#include "kernels/cuda/params.h"

namespace onebit::kernels::cuda {

// Changes from call to call, in the same way in every run of a test.
inline uint32_t NextChoice() {
  static std::mt19937 choices{17};
  return choices();
}

// Runs a launch to its end; all pointers in `params` are host memory. Throws if it cannot.
// cuda_launch_host.cc: as host code, each time with another number of CTAs.
// cuda_launch_device.cc: on a device, on copies of the memory that the kernel may read and write.
void RunKernel(Kernel kernel, const void* params);

// Returns how often a test repeats itself with other random pieces.
int Repetitions(int most);

// Runs the kernel for the same list in memory, if there is one.
inline void RunLong(const SealParams& p) {
  const SealParamsOf<kInMemory> with_list = {.list = {p.list.count, p.list.calls}};
  RunKernel(Kernel::kSealLong, &with_list);
}
inline void RunLong(const CheckParams& p) {
  const CheckParamsOf<kInMemory> with_list = {.failure = p.failure,
                                              .list = {p.list.count, p.list.calls}};
  RunKernel(Kernel::kCheckLong, &with_list);
}
inline void RunLong(const FillParams& p) {
  const FillParamsOf<kInMemory> with_list = {.count = p.count, .spans = p.spans};
  RunKernel(Kernel::kFillIfLong, &with_list);
}
inline void RunLong(const CommitParams& p) {
  const CommitParamsOf<kInMemory> with_list = {
      .halted = p.halted, .nonfinite_calls = p.nonfinite_calls, .count = p.count, .calls = p.calls};
  RunKernel(Kernel::kCommitLong, &with_list);
}

// A kernel for lists sometimes runs as the one for lists in memory, or as the one for short lists,
// if there are such. The parameters of the latter are a part of its own: they are in memory of
// their own, so that a tool sees it if the kernel reads more.
template <class Params>
void Launch(Kernel kernel, const Params& params) {
  if constexpr (requires { RunLong(params); }) {
    if (NextChoice() % 3 == 0) return RunLong(params);
  }
  const auto bytes_of = [](Kernel of) { return kKernels[static_cast<size_t>(of)].param_bytes; };
  if (bytes_of(kernel) != sizeof(Params)) throw std::logic_error("not its type");
  const Kernel shortest = ShortestFor(kernel, &params);
  if (shortest == kernel || NextChoice() % 2 == 0) return RunKernel(kernel, &params);
  const auto* const first = reinterpret_cast<const std::byte*>(&params);
  const std::vector<std::byte> part(first, first + bytes_of(shortest));
  RunKernel(shortest, part.data());
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
