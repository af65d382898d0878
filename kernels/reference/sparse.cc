// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Numbers to sparse packets and back, one element at a time.
#include "kernels/sparse.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/reference/block_sum.h"
#include "kernels/reference/elements.h"
#include "kernels/reference/fp_env.h"
#include "kernels/reference/philox.h"
#include "kernels/reference/residual_target.h"
#include "kernels/reference/sparse_values.h"

namespace onebit::kernels::reference {
namespace {

// The elements of a block that are sent, in ascending order.
struct Selection {
  size_t count = 0;
  uint16_t index[kMaxSparseBlock];
};

// Selects the elements with the largest keys, of equal ones those with the lowest index.
template <class KeyAt>
void Select(size_t length, size_t selected, const KeyAt& key_at, Selection* selection) {
  std::pair<int64_t, uint16_t> order[kMaxSparseBlock];
  for (size_t i = 0; i < length; ++i) order[i] = {-key_at(i), static_cast<uint16_t>(i)};
  std::sort(order, order + length);
  selection->count = selected;
  for (size_t j = 0; j < selected; ++j) selection->index[j] = order[j].second;
  std::sort(selection->index, selection->index + selected);
}

void SelectDrawn(SparseFormat format, const Draws& draws, size_t begin, size_t length,
                 Selection* selection) {
  Select(
      length, format.SelectedOfBlock(length),
      [&](size_t i) { return -int64_t{DrawOf(draws, begin + i)}; }, selection);
}

uint8_t* PartAt(void* packet, size_t offset) { return static_cast<uint8_t*>(packet) + offset; }
const uint8_t* PartAt(const void* packet, size_t offset) {
  return static_cast<const uint8_t*>(packet) + offset;
}

// ---- Numbers to packets

TwoMagnitudes MagnitudesOf(const Selection& selection, const float* values,
                           const bool* takes_part) {
  const size_t participants =
      static_cast<size_t>(std::count(takes_part, takes_part + selection.count, true));
  return FindMagnitudes(participants, [&](float threshold) {
    const auto sum_of = [&](bool is_high) {
      return BlockSum(selection.count, ScaleRule::kL1, [&](size_t j) {
        return (std::abs(values[j]) > threshold) == is_high ? values[j] : 0.0f;
      });
    };
    SplitSum split = {.high = sum_of(true), .low = sum_of(false)};
    for (size_t j = 0; j < selection.count; ++j)
      split.high_count += std::abs(values[j]) > threshold;
    return split;
  });
}

// Compresses z_at(i), which is 0 where masked.
template <class NumberAt>
SparseResult Encode(SparseFormat format, const Draws& draws, const ResidualTarget& target,
                    void* packet, const NumberAt& z_at) {
  std::memset(packet, 0, format.Bytes(target.count));
  BitWriter indices(PartAt(packet, format.IndexOffset(target.count)));
  BitWriter codes(PartAt(packet, format.ValueOffset(target.count)));
  SparseResult result;
  for (size_t begin = 0; begin < target.count; begin += format.block) {
    const size_t length = std::min(target.count - begin, format.block);
    bool is_finite = true;
    for (size_t i = begin; i < begin + length; ++i) {
      is_finite = is_finite && std::abs(z_at(i)) < kSparseLimit;  // false for NaN
    }
    if (!is_finite) {
      ++result.nonfinite_blocks;
      result.is_finite = false;
    }

    Selection selection;
    if (format.codec.is_random) {
      SelectDrawn(format, draws, begin, length, &selection);
    } else {
      const auto key_at = [&](size_t i) -> int64_t {
        if (!TakesPart(target.mask, begin + i)) return -1;
        return is_finite ? std::bit_cast<uint32_t>(z_at(begin + i)) & 0x7FFFFFFFu : 0;
      };
      Select(length, format.SelectedOfBlock(length), key_at, &selection);
    }

    float values[kMaxSparseBlock];
    bool takes_part[kMaxSparseBlock];
    for (size_t j = 0; j < selection.count; ++j) {
      values[j] = z_at(begin + selection.index[j]);
      takes_part[j] = TakesPart(target.mask, begin + selection.index[j]);
      if (!format.codec.is_random) indices.Write(selection.index[j], kSparseIndexBits);
    }
    if (format.codec.values == SparseValues::kF32) {
      for (size_t j = 0; j < selection.count; ++j) {
        codes.Write(is_finite ? std::bit_cast<uint32_t>(values[j]) : kNanValue, 32);
      }
    } else {
      TwoMagnitudes magnitudes = {.high = kNanMagnitude, .low = kNanMagnitude};
      if (is_finite) magnitudes = MagnitudesOf(selection, values, takes_part);
      std::memcpy(PartAt(packet, begin / format.block * kSparseMagnitudeBytes), &magnitudes,
                  kSparseMagnitudeBytes);
      const CodeValues value_of(magnitudes.high, magnitudes.low);
      for (size_t j = 0; j < selection.count; ++j) {
        const unsigned code =
            is_finite && takes_part[j] ? CodeOf(values[j], magnitudes.threshold) : 0;
        codes.Write(code, 2);
        values[j] = value_of.value[code];
      }
    }

    if (target.residual_out == nullptr) continue;
    for (size_t i = 0, j = 0; i < length; ++i) {
      float lost = z_at(begin + i);  // before the residual, which may be in the same place
      if (j < selection.count && selection.index[j] == i) {
        lost -= RoundTo(target.value_type, values[j++]);
      }
      result.is_finite = WriteResidual(target, begin + i, lost) && result.is_finite;
    }
  }
  indices.Finish();
  codes.Finish();
  return result;
}

// ---- Packets to numbers

// Adds what one rank has sent of a block to y, and returns whether it is finite.
bool AddBlock(const void* packet, SparseFormat format, size_t count, size_t begin,
              const Selection& drawn, float* y) {
  const size_t block = begin / format.block;
  const size_t first = block * format.codec.k;  // element of those sent
  const uint8_t* const indices = PartAt(packet, format.IndexOffset(count));
  const uint8_t* const codes = PartAt(packet, format.ValueOffset(count));
  uint16_t magnitudes[2] = {};
  if (format.codec.values == SparseValues::kTwoMagnitudes) {
    std::memcpy(magnitudes, PartAt(packet, block * kSparseMagnitudeBytes), kSparseMagnitudeBytes);
  }
  const CodeValues value_of(magnitudes[0], magnitudes[1]);
  const size_t selected = format.SelectedOfBlock(std::min(count - begin, format.block));
  bool is_finite = true;
  for (size_t j = 0; j < selected; ++j) {
    const size_t i = format.codec.is_random ? drawn.index[j] : IndexAt(indices, first + j);
    float value;
    if (format.codec.values == SparseValues::kF32) {
      std::memcpy(&value, codes + (first + j) * sizeof(value), sizeof(value));
    } else {
      value = value_of.value[SparseCodeAt(codes, first + j)];
    }
    is_finite = is_finite && !std::isnan(value);
    y[i] += value;
  }
  return is_finite;
}

// The sums of blocks, one block at a time. Blocks are asked for in ascending order.
class BlockSums {
 public:
  BlockSums(const SparseReduceInput& in, SparseFormat format, const Draws& draws)
      : in_(in), format_(format), draws_(draws) {}

  // Without mask and residual.
  float At(size_t i) {
    if (i / format_.block != block_) Sum(i / format_.block);
    return y_[i % format_.block];
  }
  size_t nonfinite_blocks() const { return nonfinite_blocks_; }

 private:
  void Sum(size_t block) {
    block_ = block;
    const size_t begin = block * format_.block;
    Selection drawn;
    if (format_.codec.is_random) {
      SelectDrawn(format_, draws_, begin, std::min(in_.count - begin, format_.block), &drawn);
    }
    std::fill_n(y_, kMaxSparseBlock, 0.0f);
    bool is_finite = true;
    for (size_t rank = 0; rank < in_.ranks; ++rank) {
      is_finite = AddBlock(in_.packets[rank], format_, in_.count, begin, drawn, y_) && is_finite;
    }
    nonfinite_blocks_ += is_finite ? 0 : 1;
    if (in_.is_sum) return;
    for (float& y : y_) y /= static_cast<float>(in_.ranks);
  }

  const SparseReduceInput& in_;
  const SparseFormat format_;
  const Draws& draws_;
  size_t block_ = SIZE_MAX;
  size_t nonfinite_blocks_ = 0;
  float y_[kMaxSparseBlock];
};

}  // namespace

SparseResult SparseCompress(const CompressInput& in, float ef_decay, SparseFormat format,
                            const Draws& draws, void* packet) {
  return InDefaultFpEnvironment([&] {
    const auto z_at = [&](size_t i) -> float {
      if (!TakesPart(in.mask, i)) return 0;
      const float x = LoadElement(in.input, in.input_type, i);
      if (in.residual_in == nullptr) return x;
      const float kept = ef_decay * LoadElement(in.residual_in, in.residual_type, i);
      return x + kept;
    };
    return Encode(format, draws, WorkerTarget(in), packet, z_at);
  });
}

SparseResult SparseReduce(const SparseReduceInput& in, SparseFormat format, const Draws& draws,
                          void* packet) {
  return InDefaultFpEnvironment([&] {
    BlockSums sums(in, format, draws);
    const auto y_at = [&](size_t i) -> float {
      if (!TakesPart(in.mask, i)) return 0;
      const float y = sums.At(i);
      return in.residual_in == nullptr ? y : y + LoadElement(in.residual_in, in.residual_type, i);
    };
    return Encode(format, draws, ServerTarget(in), packet, y_at);
  });
}

SparseResult SparseAverage(const SparseReduceInput& in, SparseFormat format, const Draws& draws,
                           void* output) {
  return InDefaultFpEnvironment([&] {
    BlockSums sums(in, format, draws);
    SparseResult result;
    for (size_t i = 0; i < in.count; ++i) {
      float y = sums.At(i);
      if (format.codec.is_unbiased) {
        const size_t length = std::min(in.count - i / format.block * format.block, format.block);
        y *= format.Factor(length);
      }
      if (!TakesPart(in.mask, i)) y = 0;
      StoreElement(y, in.output_type, i, output);
      result.is_finite = result.is_finite && std::isfinite(RoundTo(in.output_type, y));
    }
    result.nonfinite_blocks = sums.nonfinite_blocks();
    result.is_finite = result.is_finite && result.nonfinite_blocks == 0;
    return result;
  });
}

}  // namespace onebit::kernels::reference
