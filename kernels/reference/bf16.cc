// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Numbers to bf16 and back, one element at a time.
#include "kernels/bf16.h"

#include <cmath>

#include "kernels/reference/elements.h"
#include "kernels/reference/fp_env.h"
#include "kernels/reference/residual_target.h"

namespace onebit::kernels::reference {
namespace {

uint16_t CodeAt(const LowBitPacketView& packet, size_t i) {
  return reinterpret_cast<const uint16_t*>(packet.codes)[i];
}

// Compresses z_at(i), which is 0 where masked.
template <class NumberAt>
LowBitResult Encode(const ResidualTarget& target, LowBitPacket out, const NumberAt& z_at) {
  auto* const codes = reinterpret_cast<uint16_t*>(out.codes);
  LowBitResult result;
  for (size_t i = 0; i < target.count; ++i) {
    const float z = z_at(i);  // before the residual, which may be in the same place, is written
    codes[i] = Bf16OfFloat(z);
    if (!IsFiniteBf16(codes[i])) {
      codes[i] = kBf16Nan;
      ++result.nonfinite_blocks;
      result.is_finite = false;
    }
    if (target.residual_out == nullptr) continue;
    const float lost = z - RoundTo(target.value_type, FloatOfBf16(codes[i]));
    result.is_finite = WriteResidual(target, i, lost) && result.is_finite;
  }
  return result;
}

// The sum or the mean of all packets, without mask and residual. Notes codes that are not finite.
float SumOfPackets(const LowBitReduceInput& in, size_t i, bool* is_finite) {
  float sum = 0;
  for (size_t rank = 0; rank < in.ranks; ++rank) {
    const uint16_t code = CodeAt(in.packets[rank], i);
    *is_finite = *is_finite && IsFiniteBf16(code);
    // Starting from the first value instead of 0 preserves a -0.
    sum = rank == 0 ? FloatOfBf16(code) : sum + FloatOfBf16(code);
  }
  return in.is_sum ? sum : sum / static_cast<float>(in.ranks);
}

void StoreOutput(float value, bool is_finite, DataType type, size_t i, void* output,
                 LowBitResult* result) {
  if (!is_finite) ++result->nonfinite_blocks;
  if (output != nullptr) StoreElement(value, type, i, output);
  result->is_finite = result->is_finite && is_finite && std::isfinite(RoundTo(type, value));
}

}  // namespace

LowBitResult Bf16Compress(const CompressInput& in, LowBitPacket out) {
  return InDefaultFpEnvironment([&] {
    return Encode(WorkerTarget(in), out, [&](size_t i) -> float {
      if (!TakesPart(in.mask, i)) return 0;
      const float x = LoadElement(in.input, in.input_type, i);
      return in.residual_in == nullptr ? x : x + LoadElement(in.residual_in, in.residual_type, i);
    });
  });
}

LowBitResult Bf16Reduce(const LowBitReduceInput& in, LowBitPacket out) {
  return InDefaultFpEnvironment([&] {
    return Encode(ServerTarget(in), out, [&](size_t i) -> float {
      if (!TakesPart(in.mask, i)) return 0;
      bool is_finite = true;  // if it is not, y is not
      const float y = SumOfPackets(in, i, &is_finite);
      return in.residual_in == nullptr ? y : y + LoadElement(in.residual_in, in.residual_type, i);
    });
  });
}

LowBitResult Bf16Average(const LowBitReduceInput& in, void* output) {
  return InDefaultFpEnvironment([&] {
    LowBitResult result;
    for (size_t i = 0; i < in.count; ++i) {
      bool is_finite = true;
      const float y = SumOfPackets(in, i, &is_finite);
      StoreOutput(TakesPart(in.mask, i) ? y : 0, is_finite, in.output_type, i, output, &result);
    }
    return result;
  });
}

LowBitResult Bf16AddDelta(const LowBitDeltaInput& in, void* output) {
  return InDefaultFpEnvironment([&] {
    LowBitResult result;
    for (size_t i = 0; i < in.count; ++i) {
      const uint16_t code = CodeAt(in.packet, i);
      const float held = in.held_in[i] - FloatOfBf16(code);
      in.held_out[i] = TakesPart(in.mask, i) ? held : 0;
      StoreOutput(0 - in.held_out[i], IsFiniteBf16(code), in.output_type, i, output, &result);
    }
    return result;
  });
}

}  // namespace onebit::kernels::reference
