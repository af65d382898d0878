// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Numbers to sparse packets and back.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sparse.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/encode-inl.h"
#include "kernels/cpu/last_vector-inl.h"
#include "kernels/cpu/low_bit_read-inl.h"
#include "kernels/cpu/philox-inl.h"
#include "kernels/cpu/sparse_select-inl.h"
#include "kernels/cpu/sparse_values-inl.h"
#include "kernels/cpu/stream-inl.h"
#include "kernels/reference/elements.h"
#include "kernels/reference/fp_env.h"
#include "kernels/sparse.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

namespace {

constexpr size_t WholeVectors(size_t count) { return (count + kLanes - 1) / kLanes * kLanes; }

constexpr int32_t kMagnitude = 0x7FFFFFFF;
constexpr int32_t kLimit = 0x7F000000;  // of reference::kSparseLimit

// ---- z of a block

// Computes z[0, count), with zeros up to a whole vector.
using ReadBlock = void (*)(const TileInput& block, float ef_decay, Ahead ahead, float* z);

template <DataType kInput, Residual kResidual>
HWY_NOINLINE void ReadBlockAs(const TileInput& block_in_memory, float ef_decay, Ahead ahead,
                              float* z) {
  const TileInput block = block_in_memory;  // stays in registers across KeepOrder()
  using Kept = ElementOf<kResidualType<kResidual>>;
  const VF decay = hn::Set(kF32, ef_decay);
  const auto store = [&](const void* input, const void* residual, size_t from, size_t i) HWY_ATTR {
    VF value = LoadF32<kInput>(input, from);
    if constexpr (kResidual != Residual::kNone) {
      const VF kept = LoadF32<kResidualType<kResidual>>(residual, from);
      value = hn::Add(value, hn::Mul(decay, kept));
    }
    if (block.mask != nullptr) value = hn::IfThenElseZero(MaskOfBits(block.mask, i), value);
    hn::Store(value, kF32, z + i);
  };
  const size_t whole = block.count / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    ahead.FetchLine();
    store(block.input, block.residual, i, i);
    KeepOrder();
  }
  if (whole == block.count) return;
  LastVector<ElementOf<kInput>> input;
  LastVector<Kept> residual;
  const size_t left = block.count - whole;
  store(input.Take(block.input, whole, left), residual.Take(block.residual, whole, left), 0, whole);
}

template <DataType kInput>
ReadBlock ChooseRead(Residual residual) {
  switch (residual) {
    case Residual::kNone:
      return &ReadBlockAs<kInput, Residual::kNone>;
    case Residual::kF32:
      return &ReadBlockAs<kInput, Residual::kF32>;
    case Residual::kBf16:
      return &ReadBlockAs<kInput, Residual::kBf16>;
  }
  return nullptr;
}

ReadBlock ChooseRead(DataType input, Residual residual) {
  switch (input) {
    case DataType::kF32:
      return ChooseRead<DataType::kF32>(residual);
    case DataType::kF16:
      return ChooseRead<DataType::kF16>(residual);
    case DataType::kBf16:
      return ChooseRead<DataType::kBf16>(residual);
      ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
  }
  return nullptr;
}

// ---- Elements of a block, written

template <DataType kType>
HWY_NOINLINE void WriteBlockAs(const float* from, size_t count, bool is_streamed, void* to) {
  const size_t whole = count / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    const VF value = hn::Load(kF32, from + i);
    if (is_streamed) {
      StoreF32As<kType, true>(value, to, i);
    } else {
      StoreF32As<kType>(value, to, i);
    }
  }
  if (whole == count) return;
  LastVector<ElementOf<kType>> last;
  StoreF32As<kType>(hn::Load(kF32, from + whole), last.element, 0);
  last.Return(to, whole, count - whole);
}

using WriteBlock = void (*)(const float* from, size_t count, bool is_streamed, void* to);

WriteBlock ChooseWrite(DataType type) {
  switch (type) {
    case DataType::kF32:
      return &WriteBlockAs<DataType::kF32>;
    case DataType::kF16:
      return &WriteBlockAs<DataType::kF16>;
    case DataType::kBf16:
      return &WriteBlockAs<DataType::kBf16>;
      ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
  }
  return nullptr;
}

// Blocks can be streamed if each of them begins at a vector.
bool IsBlockStreamed(const void* to, size_t bytes, size_t block) {
  return ShouldStream(to, bytes) && block % kLanes == 0;
}

// ---- Selection

// Selects elements by their draws, which no number changes.
class DrawnSelection {
 public:
  // The indices of a block, valid until the next one is asked for.
  HWY_NOINLINE const uint16_t* Select(SparseFormat format, const Draws& draws, size_t begin,
                                      size_t length) {
    // The smallest draw has the largest key.
    for (size_t i = 0; i < length; i += kChunk) {
      ChunkDraws scratch;
      const size_t count = std::min(kChunk, length - i);
      const uint32_t* draw = FillDraws(draws, begin + i, count, scratch);
      for (size_t k = 0; k < count; ++k) {
        word_[i + k] = static_cast<int32_t>(draw[k] ^ uint32_t{kMagnitude});
      }
    }
    std::fill(word_ + length, word_ + WholeVectors(length), kNoKey);
    const size_t wanted = format.SelectedOfBlock(length);
    const Keys keys = {word_, -1, WholeVectors(length)};
    selector_.Read(keys, wanted, {});
    selector_.Select(keys, wanted, {}, index_);
    return index_;
  }

 private:
  alignas(64) int32_t word_[kTile];
  SparseSelector selector_;
  uint16_t index_[kTile + 1];
};

// ---- Numbers to packets. The code is the same for the worker and the server, which differ in
// their `Source`:
//   in                      CompressInput or SparseReduceInput
//   InputType()             the type of the input in TileInput
//   ValueType()             the type that decoded values are rounded to
//   BlockAt(begin, length)  TileInput of a block, without mask
//   AheadOf(begin, length)  what to fetch for it in advance
//   Drawn(begin, length)    the indices of the drawn elements, after BlockAt

template <class Source>
class SparseEncoder {
 public:
  SparseEncoder(Source& source, float ef_decay, SparseFormat format, void* packet)
      : source_(source),
        ef_decay_(ef_decay),
        format_(format),
        writer_(format, source.in.count, packet),
        read_(ChooseRead(source.InputType(), ResidualOf(source.in))),
        write_(ChooseWrite(source.in.residual_type)),
        is_streamed_(IsBlockStreamed(source.in.residual_out,
                                     source.in.count * BytesOf(source.in.residual_type),
                                     format.block)) {}

  SparseResult Run() {
    for (size_t begin = 0; begin < source_.in.count; begin += format_.block) {
      Encode(begin, std::min(format_.block, source_.in.count - begin));
    }
    writer_.Finish();
    if (is_streamed_) hwy::FlushStream();
    return result_;
  }

 private:
  HWY_INLINE void Encode(size_t begin, size_t length) {
    const auto& in = source_.in;
    TileInput block = source_.BlockAt(begin, length);
    if (in.mask != nullptr) {
      CopyMask(in.mask, begin, length, mask_.bytes);
      block.mask = mask_.bytes;
    }
    // Whole vectors of fp32 need no copy.
    const bool is_in_place = source_.InputType() == DataType::kF32 && block.residual == nullptr &&
                             block.mask == nullptr && length % kLanes == 0;
    const BlockAhead ahead = AheadOf(begin + length);
    const float* z = z_;
    if (is_in_place) {
      z = static_cast<const float*>(block.input);
    } else {
      read_(block, ef_decay_, ahead.read, z_);
    }
    const Keys magnitudes = {z, kMagnitude, WholeVectors(length)};
    const Keys keys = block.mask == nullptr ? magnitudes : MaskedKeys(magnitudes, length);
    selected_.count = format_.SelectedOfBlock(length);
    const bool is_finite = selector_.Read(keys, selected_.count, ahead.sweep) < kLimit;
    if (HWY_UNLIKELY(!is_finite)) {
      ++result_.nonfinite_blocks;
      result_.is_finite = false;
    }
    if (format_.codec.is_random) {
      std::copy_n(source_.Drawn(begin, length), selected_.count, selected_.index);
    } else if (is_finite) {
      selector_.Select(keys, selected_.count, ahead.select, selected_.index);
    } else {
      SelectFirst(block.mask, length);
    }
    const auto takes_part = [&](size_t j) {
      return block.mask == nullptr || reference::BitAt(block.mask, selected_.index[j]);
    };
    size_t participants = selected_.count;
    for (size_t j = 0; j < selected_.count; ++j) selected_.value[j] = z[selected_.index[j]];
    std::fill_n(selected_.value + selected_.count, kLanes, 0.0f);
    if (block.mask != nullptr) {
      participants = 0;
      for (size_t j = 0; j < selected_.count; ++j) participants += takes_part(j) ? 1 : 0;
    }
    writer_.Write(is_finite, participants, selected_);
    if (in.residual_out == nullptr) return;
    for (size_t j = 0; j < selected_.count; ++j) {
      if (!takes_part(j)) continue;
      float& lost = z_[selected_.index[j]];
      lost -= RoundTo(source_.ValueType(), selected_.value[j]);
      if (!(std::fabs(lost) <= 0x1.fffffep127f)) result_.is_finite = false;
    }
    write_(z_, length, is_streamed_, At(in.residual_out, in.residual_type, begin));
  }

  // Names the memory of the block that begins at `begin`.
  BlockAhead AheadOf(size_t begin) const {
    const size_t length = std::min(format_.block, source_.in.count - begin);
    return source_.AheadOf(begin, length);
  }

  // Elements outside the mask come after all others, but before what fills the last vector.
  HWY_INLINE Keys MaskedKeys(const Keys& magnitudes, size_t length) {
    for (size_t i = 0; i < magnitudes.count; i += kLanes) {
      const auto takes_part = MaskOfBits(kI32, mask_.bytes, i);
      hn::Store(hn::IfThenElse(takes_part, magnitudes.At(i), hn::Set(kI32, -1)), kI32, word_ + i);
    }
    std::fill(word_ + length, word_ + magnitudes.count, kNoKey);
    return {word_, -1, magnitudes.count};
  }

  // Selects as if all elements were equally large.
  void SelectFirst(const uint8_t* mask, size_t length) {
    const auto takes_part = [&](size_t i) { return mask == nullptr || reference::BitAt(mask, i); };
    size_t participants = 0;
    for (size_t i = 0; i < length; ++i) participants += takes_part(i) ? 1 : 0;
    size_t others = selected_.count - std::min(selected_.count, participants);
    size_t chosen = 0;
    for (size_t i = 0; chosen < selected_.count; ++i) {
      if (!takes_part(i)) {
        if (others == 0) continue;
        --others;
      } else if (participants == 0) {
        continue;
      }
      selected_.index[chosen++] = static_cast<uint16_t>(i);
    }
  }

  Source& source_;
  const float ef_decay_;
  const SparseFormat format_;
  SparsePacketWriter writer_;
  const ReadBlock read_;
  const WriteBlock write_;
  const bool is_streamed_;
  SparseResult result_;
  alignas(64) float z_[kTile];
  alignas(64) int32_t word_[kTile];
  TileBits mask_;
  SparseSelector selector_;
  SelectedValues selected_;
};

class ArrayBlocks {
 public:
  const CompressInput& in;

  ArrayBlocks(const CompressInput& input, SparseFormat format, const Draws& draws)
      : in(input), format_(format), draws_(draws) {}

  DataType InputType() const { return in.input_type; }
  DataType ValueType() const { return in.scale_type; }
  TileInput BlockAt(size_t begin, size_t length) const {
    return {.input = At(in.input, in.input_type, begin),
            .residual = At(in.residual_in, in.residual_type, begin),
            .mask = nullptr,
            .count = length};
  }
  BlockAhead AheadOf(size_t begin, size_t length) const {
    const size_t bytes = length * BytesOf(in.input_type);
    const void* const input = At(in.input, in.input_type, begin);
    if (in.residual_in == nullptr) {
      const size_t swept = bytes / 8 * 5;
      return {.read = {},
              .sweep = Ahead(input, swept),
              .select = Ahead(static_cast<const char*>(input) + swept, bytes - swept)};
    }
    return {.read = Ahead(input, bytes),
            .sweep = Ahead(At(in.residual_in, in.residual_type, begin),
                           length * BytesOf(in.residual_type)),
            .select = {}};
  }
  const uint16_t* Drawn(size_t begin, size_t length) {
    return drawn_.Select(format_, draws_, begin, length);
  }

 private:
  const SparseFormat format_;
  const Draws& draws_;
  DrawnSelection drawn_;
};

// ---- Packets to numbers

// Divides a sum by the number of ranks, unless the result is the sum. To multiply by the inverse of
// a power of two gives the same bits.
class Share {
 public:
  HWY_INLINE explicit Share(const SparseReduceInput& in)
      : divides_(!in.is_sum && (in.ranks & (in.ranks - 1)) != 0),
        ranks_(hn::Set(kF32, static_cast<float>(in.ranks))),
        factor_(hn::Set(kF32, in.is_sum ? 1.0f : 1 / static_cast<float>(in.ranks))) {}

  HWY_INLINE VF Of(VF sum) const { return divides_ ? hn::Div(sum, ranks_) : hn::Mul(sum, factor_); }

 private:
  const bool divides_;
  const VF ranks_;
  const VF factor_;
};

// Sums blocks, which are asked for in order.
class BlockSums {
 public:
  const SparseReduceInput& in;

  BlockSums(const SparseReduceInput& input, SparseFormat format, const Draws& draws)
      : in(input), format_(format), draws_(draws) {}

  DataType InputType() const { return DataType::kF32; }
  DataType ValueType() const { return in.output_type; }
  TileInput BlockAt(size_t begin, size_t length) {
    float* const y = Sum(begin, length);
    const Share share(in);
    for (size_t i = 0; i < WholeVectors(length); i += kLanes) {
      hn::Store(share.Of(hn::Load(kF32, y + i)), kF32, y + i);
    }
    return {.input = y,
            .residual = At(in.residual_in, in.residual_type, begin),
            .mask = nullptr,
            .count = length};
  }

  BlockAhead AheadOf(size_t begin, size_t length) const {
    if (in.residual_in == nullptr) return {};
    return {.read = Ahead(At(in.residual_in, in.residual_type, begin),
                          length * BytesOf(in.residual_type)),
            .sweep = {},
            .select = {}};
  }

  // The sum of all packets, with zeros up to a whole vector. Not divided yet. The caller may leave
  // it cleared behind.
  HWY_INLINE float* Sum(size_t begin, size_t length) {
    if (!is_cleared_) memset(y_, 0, sizeof(y_));
    is_cleared_ = false;
    const size_t selected = format_.SelectedOfBlock(length);
    index_ = format_.codec.is_random ? drawn_.Select(format_, draws_, begin, length) : nullptr;
    bool is_finite = true;
    for (size_t rank = 0; rank < in.ranks; ++rank) {
      const auto* packet = static_cast<const uint8_t*>(in.packets[rank]);
      is_finite =
          AddBlock(packet, format_, in.count, begin / format_.block, selected, index_, y_) &&
          is_finite;
    }
    nonfinite_blocks_ += is_finite ? 0 : 1;
    return y_;
  }
  const uint16_t* Drawn(size_t /*begin*/, size_t /*length*/) const { return index_; }
  void SetCleared() { is_cleared_ = true; }
  size_t nonfinite_blocks() const { return nonfinite_blocks_; }

 private:
  const SparseFormat format_;
  const Draws& draws_;
  size_t nonfinite_blocks_ = 0;
  bool is_cleared_ = false;
  alignas(64) float y_[kTile];
  DrawnSelection drawn_;
  const uint16_t* index_ = nullptr;  // of the drawn elements of the last block
};

// Sums of a block become outputs by these.
struct BlockOutput {
  float factor;         // of an unbiased codec
  const uint8_t* mask;  // padded, or null
  size_t count;
  bool is_streamed;
  void* to;
};

// Writes a block, and clears its sums. Returns whether the values are finite once they are stored.
template <DataType kType>
HWY_NOINLINE bool FinishBlockAs(const SparseReduceInput& in, const BlockOutput& block, float* y) {
  const BlockOutput out = block;  // stays in registers
  const Share share(in);
  const VF factor = hn::Set(kF32, out.factor);
  LargestMagnitude<kType> largest;
  const auto take = [&](size_t i) HWY_ATTR {
    VF value = hn::Mul(share.Of(hn::Load(kF32, y + i)), factor);
    if (out.mask != nullptr) value = hn::IfThenElseZero(MaskOfBits(out.mask, i), value);
    largest.Add(value);
    hn::Store(hn::Zero(kF32), kF32, y + i);
    return value;
  };
  const size_t whole = out.count / kLanes * kLanes;
  if (out.is_streamed) {
    for (size_t i = 0; i < whole; i += kLanes) StoreF32As<kType, true>(take(i), out.to, i);
  } else {
    for (size_t i = 0; i < whole; i += kLanes) StoreF32As<kType>(take(i), out.to, i);
  }
  if (whole != out.count) {
    LastVector<ElementOf<kType>> last;
    StoreF32As<kType>(take(whole), last.element, 0);
    last.Return(out.to, whole, out.count - whole);
  }
  return largest.IsFinite();
}

using FinishBlock = bool (*)(const SparseReduceInput& in, const BlockOutput& block, float* y);

FinishBlock ChooseFinish(DataType type) {
  switch (type) {
    case DataType::kF32:
      return &FinishBlockAs<DataType::kF32>;
    case DataType::kF16:
      return &FinishBlockAs<DataType::kF16>;
    case DataType::kBf16:
      return &FinishBlockAs<DataType::kBf16>;
      ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
  }
  return nullptr;
}

}  // namespace

SparseResult SparseCompress(const CompressInput& in, float ef_decay, SparseFormat format,
                            const Draws& draws, void* packet) {
  ArrayBlocks source(in, format, draws);
  SparseEncoder<ArrayBlocks> encoder(source, ef_decay, format, packet);
  return encoder.Run();
}

SparseResult SparseReduce(const SparseReduceInput& in, SparseFormat format, const Draws& draws,
                          void* packet) {
  BlockSums source(in, format, draws);
  SparseEncoder<BlockSums> encoder(source, 1, format, packet);
  return encoder.Run();
}

SparseResult SparseAverage(const SparseReduceInput& in, SparseFormat format, const Draws& draws,
                           void* output) {
  BlockSums sums(in, format, draws);
  const FinishBlock finish = ChooseFinish(in.output_type);
  const bool is_streamed =
      IsBlockStreamed(output, in.count * BytesOf(in.output_type), format.block);
  TileBits mask;
  SparseResult result;
  for (size_t begin = 0; begin < in.count; begin += format.block) {
    const size_t length = std::min(format.block, in.count - begin);
    if (in.mask != nullptr) CopyMask(in.mask, begin, length, mask.bytes);
    const BlockOutput block = {.factor = format.codec.is_unbiased ? format.Factor(length) : 1.0f,
                               .mask = in.mask == nullptr ? nullptr : mask.bytes,
                               .count = length,
                               .is_streamed = is_streamed,
                               .to = At(output, in.output_type, begin)};
    result.is_finite = finish(in, block, sums.Sum(begin, length)) && result.is_finite;
    sums.SetCleared();
  }
  if (is_streamed) hwy::FlushStream();
  result.nonfinite_blocks = sums.nonfinite_blocks();
  result.is_finite = result.is_finite && result.nonfinite_blocks == 0;
  return result;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onebit::kernels::cpu {

HWY_EXPORT(SparseCompress);
HWY_EXPORT(SparseReduce);
HWY_EXPORT(SparseAverage);

SparseResult SparseCompress(const CompressInput& in, float ef_decay, SparseFormat format,
                            const Draws& draws, void* packet) {
  const reference::FpEnvironment fp;
  return HWY_DYNAMIC_DISPATCH(SparseCompress)(in, ef_decay, format, draws, packet);
}

SparseResult SparseReduce(const SparseReduceInput& in, SparseFormat format, const Draws& draws,
                          void* packet) {
  const reference::FpEnvironment fp;
  return HWY_DYNAMIC_DISPATCH(SparseReduce)(in, format, draws, packet);
}

SparseResult SparseAverage(const SparseReduceInput& in, SparseFormat format, const Draws& draws,
                           void* output) {
  const reference::FpEnvironment fp;
  return HWY_DYNAMIC_DISPATCH(SparseAverage)(in, format, draws, output);
}

}  // namespace onebit::kernels::cpu
#endif  // HWY_ONCE
