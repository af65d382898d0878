// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Numbers to low-bit packets: the worker's, and the server's sum of packets.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/low_bit_encode.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/low_bit_blocks-inl.h"
#include "kernels/cpu/low_bit_read-inl.h"
#include "kernels/cpu/low_bit_sum-inl.h"
#include "kernels/low_bit.h"
#include "kernels/reference/fp_env.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

namespace {

// Sources of EncodeLowBitBlocks: an array, and a sum of packets, each plus a residual.
struct ArraySource {
  const CompressInput& in;

  DataType InputType() const { return in.input_type; }
  DataType ValueType() const { return in.scale_type; }
  TileInput ChunkAt(size_t begin, size_t count) const {
    return {.input = At(in.input, in.input_type, begin),
            .residual = At(in.residual_in, in.residual_type, begin),
            .mask = nullptr,
            .count = count};
  }
};

// Sums more than a chunk at once if blocks are short. Chunks are asked for in ascending order, by
// each reading of the piece or of a block.
class SumSource {
 public:
  const LowBitReduceInput& in;

  SumSource(const LowBitReduceInput& input, LowBitFormat format)
      : in(input),
        packets_(input, format),
        bounds_(packets_, format.codec),
        sum_(ChooseSum(format.codec)) {}

  DataType InputType() const { return DataType::kF32; }
  DataType ValueType() const { return in.output_type; }
  TileInput ChunkAt(size_t begin, size_t count) {
    if (begin < begin_ || begin + count > end_) {
      begin_ = begin;
      end_ = begin + CountOfPart(packets_, begin);
      const size_t part = end_ - begin;
      sum_(packets_, begin, part, bounds_.AreBounded(begin, part), sums_, false);
    }
    return {.input = sums_ + (begin - begin_),
            .residual = At(in.residual_in, in.residual_type, begin),
            .mask = nullptr,
            .count = count};
  }

 private:
  const LowBitPackets packets_;
  ScaleBounds bounds_;
  const SumPart sum_;
  size_t begin_ = 0;
  size_t end_ = 0;
  alignas(64) float sums_[kMaxSumCount];
};

}  // namespace

LowBitResult LowBitCompress(const CompressInput& in, LowBitFormat format, const Draws& draws,
                            LowBitPacket out) {
  ArraySource source = {in};
  return EncodeLowBitBlocks(source, format, draws, out);
}

LowBitResult LowBitReduce(const LowBitReduceInput& in, LowBitFormat format, const Draws& draws,
                          LowBitPacket out) {
  SumSource source(in, format);
  return EncodeLowBitBlocks(source, format, draws, out);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onebit::kernels::cpu {

HWY_EXPORT(LowBitCompress);
HWY_EXPORT(LowBitReduce);

LowBitResult LowBitCompress(const CompressInput& in, LowBitFormat format, const Draws& draws,
                            LowBitPacket out) {
  const reference::FpEnvironment fp;
  return HWY_DYNAMIC_DISPATCH(LowBitCompress)(in, format, draws, out);
}

LowBitResult LowBitReduce(const LowBitReduceInput& in, LowBitFormat format, const Draws& draws,
                          LowBitPacket out) {
  const reference::FpEnvironment fp;
  return HWY_DYNAMIC_DISPATCH(LowBitReduce)(in, format, draws, out);
}

}  // namespace onebit::kernels::cpu
#endif  // HWY_ONCE
