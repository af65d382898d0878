// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Selects the k largest of up to kTile keys, of equal ones those with the lowest index. The maxima
// of small groups of keys bound the k-th largest key from below. One sweep then collects the keys
// that reach the bound, a little more than k in most data, and the exact threshold is searched
// among these. Both searches halve a range of integers and count. Per-target header.
#if defined(ONEBIT_KERNELS_CPU_SPARSE_SELECT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEBIT_KERNELS_CPU_SPARSE_SELECT_INL_H_
#undef ONEBIT_KERNELS_CPU_SPARSE_SELECT_INL_H_
#else
#define ONEBIT_KERNELS_CPU_SPARSE_SELECT_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <hwy/highway.h>

#include "kernels/cpu/low_bit_read-inl.h"
#include "kernels/cpu/tile-inl.h"
#include "kernels/cpu/vectors-inl.h"
#include "kernels/sparse.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

static_assert(kMaxSparseBlock == kTile);

// Keys as they lie in memory: words whose bits in `used` are the key.
struct Keys {
  const int32_t* word;
  int32_t used;
  size_t count;  // a whole number of vectors

  HWY_INLINE VI32 At(size_t i) const {
    return hn::And(hn::LoadU(kI32, word + i), hn::Set(kI32, used));
  }
};

// The key of the words that fill the last vector, where no other key can be that small.
inline constexpr int32_t kNoKey = std::numeric_limits<int32_t>::min();

HWY_INLINE hn::Mask<DI32> Reaches(VI32 key, VI32 bound) { return hn::Not(hn::Gt(bound, key)); }

HWY_INLINE size_t CountAtLeast(const int32_t* keys, size_t count, int32_t bound) {
  const VI32 least = hn::Set(kI32, bound);
  size_t reached = 0;
  for (size_t i = 0; i < count; i += kLanes) {
    reached += hn::CountTrue(kI32, Reaches(hn::Load(kI32, keys + i), least));
  }
  return reached;
}

// A bound that at least as many keys reach as are wanted.
struct KeyBound {
  int64_t key;     // from the smallest to the largest one
  int64_t above;   // fewer than wanted reach this
  size_t reached;  // keys that reach `key`
};

// Raises the bound until at most `most` keys reach it, or one more step would be too much.
HWY_INLINE KeyBound RaiseBound(const int32_t* keys, size_t count, size_t wanted, size_t most,
                               KeyBound bound) {
  while (bound.reached > most && bound.above - bound.key > 1) {
    const int64_t middle = bound.key + (bound.above - bound.key) / 2;
    const size_t reached = CountAtLeast(keys, count, static_cast<int32_t>(middle));
    if (reached >= wanted) {
      bound.key = middle;
      bound.reached = reached;
    } else {
      bound.above = middle;
    }
  }
  return bound;
}

class SparseSelector {
 public:
  // Finds the maxima of the groups, from which `wanted` keys will be selected, and returns the
  // largest key. Reads keys in order, and fetches ahead if they come from memory.
  HWY_INLINE int32_t Read(const Keys& keys, size_t wanted, bool is_fetching) {
    // Groups of one element in each of several vectors. Three times as many groups as keys are
    // wanted keep the bound tight; 16 elements each keep the search short.
    size_t vectors = 16;
    while (vectors > 1 && keys.count / vectors < 3 * wanted) vectors /= 2;
    maxima_count_ = 0;
    VI32 smallest = hn::Set(kI32, std::numeric_limits<int32_t>::max());
    VI32 largest = hn::Set(kI32, kNoKey);
    for (size_t i = 0; i < keys.count;) {
      const size_t end = std::min(keys.count, i + vectors * kLanes);
      VI32 maximum = hn::Set(kI32, kNoKey);
      for (; i < end; i += kLanes) {
        if (is_fetching) FetchFarAhead<DataType::kF32>(keys.word, i);
        maximum = hn::Max(maximum, keys.At(i));
      }
      hn::Store(maximum, kI32, maxima_ + maxima_count_);
      maxima_count_ += kLanes;
      smallest = hn::Min(smallest, maximum);
      largest = hn::Max(largest, maximum);
    }
    smallest_ = hn::GetLane(hn::MinOfLanes(kI32, smallest));
    largest_ = hn::GetLane(hn::MaxOfLanes(kI32, largest));
    return largest_;
  }

  // Writes the indices of the `wanted` keys, in ascending order.
  HWY_INLINE void Select(const Keys& keys, size_t wanted, uint16_t* index) {
    const int64_t above = int64_t{largest_} + 1;
    KeyBound bound = RaiseBound(maxima_, maxima_count_, wanted, wanted + wanted / 4,
                                {smallest_, above, maxima_count_});
    const size_t candidates = Collect(keys, static_cast<int32_t>(bound.key));
    bound = RaiseBound(key_, candidates, wanted, wanted, {bound.key, above, reached_});
    const auto threshold = static_cast<int32_t>(bound.key);
    // Keys equal to the threshold fill up what larger ones leave.
    size_t equal = wanted;
    if (bound.reached != wanted) {
      for (size_t i = 0; i < reached_; ++i) equal -= key_[i] > threshold ? 1 : 0;
    }
    size_t selected = 0;
    for (size_t i = 0; selected < wanted; ++i) {
      const bool is_equal = key_[i] == threshold;
      const bool is_taken = key_[i] > threshold || (is_equal && equal != 0);
      index[selected] = static_cast<uint16_t>(place_[i]);
      selected += is_taken ? 1 : 0;
      equal -= is_equal && is_taken ? 1 : 0;
    }
  }

 private:
  // Copies the keys that reach the bound, with their places, and fills the last vector. Returns how
  // many keys this makes in whole vectors.
  HWY_INLINE size_t Collect(const Keys& keys, int32_t bound) {
    const VI32 least = hn::Set(kI32, bound);
    size_t count = 0;
    for (size_t i = 0; i < keys.count; i += kLanes) {
      const VI32 key = keys.At(i);
      const auto reaches = Reaches(key, least);
      if (hn::AllFalse(kI32, reaches)) continue;
      const VI32 place = hn::Iota(kI32, static_cast<int32_t>(i));
      hn::StoreU(hn::Compress(key, reaches), kI32, key_ + count);
      hn::StoreU(hn::Compress(place, reaches), kI32, place_ + count);
      count += hn::CountTrue(kI32, reaches);
    }
    reached_ = count;
    hn::StoreU(hn::Set(kI32, kNoKey), kI32, key_ + count);
    return (count + kLanes - 1) / kLanes * kLanes;
  }

  size_t maxima_count_ = 0;
  size_t reached_ = 0;  // keys collected
  int32_t smallest_ = 0;
  int32_t largest_ = 0;
  alignas(64) int32_t maxima_[kTile];
  alignas(64) int32_t key_[kTile + kLanes];
  alignas(64) int32_t place_[kTile + kLanes];
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
