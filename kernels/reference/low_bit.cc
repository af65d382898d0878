// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Numbers to low-bit codes and back, one element at a time.
#include "kernels/low_bit.h"

#include <algorithm>
#include <cmath>

#include "kernels/reference/block_sum.h"
#include "kernels/reference/elements.h"
#include "kernels/reference/fp_env.h"
#include "kernels/reference/low_bit_codes.h"
#include "kernels/reference/low_bit_scale.h"
#include "kernels/reference/philox.h"
#include "kernels/reference/residual_target.h"

namespace onebit::kernels::reference {
namespace {

float ValueAt(LowBitPacketView packet, LowBitFormat format, size_t i) {
  const size_t block = i / format.block;
  const float minimum = HasMinimum(format.codec) ? FloatOfBf16(packet.minimums[block]) : 0;
  return ValueOfCode(format.codec, CodeAt(packet.codes, format.codec, i),
                     FloatOfBf16(packet.scales[block]), minimum);
}

// The sum or the mean of all packets, without mask and residual.
float SumOfPackets(const LowBitReduceInput& in, LowBitFormat format, size_t i) {
  float sum = 0;
  for (size_t rank = 0; rank < in.ranks; ++rank) {
    const float value = ValueAt(in.packets[rank], format, i);
    // Starting from the first value instead of 0 preserves a -0.
    sum = rank == 0 ? value : sum + value;
  }
  return in.is_sum ? sum : sum / static_cast<float>(in.ranks);
}

// ---- Numbers to packets

template <class NumberAt>
LowBitStatistics StatisticsOf(LowBitCodec codec, const uint8_t* mask, size_t begin, size_t end,
                              const NumberAt& z_at) {
  LowBitStatistics block;
  for (size_t i = begin; i < end; ++i) {
    if (!TakesPart(mask, i)) continue;
    const float z = z_at(i);
    const float magnitude = std::abs(z);
    const bool is_first = block.element_count == 0;
    block.is_in_range = block.is_in_range && magnitude < kLowBitLimit;  // false for NaN
    block.largest_magnitude = std::max(block.largest_magnitude, magnitude);
    block.minimum = is_first ? z : std::min(block.minimum, z);
    block.maximum = is_first ? z : std::max(block.maximum, z);
    ++block.element_count;
  }
  if (codec == LowBitCodec::kInt2 && block.is_in_range) {
    block.sum_of_squares =
        BlockSum(end - begin, ScaleRule::kL2, [&](size_t i) { return z_at(begin + i); });
  }
  return block;
}

// Compresses z_at(i), which is 0 where masked.
template <class NumberAt>
LowBitResult Encode(LowBitFormat format, const Draws& draws, const ResidualTarget& target,
                    LowBitPacket out, const NumberAt& z_at) {
  const LowBitCodec codec = format.codec;
  LowBitResult result;
  for (size_t begin = 0; begin < target.count; begin += format.block) {
    const size_t end = std::min(target.count, begin + format.block);
    const LowBitScale block =
        ScaleOfBlock(codec, StatisticsOf(codec, target.mask, begin, end, z_at));
    out.scales[begin / format.block] = block.scale_bits;
    if (HasMinimum(codec)) out.minimums[begin / format.block] = block.minimum_bits;
    if (!block.is_finite) {
      ++result.nonfinite_blocks;
      result.is_finite = false;
    }
    for (size_t i = begin; i < end; ++i) {
      const bool has_code = block.is_finite && TakesPart(target.mask, i);
      const float z = z_at(i);  // before the residual, which may be in the same place, is written
      const uint32_t random = codec == LowBitCodec::kInt8Stochastic ? DrawOf(draws, i) : 0;
      const uint32_t code = has_code ? CodeOf(codec, z, block, random) : 0;
      WriteCode(code, codec, i, out.codes);
      if (target.residual_out == nullptr) continue;
      const float value = ValueOfCode(codec, code, block.scale, block.minimum);
      result.is_finite =
          WriteResidual(target, i, z - RoundTo(target.value_type, value)) && result.is_finite;
    }
  }
  return result;
}

// ---- Packets to numbers

// Counts the blocks that are not finite in at least one packet.
size_t CountNonfinite(const LowBitPacketView* packets, size_t ranks, LowBitFormat format,
                      size_t count) {
  size_t nonfinite = 0;
  for (size_t block = 0; block < BlockCount(count, format.block); ++block) {
    nonfinite += std::any_of(packets, packets + ranks, [&](const LowBitPacketView& packet) {
      return IsNonfiniteScale(packet.scales[block]);
    });
  }
  return nonfinite;
}

LowBitResult ResultOfPackets(const LowBitPacketView* packets, size_t ranks, LowBitFormat format,
                             size_t count) {
  const size_t nonfinite = CountNonfinite(packets, ranks, format, count);
  return {.nonfinite_blocks = nonfinite, .is_finite = nonfinite == 0};
}

void StoreOutput(float value, DataType type, size_t i, void* output, LowBitResult* result) {
  if (output != nullptr) StoreElement(value, type, i, output);
  result->is_finite = result->is_finite && std::isfinite(RoundTo(type, value));
}

}  // namespace

LowBitResult LowBitCompress(const CompressInput& in, LowBitFormat format, const Draws& draws,
                            LowBitPacket out) {
  return InDefaultFpEnvironment([&] {
    const auto z_at = [&](size_t i) -> float {
      if (!TakesPart(in.mask, i)) return 0;
      const float x = LoadElement(in.input, in.input_type, i);
      return in.residual_in == nullptr ? x : x + LoadElement(in.residual_in, in.residual_type, i);
    };
    return Encode(format, draws, WorkerTarget(in), out, z_at);
  });
}

LowBitResult LowBitReduce(const LowBitReduceInput& in, LowBitFormat format, const Draws& draws,
                          LowBitPacket out) {
  return InDefaultFpEnvironment([&] {
    const auto y_at = [&](size_t i) -> float {
      if (!TakesPart(in.mask, i)) return 0;
      const float y = SumOfPackets(in, format, i);
      return in.residual_in == nullptr ? y : y + LoadElement(in.residual_in, in.residual_type, i);
    };
    return Encode(format, draws, ServerTarget(in), out, y_at);
  });
}

LowBitResult LowBitAverage(const LowBitReduceInput& in, LowBitFormat format, void* output) {
  return InDefaultFpEnvironment([&] {
    LowBitResult result = ResultOfPackets(in.packets, in.ranks, format, in.count);
    for (size_t i = 0; i < in.count; ++i) {
      const float value = TakesPart(in.mask, i) ? SumOfPackets(in, format, i) : 0;
      StoreOutput(value, in.output_type, i, output, &result);
    }
    return result;
  });
}

LowBitResult LowBitAddDelta(const LowBitDeltaInput& in, LowBitFormat format, void* output) {
  return InDefaultFpEnvironment([&] {
    LowBitResult result = ResultOfPackets(&in.packet, 1, format, in.count);
    for (size_t i = 0; i < in.count; ++i) {
      const float held = in.held_in[i] - ValueAt(in.packet, format, i);
      in.held_out[i] = TakesPart(in.mask, i) ? held : 0;
      StoreOutput(0 - in.held_out[i], in.output_type, i, output, &result);
    }
    return result;
  });
}

LowBitResult LowBitDecode(LowBitPacketView packet, LowBitFormat format, size_t count,
                          const uint8_t* mask, DataType output_type, void* output) {
  return InDefaultFpEnvironment([&] {
    LowBitResult result = ResultOfPackets(&packet, 1, format, count);
    for (size_t i = 0; i < count; ++i) {
      const float value = TakesPart(mask, i) ? ValueAt(packet, format, i) : 0;
      StoreOutput(value, output_type, i, output, &result);
    }
    return result;
  });
}

}  // namespace onebit::kernels::reference
