// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A test double of a GPU: runs the code that nvcc compiles with a fiber for each lane of each warp.
//
// The lanes of a warp run one after the other, in random order, from one collective operation
// (shuffle, ballot, __syncwarp) to the next, where all 32 must arrive: the same operation, and no
// lane may have ended. Warps take turns at random, also at atomic operations and fences.
//
// Files that contain kernels are compiled with the compiler's instrumentation of memory accesses
// (CMakeLists.txt). It reports each access, so that two conditions are checked whatever the order
// was: accesses are aligned, and unless both are atomic no two accesses to a byte, one of them a
// write, come from different warps, or from lanes of a warp without __syncwarp between them.
//
// Such a file includes this header before those of the kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>

#define ONEBIT_CUDA_LANES

namespace onebit::kernels::cuda {

// Runs `lane` once for every lane of `ctas` CTAs. Throws std::runtime_error, with the first rule
// that was broken, the warp and the lane. `seed` determines every order. Accesses to `constants`,
// the parameters of the launch, are not checked. For one thread at a time.
void RunInLockStep(unsigned ctas, uint32_t seed, std::span<const std::byte> constants,
                   const std::function<void()>& lane);

// The names below are CUDA's.
struct LaunchIndex {
  unsigned x;
};
extern LaunchIndex threadIdx, blockIdx, blockDim, gridDim;

struct alignas(8) uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }

template <class T>
T __ldcs(const T* at) {
  return *at;
}
template <class T>
void __stcs(T* at, const T& value) {
  *at = value;
}

enum class Collective : uint32_t { kShuffle, kShuffleDown, kBallot, kSync };

// Waits for the other lanes. `operand` is the lane to read from, or the distance to it. Returns
// what the operation gives this lane.
uint64_t MeetLanes(Collective collective, unsigned mask, unsigned operand, uint64_t value);

template <class T>
T MeetLanes(Collective collective, unsigned mask, T value, unsigned operand) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t word = 0;
  memcpy(&word, &value, sizeof(T));
  word = MeetLanes(collective, mask, operand, word);
  memcpy(&value, &word, sizeof(T));
  return value;
}

template <class T>
T __shfl_sync(unsigned mask, T value, unsigned lane) {
  return MeetLanes(Collective::kShuffle, mask, value, lane);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta) {
  return MeetLanes(Collective::kShuffleDown, mask, value, delta);
}
inline unsigned __ballot_sync(unsigned mask, bool value) {
  return static_cast<unsigned>(MeetLanes(Collective::kBallot, mask, 0u, uint64_t{value}));
}
inline void __syncwarp(unsigned mask) { MeetLanes(Collective::kSync, mask, 0u, uint64_t{0}); }

void __threadfence();
void __threadfence_system();
uint32_t atomicOr(uint32_t* word, uint32_t bits);
uint32_t atomicAdd(uint32_t* word, uint32_t value);
unsigned long long atomicAdd(unsigned long long* word, unsigned long long value);
uint32_t atomicCAS(uint32_t* word, uint32_t expected, uint32_t desired);

}  // namespace onebit::kernels::cuda
