// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A chunk is what is read at once: whole blocks, or a part of one. Reading a chunk computes z,
// stores it, and adds to the statistics that the blocks' scales depend on. Per-target header.
#if defined(ONEBIT_KERNELS_CPU_LOW_BIT_READ_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEBIT_KERNELS_CPU_LOW_BIT_READ_INL_H_
#undef ONEBIT_KERNELS_CPU_LOW_BIT_READ_INL_H_
#else
#define ONEBIT_KERNELS_CPU_LOW_BIT_READ_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include <hwy/highway.h>

#include "kernels/cpu/encode-inl.h"
#include "kernels/cpu/sum-inl.h"
#include "kernels/cpu/tile-inl.h"
#include "kernels/cpu/vectors-inl.h"
#include "kernels/low_bit.h"
#include "kernels/reference/low_bit_scale.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

inline constexpr size_t kChunk = 256;
static_assert(kChunk % kSumLanes == 0 && kTile % kChunk == 0);

using LowBitScale = reference::LowBitScale;
using LowBitStatistics = reference::LowBitStatistics;

// The sum or extremes that are updated while a chunk is read.
enum class Statistic { kNone, kMagnitude, kRange, kSquares };

constexpr Statistic StatisticOf(LowBitCodec codec) {
  switch (codec) {
    case LowBitCodec::kFp4:
    case LowBitCodec::kInt8:
    case LowBitCodec::kInt8Stochastic:
      return Statistic::kMagnitude;
    case LowBitCodec::kUint8:
      return Statistic::kRange;
    case LowBitCodec::kInt2:
      return Statistic::kSquares;
  }
  return Statistic::kNone;
}

using VI32 = hn::Vec<DI32>;

// The statistics of a block, each in the lanes of a vector; a block uses some of them.
struct alignas(64) StatisticLanes {
  // Magnitudes are compared as integers, where NaN is above infinity.
  int32_t magnitude[kLanes];
  float minimum[kLanes];
  float maximum[kLanes];
  SumLanes squares;

  HWY_INLINE void Clear(Statistic statistic) {
    hn::Store(hn::Zero(kI32), kI32, magnitude);
    if (statistic == Statistic::kRange) {
      const float infinity = std::numeric_limits<float>::infinity();
      hn::Store(hn::Set(kF32, infinity), kF32, minimum);
      hn::Store(hn::Set(kF32, -infinity), kF32, maximum);
    }
    if (statistic == Statistic::kSquares) squares.Clear();
  }
};

// Writes z[0, count), with zeros up to a whole vector, and adds to the lanes of each block. A chunk
// has whole blocks, the last of which may be shorter, or is a part of one, whose count is a
// multiple of kSumLanes unless the part is the last one.
using ReadChunk = void (*)(const TileInput& chunk, size_t block, float* z, StatisticLanes* lanes);

// Fetches ahead of element i into the second-level cache, once per line. Reading alternates with
// encoding: lines that were requested in a burst would fill the requests that the first-level cache
// can have. Measured with codec_perf on an EPYC 9004, Int8Compress reaches 0.85 of its ceiling,
// against 0.58 with FetchAhead.
template <DataType kType>
HWY_INLINE void FetchFarAhead(const void* array, size_t i) {
  constexpr size_t kAheadBytes = 6144;
  const size_t byte = i * sizeof(ElementOf<kType>);
  if (byte % kLineBytes == 0) {
    // May be beyond the array.
    const uintptr_t ahead = reinterpret_cast<uintptr_t>(array) + byte + kAheadBytes;
    __builtin_prefetch(reinterpret_cast<const char*>(ahead), 0, 2);
  }
}

// Reads a part of a chunk that is in one block, a vector at a time.
template <DataType kInput, Residual kResidual, Statistic kStatistic>
class PartReader {
 public:
  HWY_INLINE PartReader(const TileInput& part, float* z, StatisticLanes& lanes)
      : part_(part), z_(z), lanes_(lanes) {
    magnitude_ = hn::Load(kI32, lanes.magnitude);
    minimum_ = maximum_ = hn::Zero(kF32);
    if constexpr (kStatistic == Statistic::kRange) {
      minimum_ = hn::Load(kF32, lanes.minimum);
      maximum_ = hn::Load(kF32, lanes.maximum);
    }
  }

  // Elements i, i + 1, ..., a whole vector.
  HWY_INLINE void Read(size_t i) {
    FetchFarAhead<kInput>(part_.input, i);
    if (kResidual != Residual::kNone) FetchFarAhead<kResidualType<kResidual>>(part_.residual, i);
    const VF loaded = Add(LoadZ<kInput, kResidual, false>(part_, i), i);
    if constexpr (kStatistic == Statistic::kRange) {
      if (part_.mask != nullptr) {
        AddRange(loaded, MaskOfBits(part_.mask, i));
      } else {
        minimum_ = hn::Min(minimum_, loaded);
        maximum_ = hn::Max(maximum_, loaded);
      }
    }
    KeepOrder();
  }

  // The last elements, fewer than a vector.
  HWY_INLINE void ReadLast(size_t i) {
    const VF loaded = Add(LoadLastZ<kInput, kResidual, false>(part_, i), i);
    if constexpr (kStatistic == Statistic::kRange) {
      MF takes_part = hn::FirstN(kF32, part_.count - i);
      if (part_.mask != nullptr) takes_part = hn::And(takes_part, MaskOfBits(part_.mask, i));
      AddRange(loaded, takes_part);
    }
  }

  HWY_INLINE void Finish() const {
    if constexpr (kStatistic == Statistic::kMagnitude || kStatistic == Statistic::kRange) {
      hn::Store(magnitude_, kI32, lanes_.magnitude);
    }
    if constexpr (kStatistic == Statistic::kRange) {
      hn::Store(minimum_, kF32, lanes_.minimum);
      hn::Store(maximum_, kF32, lanes_.maximum);
    }
  }

 private:
  HWY_INLINE VF Add(VF loaded, size_t i) {
    if (part_.mask != nullptr) loaded = hn::IfThenElseZero(MaskOfBits(part_.mask, i), loaded);
    hn::Store(loaded, kF32, z_ + i);
    if constexpr (kStatistic == Statistic::kMagnitude || kStatistic == Statistic::kRange) {
      const VI32 bits = hn::BitCast(kI32, loaded);
      magnitude_ = hn::Max(magnitude_, hn::And(bits, hn::Set(kI32, 0x7FFFFFFF)));
    }
    if constexpr (kStatistic == Statistic::kSquares) {
      float* lane = lanes_.squares.lane + i % kSumLanes;
      hn::Store(AddTerm<Sum::kL2>(hn::Load(kF32, lane), loaded), kF32, lane);
    }
    return loaded;
  }

  // An element that takes no part changes neither bound.
  HWY_INLINE void AddRange(VF loaded, MF takes_part) {
    minimum_ = hn::IfThenElse(takes_part, hn::Min(minimum_, loaded), minimum_);
    maximum_ = hn::IfThenElse(takes_part, hn::Max(maximum_, loaded), maximum_);
  }

  const TileInput part_;  // a copy, which stays in registers across KeepOrder()
  float* const z_;
  StatisticLanes& lanes_;
  VI32 magnitude_;
  VF minimum_, maximum_;
};

template <DataType kInput, Residual kResidual>
HWY_INLINE TileInput PartOf(const TileInput& chunk, size_t begin, size_t count) {
  return {.input = At(chunk.input, kInput, begin),
          .residual = At(chunk.residual, kResidualType<kResidual>, begin),
          .mask = chunk.mask == nullptr ? nullptr : chunk.mask + begin / 8,
          .count = count};
}

template <DataType kInput, Residual kResidual, Statistic kStatistic>
HWY_NOINLINE void ReadChunkAs(const TileInput& chunk, size_t block, float* z,
                              StatisticLanes* lanes) {
  const size_t count = chunk.count;
  for (size_t begin = 0; begin < count; begin += block, ++lanes) {
    const size_t part_count = HWY_MIN(block, count - begin);
    PartReader<kInput, kResidual, kStatistic> reader(
        PartOf<kInput, kResidual>(chunk, begin, part_count), z + begin, *lanes);
    const size_t whole = part_count / kLanes * kLanes;
    for (size_t i = 0; i < whole; i += kLanes) reader.Read(i);
    if (whole != part_count) reader.ReadLast(whole);
    reader.Finish();
  }
}

// The statistics that follow from the lanes. Squares are added by SumOfSquares.
HWY_INLINE LowBitStatistics StatisticsOf(Statistic statistic, const StatisticLanes& lanes,
                                         size_t participants) {
  LowBitStatistics block;
  block.element_count = participants;
  if (statistic == Statistic::kMagnitude || statistic == Statistic::kRange) {
    const VI32 largest = hn::MaxOfLanes(kI32, hn::Load(kI32, lanes.magnitude));
    block.largest_magnitude = std::bit_cast<float>(hn::GetLane(largest));
    block.is_in_range = block.largest_magnitude < reference::kLowBitLimit;
  }
  if (statistic == Statistic::kRange && participants != 0) {
    block.minimum = hn::GetLane(hn::MinOfLanes(kF32, hn::Load(kF32, lanes.minimum)));
    block.maximum = hn::GetLane(hn::MaxOfLanes(kF32, hn::Load(kF32, lanes.maximum)));
  }
  return block;
}

// ---- Choice of the instances, once per call

struct ChunkReaders {
  ReadChunk load;  // computes z only
  ReadChunk read;
};

template <DataType kInput, Residual kResidual>
ChunkReaders ReadersOf(Statistic statistic) {
  constexpr ReadChunk kLoad = &ReadChunkAs<kInput, kResidual, Statistic::kNone>;
  switch (statistic) {
    case Statistic::kNone:
      return {kLoad, kLoad};
    case Statistic::kMagnitude:
      return {kLoad, &ReadChunkAs<kInput, kResidual, Statistic::kMagnitude>};
    case Statistic::kRange:
      return {kLoad, &ReadChunkAs<kInput, kResidual, Statistic::kRange>};
    case Statistic::kSquares:
      return {kLoad, &ReadChunkAs<kInput, kResidual, Statistic::kSquares>};
  }
  return {};
}

template <DataType kInput>
ChunkReaders ReadersOf(Residual residual, Statistic statistic) {
  switch (residual) {
    case Residual::kNone:
      return ReadersOf<kInput, Residual::kNone>(statistic);
    case Residual::kF32:
      return ReadersOf<kInput, Residual::kF32>(statistic);
    case Residual::kBf16:
      return ReadersOf<kInput, Residual::kBf16>(statistic);
  }
  return {};
}

inline ChunkReaders ReadersOf(DataType input, Residual residual, Statistic statistic) {
  switch (input) {
    case DataType::kF32:
      return ReadersOf<DataType::kF32>(residual, statistic);
    case DataType::kF16:
      return ReadersOf<DataType::kF16>(residual, statistic);
    case DataType::kBf16:
      return ReadersOf<DataType::kBf16>(residual, statistic);
      ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
  }
  return {};
}

// ---- Masks

// Copies the bits [begin, begin + count), and sets the following ones, padding included, to 0.
HWY_INLINE void CopyMask(const uint8_t* mask, size_t begin, size_t count, uint8_t* to) {
  const uint8_t* from = mask + begin / 8;
  const size_t shift = begin % 8;
  if (shift == 0) return CopyBitsPadded(from, count, to);
  const size_t readable = BitBytes(shift + count);
  const size_t bytes = BitBytes(count);
  for (size_t k = 0; k < bytes; ++k) {
    const unsigned next = k + 1 < readable ? from[k + 1] : 0;
    to[k] = static_cast<uint8_t>((from[k] >> shift) | (next << (8 - shift)));
  }
  memset(to + bytes, 0, kBitPadding);
  if (count % 8 != 0) to[bytes - 1] &= static_cast<uint8_t>((1u << (count % 8)) - 1);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
