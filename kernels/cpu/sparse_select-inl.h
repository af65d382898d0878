// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Selects the k largest of up to kTile keys, of equal ones those with the lowest index. A sweep
// collects the keys that reach a bound, a little more than k in most data, and the exact threshold
// is searched among these. The bound is somewhat below the threshold of the block before. Where too
// few or too many keys reach it, the maxima of small groups of keys give another one. Searches
// halve a range of integers and count. Per-target header.
#if defined(ONEBIT_KERNELS_CPU_SPARSE_SELECT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEBIT_KERNELS_CPU_SPARSE_SELECT_INL_H_
#undef ONEBIT_KERNELS_CPU_SPARSE_SELECT_INL_H_
#else
#define ONEBIT_KERNELS_CPU_SPARSE_SELECT_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include <hwy/highway.h>

#include "kernels/cpu/low_bit_read-inl.h"
#include "kernels/cpu/tile-inl.h"
#include "kernels/cpu/vectors-inl.h"
#include "kernels/sparse.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

static_assert(kMaxSparseBlock == kTile);

// Keys as they lie in memory: of words of 32 bits, which may be floats, the bits in `used`.
struct Keys {
  const void* words;
  int32_t used;
  size_t count;  // a whole number of vectors

  HWY_INLINE VI32 At(size_t i) const {
    // Loads of vectors may have another type than the memory.
    return hn::And(hn::LoadU(kI32, static_cast<const int32_t*>(words) + i), hn::Set(kI32, used));
  }
  HWY_INLINE int32_t KeyAt(int32_t i) const {
    int32_t word;
    memcpy(&word, static_cast<const uint8_t*>(words) + static_cast<size_t>(i) * sizeof(word),
           sizeof(word));
    return word & used;
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
    // Without a branch, which nobody could predict.
    const bool is_enough = reached >= wanted;
    bound.key = is_enough ? middle : bound.key;
    bound.reached = is_enough ? reached : bound.reached;
    bound.above = is_enough ? bound.above : middle;
  }
  return bound;
}

// Memory that is needed soon, of which a sweep over other data fetches a line with each vector.
// Much of the work on a block does not touch memory, which would wait meanwhile.
class Ahead {
 public:
  Ahead() = default;
  Ahead(const void* begin, size_t bytes)
      : next_(reinterpret_cast<uintptr_t>(begin)), end_(next_ + bytes) {}

  HWY_INLINE void FetchLine() {
    if (next_ >= end_) return;
    __builtin_prefetch(reinterpret_cast<const char*>(next_), 0, 2);
    next_ += kLineBytes;
  }

 private:
  uintptr_t next_ = 0;
  uintptr_t end_ = 0;
};

// Parts of the next block, each of which one step of work on a block fetches.
struct BlockAhead {
  Ahead read, sweep, select;
};

class SparseSelector {
 public:
  // Sweeps over keys, from which `wanted` will be selected, and returns the largest one.
  HWY_INLINE int32_t Read(const Keys& keys, size_t wanted, Ahead ahead) {
    if (has_guess_) {
      Collect(keys, guess_, ahead);
      if (HWY_LIKELY(reached_ >= wanted && reached_ <= 4 * wanted)) {
        bound_ = guess_;
        return largest_;
      }
      ChangeSlack(reached_ > wanted);
    }
    FindMaxima(keys, wanted, has_guess_ ? Ahead() : ahead);
    const KeyBound bound = RaiseBound(maxima_, maxima_count_, wanted, wanted + wanted / 2,
                                      {smallest_, int64_t{largest_} + 1, maxima_count_});
    bound_ = static_cast<int32_t>(bound.key);
    Collect(keys, bound_, {});
    return largest_;
  }

  // Writes the indices of the `wanted` keys, in ascending order.
  HWY_INLINE void Select(const Keys& keys, size_t wanted, Ahead ahead, uint16_t* index) {
    for (size_t i = 0; i < reached_; ++i) {
      key_[i] = keys.KeyAt(place_[i]);
      ahead.FetchLine();
    }
    hn::StoreU(hn::Set(kI32, kNoKey), kI32, key_ + reached_);
    const size_t candidates = (reached_ + kLanes - 1) / kLanes * kLanes;
    const KeyBound bound =
        RaiseBound(key_, candidates, wanted, wanted, {bound_, int64_t{largest_} + 1, reached_});
    const auto threshold = static_cast<int32_t>(bound.key);
    Guess(bound.key, wanted);
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
  // Expects about half as many keys again as are wanted to reach the next bound, whatever their
  // distribution: with error feedback many keys come close to the threshold.
  HWY_INLINE void Guess(int64_t threshold, size_t wanted) {
    if (reached_ > 2 * wanted || reached_ < wanted + wanted / 4) ChangeSlack(reached_ > 2 * wanted);
    guess_ = static_cast<int32_t>(std::max<int64_t>(threshold - slack_, kNoKey));
    has_guess_ = true;
  }

  HWY_INLINE void ChangeSlack(bool is_too_much) {
    constexpr int64_t kMostSlack = int64_t{1} << 30;
    slack_ = is_too_much ? slack_ / 2 + 1 : std::min(2 * slack_, kMostSlack);
  }

  HWY_INLINE void FindMaxima(const Keys& keys, size_t wanted, Ahead ahead) {
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
        ahead.FetchLine();
        maximum = hn::Max(maximum, keys.At(i));
      }
      hn::Store(maximum, kI32, maxima_ + maxima_count_);
      maxima_count_ += kLanes;
      smallest = hn::Min(smallest, maximum);
      largest = hn::Max(largest, maximum);
    }
    smallest_ = hn::GetLane(hn::MinOfLanes(kI32, smallest));
    largest_ = hn::GetLane(hn::MaxOfLanes(kI32, largest));
  }

  // Notes the places of the keys that reach the bound, and the largest key. Without a branch for
  // each vector: a good part of them have such a key, and it cannot be predicted which.
  HWY_INLINE void Collect(const Keys& keys, int32_t bound, Ahead ahead) {
    const VI32 least = hn::Set(kI32, bound);
    VI32 largest = hn::Set(kI32, kNoKey);
    size_t count = 0;
#if HWY_TARGET == HWY_AVX2
    // Highway 1.0.3 copies the table of its Compress to the stack in every call.
    alignas(64) uint8_t bits[kTile / 8];
    for (size_t i = 0; i < keys.count; i += kLanes) {
      ahead.FetchLine();
      const VI32 key = keys.At(i);
      largest = hn::Max(largest, key);
      const __m256i is_below = hn::VecFromMask(kI32, hn::Gt(least, key)).raw;
      bits[i / 8] = static_cast<uint8_t>(~_mm256_movemask_ps(_mm256_castsi256_ps(is_below)));
    }
    const size_t whole = keys.count / 64 * 64;
    for (size_t i = 0; i < whole; i += 64) {
      uint64_t word;
      memcpy(&word, bits + i / 8, sizeof(word));
      count = AddPlaces(i, word, count);
    }
    for (size_t i = whole; i < keys.count; i += 8) count = AddPlaces(i, bits[i / 8], count);
#else
    VI32 place = hn::Iota(kI32, 0);
    for (size_t i = 0; i < keys.count; i += kLanes) {
      ahead.FetchLine();
      const VI32 key = keys.At(i);
      const auto reaches = Reaches(key, least);
      largest = hn::Max(largest, key);
      hn::StoreU(hn::Compress(place, reaches), kI32, place_ + count);
      count += hn::CountTrue(kI32, reaches);
      place = hn::Add(place, hn::Set(kI32, static_cast<int32_t>(kLanes)));
    }
#endif
    reached_ = count;
    largest_ = hn::GetLane(hn::MaxOfLanes(kI32, largest));
  }

#if HWY_TARGET == HWY_AVX2
  // Adds i plus the number of each set bit to `count` places, and returns how many there are then.
  // Writes four, whether there are as many or not, because that is predicted.
  HWY_INLINE size_t AddPlaces(size_t i, uint64_t word, size_t count) {
    const size_t end = count + static_cast<size_t>(std::popcount(word));
    do {
      HWY_UNROLL(4)
      for (size_t k = 0; k < 4; ++k) {
        place_[count + k] = static_cast<int32_t>(i) + std::countr_zero(word);
        word &= word - 1;
      }
      count += 4;
    } while (HWY_UNLIKELY(count < end));
    return end;
  }
#endif

  bool has_guess_ = false;
  int32_t guess_ = 0;
  int64_t slack_ = 1 << 20;  // between a threshold and the next guess
  int32_t bound_ = 0;        // that reached_ keys reach
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
