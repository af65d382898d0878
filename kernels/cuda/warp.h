// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A warp, so that a kernel is written once: on a device its 32 lanes are threads, on the host
// iterations of a loop. ONEBIT_CUDA_LANES selects the former: for nvcc, and for a test that defines
// it and supplies CUDA's built-in functions (tests/kernels/lock_step.h).
//
// A kernel is a function of a Warp. Code that differs between lanes is inside ForEachLane;
// everything else, especially control flow, is the same for all lanes. Warps interact only by
// atomic operations, and need no block-wide barrier.
#pragma once

#include <cstddef>
#include <cstdint>
#if defined(__CUDACC__)
#define ONEBIT_CUDA_LANES
#else
#include <bit>
#endif
#if !defined(ONEBIT_CUDA_LANES)
#include <atomic>
#endif

#include "kernels/cuda/kernel_table.h"

#if defined(__CUDACC__)
#define ONEBIT_KERNEL __device__ __forceinline__
// Follows the parameters of a lambda. Without it, a lambda that is large or used several times
// would be a call, with its captures in memory.
#define ONEBIT_INLINE __attribute__((always_inline))
#define ONEBIT_UNROLL _Pragma("unroll")
#else
#define ONEBIT_KERNEL inline
#define ONEBIT_INLINE
#define ONEBIT_UNROLL
#endif

namespace onebit::kernels::cuda {

inline constexpr unsigned kLanes = 32;

#if defined(ONEBIT_CUDA_LANES)

// One value per lane.
template <class T>
class Lanes {
 public:
  ONEBIT_KERNEL T& operator[](unsigned) { return value_; }
  ONEBIT_KERNEL const T& operator[](unsigned) const { return value_; }

 private:
  T value_{};
};

class Warp {
 public:
  // The warp of the running thread. Neighbours in the numbering are in different CTAs, so that a
  // launch with few tiles uses as many multiprocessors as it has tiles.
  ONEBIT_KERNEL Warp()
      : lane_(threadIdx.x % kLanes),
        // A shuffle tells the compiler that all lanes have the same value.
        index_(__shfl_sync(kAll, threadIdx.x / kLanes * gridDim.x + blockIdx.x, 0)),
        count_(gridDim.x * (blockDim.x / kLanes)) {}

  // Index of this warp in the launch, and the number of all warps.
  ONEBIT_KERNEL unsigned index() const { return index_; }
  ONEBIT_KERNEL unsigned count() const { return count_; }

  template <class Body>
  ONEBIT_KERNEL void ForEachLane(const Body& body) const {
    body(lane_);
  }

  // Orders memory accesses before it and after it, also for the compiler.
  ONEBIT_KERNEL void Sync() const { __syncwarp(kAll); }

  // Runs `body` on one lane.
  template <class Body>
  ONEBIT_KERNEL void Once(const Body& body) const {
    if (lane_ == 0) body();
  }

  // Runs `body` on one lane, once the whole system can see the writes of all lanes.
  template <class Body>
  ONEBIT_KERNEL void Publish(const Body& body) const {
    __threadfence_system();
    __syncwarp(kAll);
    if (lane_ == 0) {
      __threadfence_system();
      body();
    }
  }

  // Bit `lane` is the value of that lane.
  ONEBIT_KERNEL uint32_t Ballot(const Lanes<bool>& values) const {
    return __ballot_sync(kAll, values[lane_]);
  }

  // Returns the value of lane `lane`.
  template <class T>
  ONEBIT_KERNEL T Broadcast(const Lanes<T>& values, unsigned lane) const {
    return __shfl_sync(kAll, values[lane_], lane);
  }

  // Gives each lane the value of lane source_of(its index).
  template <class T, class SourceOf>
  ONEBIT_KERNEL Lanes<T> Shuffle(const Lanes<T>& values, const SourceOf& source_of) const {
    Lanes<T> result;
    result[lane_] = __shfl_sync(kAll, values[lane_], source_of(lane_));
    return result;
  }

  // Gives each lane the value of the one `delta` above; beyond the last lane it is unspecified.
  template <class T>
  ONEBIT_KERNEL Lanes<T> ShuffleDown(const Lanes<T>& values, unsigned delta) const {
    Lanes<T> result;
    result[lane_] = __shfl_down_sync(kAll, values[lane_], delta);
    return result;
  }

 private:
  static constexpr unsigned kAll = 0xFFFFFFFFu;
  unsigned lane_;
  unsigned index_;
  unsigned count_;
};

ONEBIT_KERNEL void AtomicOr(uint32_t* word, uint32_t bits) { atomicOr(word, bits); }
// Returns the value before.
ONEBIT_KERNEL uint32_t AtomicAdd(uint32_t* word, uint32_t value) { return atomicAdd(word, value); }
// The same, ordered after the caller's earlier memory accesses and before its later ones.
ONEBIT_KERNEL uint32_t AtomicAddInOrder(uint32_t* word, uint32_t value) {
  __threadfence();
  const uint32_t before = atomicAdd(word, value);
  __threadfence();
  return before;
}
ONEBIT_KERNEL void AtomicAdd(unsigned long long* word, unsigned long long value) {
  atomicAdd(word, value);
}
// Changes 0 to 1; true if it did.
ONEBIT_KERNEL bool Claim(uint32_t* word) { return atomicCAS(word, 0u, 1u) == 0; }
ONEBIT_KERNEL void StoreLast(uint32_t* word, uint32_t value) {
  *static_cast<volatile uint32_t*>(word) = value;
}

#else

template <class T>
class Lanes {
 public:
  T& operator[](unsigned lane) { return values_[lane]; }
  const T& operator[](unsigned lane) const { return values_[lane]; }

 private:
  T values_[kLanes] = {};
};

class Warp {
 public:
  Warp(unsigned index, unsigned count) : index_(index), count_(count) {}

  unsigned index() const { return index_; }
  unsigned count() const { return count_; }

  template <class Body>
  void ForEachLane(const Body& body) const {
    for (unsigned lane = 0; lane < kLanes; ++lane) body(lane);
  }

  void Sync() const {}

  template <class Body>
  void Once(const Body& body) const {
    body();
  }

  template <class Body>
  void Publish(const Body& body) const {
    body();
  }

  uint32_t Ballot(const Lanes<bool>& values) const {
    uint32_t ballot = 0;
    for (unsigned lane = 0; lane < kLanes; ++lane) ballot |= uint32_t{values[lane]} << lane;
    return ballot;
  }

  template <class T>
  T Broadcast(const Lanes<T>& values, unsigned lane) const {
    return values[lane];
  }

  template <class T, class SourceOf>
  Lanes<T> Shuffle(const Lanes<T>& values, const SourceOf& source_of) const {
    Lanes<T> result;
    for (unsigned lane = 0; lane < kLanes; ++lane) result[lane] = values[source_of(lane)];
    return result;
  }

  template <class T>
  Lanes<T> ShuffleDown(const Lanes<T>& values, unsigned delta) const {
    Lanes<T> result;
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      result[lane] = values[lane + delta < kLanes ? lane + delta : lane];
    }
    return result;
  }

 private:
  unsigned index_;
  unsigned count_;
};

inline void AtomicOr(uint32_t* word, uint32_t bits) { std::atomic_ref(*word).fetch_or(bits); }
inline uint32_t AtomicAdd(uint32_t* word, uint32_t value) {
  return std::atomic_ref(*word).fetch_add(value);
}
inline uint32_t AtomicAddInOrder(uint32_t* word, uint32_t value) { return AtomicAdd(word, value); }
inline void AtomicAdd(unsigned long long* word, unsigned long long value) {
  std::atomic_ref(*word).fetch_add(value);
}
inline bool Claim(uint32_t* word) {
  uint32_t expected = 0;
  return std::atomic_ref(*word).compare_exchange_strong(expected, 1);
}
inline void StoreLast(uint32_t* word, uint32_t value) {
  std::atomic_ref(*word).store(value, std::memory_order_release);
}

#endif

// The bits that are set, and the zeros above and below them. The word is not 0 where its zeros
// count.
#if defined(__CUDACC__)
ONEBIT_KERNEL unsigned BitsSetIn(uint32_t word) { return static_cast<unsigned>(__popc(word)); }
ONEBIT_KERNEL unsigned ZerosAbove(uint32_t word) { return static_cast<unsigned>(__clz(word)); }
ONEBIT_KERNEL unsigned ZerosBelow(uint32_t word) { return static_cast<unsigned>(__ffs(word)) - 1; }
#else
inline unsigned BitsSetIn(uint32_t word) { return static_cast<unsigned>(std::popcount(word)); }
inline unsigned ZerosAbove(uint32_t word) { return static_cast<unsigned>(std::countl_zero(word)); }
inline unsigned ZerosBelow(uint32_t word) { return static_cast<unsigned>(std::countr_zero(word)); }
#endif

// Combines the values of all lanes by `combine`, which may receive them in any order.
template <class T, class Combine>
ONEBIT_KERNEL T Fold(const Warp& warp, Lanes<T> values, const Combine& combine) {
  ONEBIT_UNROLL
  for (unsigned delta = kLanes / 2; delta >= 1; delta /= 2) {
    const Lanes<T> others = warp.ShuffleDown(values, delta);
    warp.ForEachLane([&](unsigned lane) { values[lane] = combine(values[lane], others[lane]); });
  }
  return warp.Broadcast(values, 0);
}

template <class T>
ONEBIT_KERNEL T SumOf(const Warp& warp, const Lanes<T>& values) {
  return Fold(warp, values, [](T a, T b) { return static_cast<T>(a + b); });
}

// Gives each lane the sum of the values up to its own.
template <class T>
ONEBIT_KERNEL Lanes<T> SumsUpTo(const Warp& warp, Lanes<T> values) {
  ONEBIT_UNROLL
  for (unsigned delta = 1; delta < kLanes; delta *= 2) {
    const Lanes<T> others = warp.Shuffle(
        values, [&](unsigned lane) ONEBIT_INLINE { return lane < delta ? lane : lane - delta; });
    warp.ForEachLane([&](unsigned lane) {
      if (lane >= delta) values[lane] = static_cast<T>(values[lane] + others[lane]);
    });
  }
  return values;
}

template <class T>
ONEBIT_KERNEL T LargestOf(const Warp& warp, const Lanes<T>& values) {
  return Fold(warp, values, [](T a, T b) { return a > b ? a : b; });
}

// Sets bits of a fault word, or does nothing if there is none.
ONEBIT_KERNEL void AddFaults(const Warp& warp, uint32_t* faults, uint32_t bits) {
  if (faults != nullptr) warp.Once([&] { AtomicOr(faults, bits); });
}

}  // namespace onebit::kernels::cuda
