// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Numbers to bf16 and back, by parts that stay in the first-level cache.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/bf16.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/bf16.h"
#include "kernels/cpu/cached_values-inl.h"
#include "kernels/cpu/low_bit_read-inl.h"
#include "kernels/cpu/stream-inl.h"
#include "kernels/reference/fp_env.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

namespace {

constexpr size_t kPart = 1024;

struct alignas(64) PartScratch {
  float sums[kPart];
  float z[kPart];
  StatisticLanes lanes;
  TileBits mask;

  // The padded mask of a part, or null.
  const uint8_t* TakeMask(const uint8_t* from, size_t begin, size_t count) {
    if (from == nullptr) return nullptr;
    CopyMask(from, begin, count, mask.bytes);
    return mask.bytes;
  }
};

// ---- Numbers to packets

// Writes what the codes of z lose, once they are rounded to fp16 if kIsF16. Returns false if some
// of it is not finite.
using WriteLost = bool (*)(const float* z, size_t count, bool is_streamed, void* residual);

template <DataType kResidual, bool kIsF16>
HWY_NOINLINE bool WriteLostAs(const float* z, size_t count, bool is_streamed, void* residual) {
  LargestMagnitude<kResidual> largest;
  const auto lost_at = [&](size_t i) HWY_ATTR {
    const VF number = hn::Load(kF32, z + i);
    VF value = F32FromBf16(hn::TruncateTo(kU16, Bf16BitsOf(number)));
    if constexpr (kIsF16) value = F32FromF16(hn::TruncateTo(kU16, F16BitsOf(value)));
    const VF lost = hn::Sub(number, value);
    largest.Add(lost);
    return lost;
  };
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    if (is_streamed) {
      StoreF32As<kResidual, true>(lost_at(i), residual, i);
    } else {
      StoreF32As<kResidual>(lost_at(i), residual, i);
    }
  }
  if (i != count) {
    StoreFirst<kResidual>(lost_at(i), count - i, static_cast<ElementOf<kResidual>*>(residual) + i);
  }
  return largest.IsFinite();
}

WriteLost ChooseWriteLost(DataType residual, DataType value) {
  const bool is_f16 = value == DataType::kF16;
  if (residual == DataType::kBf16) {
    return is_f16 ? &WriteLostAs<DataType::kBf16, true> : &WriteLostAs<DataType::kBf16, false>;
  }
  return is_f16 ? &WriteLostAs<DataType::kF32, true> : &WriteLostAs<DataType::kF32, false>;
}

// Names the codes that are not finite alike, and counts them.
HWY_NOINLINE size_t NameNonfinite(uint16_t* codes, size_t count) {
  size_t nonfinite = 0;
  for (size_t i = 0; i < count; ++i) {
    if (IsFiniteBf16(codes[i])) continue;
    codes[i] = kBf16Nan;
    ++nonfinite;
  }
  return nonfinite;
}

// Compresses what input_at(begin, count) and the residual add up to.
template <class In, class InputAt>
LowBitResult Encode(const In& in, DataType input_type, DataType value_type, LowBitPacket out,
                    PartScratch& scratch, const InputAt& input_at) {
  auto* const codes = reinterpret_cast<uint16_t*>(out.codes);
  const ReadChunk read = ReadersOf(input_type, ResidualOf(in), Statistic::kNone).load;
  const WriteLost write = ChooseWriteLost(in.residual_type, value_type);
  const bool are_codes_streamed = ShouldStream(codes, in.count * sizeof(codes[0]));
  const bool is_residual_streamed =
      ShouldStream(in.residual_out, in.count * BytesOf(in.residual_type));
  LowBitResult result;
  for (size_t begin = 0; begin < in.count; begin += kPart) {
    const size_t count = std::min(kPart, in.count - begin);
    const TileInput part = {.input = input_at(begin, count),
                            .residual = At(in.residual_in, in.residual_type, begin),
                            .mask = scratch.TakeMask(in.mask, begin, count),
                            .count = count};
    read(part, kPart, scratch.z, &scratch.lanes);
    LargestMagnitude<DataType::kBf16> largest;
    StoreOutput<DataType::kBf16>(scratch.z, nullptr, count, are_codes_streamed, codes + begin,
                                 largest);
    if (in.residual_out != nullptr && !write(scratch.z, count, is_residual_streamed,
                                             At(in.residual_out, in.residual_type, begin))) {
      result.is_finite = false;
    }
    if (HWY_UNLIKELY(!largest.IsFinite())) {
      result.nonfinite_blocks += NameNonfinite(codes + begin, count);
      result.is_finite = false;
    }
  }
  if (are_codes_streamed || is_residual_streamed) hwy::FlushStream();
  return result;
}

// ---- Packets to numbers

// Writes the sum or the mean of a part of all packets, with zeros up to a whole vector. Returns how
// many of its elements are not finite in some packet.
HWY_NOINLINE size_t SumPart(const LowBitReduceInput& in, size_t begin, size_t count, float* sums) {
  const VF divisor = hn::Set(kF32, static_cast<float>(in.ranks));
  LargestMagnitude<DataType::kF32> largest;
  const auto sum_of = [&](const auto& value_of) HWY_ATTR {
    VF sum = value_of(in.packets[0].codes);
    for (size_t rank = 1; rank < in.ranks; ++rank) {
      sum = hn::Add(sum, value_of(in.packets[rank].codes));
    }
    largest.Add(sum);
    return in.is_sum ? sum : hn::Div(sum, divisor);
  };
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto value_of = [&](const uint8_t* codes)
                              HWY_ATTR { return LoadF32<DataType::kBf16>(codes, begin + i); };
    hn::Store(sum_of(value_of), kF32, sums + i);
  }
  if (i != count) {
    const auto value_of = [&](const uint8_t* codes) HWY_ATTR {
      LastVector<uint16_t> last;
      return LoadF32<DataType::kBf16>(last.Take(codes, begin + i, count - i), 0);
    };
    hn::Store(sum_of(value_of), kF32, sums + i);
  }
  if (HWY_LIKELY(largest.IsFinite())) return 0;
  size_t nonfinite = 0;
  for (size_t k = begin; k < begin + count; ++k) {
    nonfinite += std::any_of(in.packets, in.packets + in.ranks, [k](const LowBitPacketView& from) {
      return !IsFiniteBf16(reinterpret_cast<const uint16_t*>(from.codes)[k]);
    });
  }
  return nonfinite;
}

template <DataType kType>
LowBitResult AverageAs(const LowBitReduceInput& in, ElementOf<kType>* output) {
  const bool is_streamed = ShouldStream(output, in.count * sizeof(output[0]));
  PartScratch scratch;
  LargestMagnitude<kType> largest;
  size_t nonfinite = 0;
  for (size_t begin = 0; begin < in.count; begin += kPart) {
    const size_t count = std::min(kPart, in.count - begin);
    nonfinite += SumPart(in, begin, count, scratch.sums);
    StoreOutput<kType>(scratch.sums, scratch.TakeMask(in.mask, begin, count), count, is_streamed,
                       output + begin, largest);
  }
  if (is_streamed) hwy::FlushStream();
  return {.nonfinite_blocks = nonfinite, .is_finite = nonfinite == 0 && largest.IsFinite()};
}

template <DataType kType>
LowBitResult AddDeltaAs(const LowBitDeltaInput& in, ElementOf<kType>* output) {
  const LowBitReduceInput one = {
      .packets = &in.packet, .ranks = 1, .count = in.count, .is_sum = true};
  PartScratch scratch;
  alignas(64) ElementOf<kType> dropped[kPart];  // without an output
  LargestMagnitude<kType> largest;
  size_t nonfinite = 0;
  for (size_t begin = 0; begin < in.count; begin += kPart) {
    const size_t count = std::min(kPart, in.count - begin);
    nonfinite += SumPart(one, begin, count, scratch.sums);
    TakeUpDelta(in.held_in + begin, scratch.TakeMask(in.mask, begin, count), count, scratch.sums,
                in.held_out + begin);
    StoreOutput<kType>(scratch.sums, nullptr, count, false,
                       output == nullptr ? dropped : output + begin, largest);
  }
  return {.nonfinite_blocks = nonfinite, .is_finite = nonfinite == 0 && largest.IsFinite()};
}

}  // namespace

LowBitResult Bf16Compress(const CompressInput& in, LowBitPacket out) {
  PartScratch scratch;
  return Encode(in, in.input_type, in.scale_type, out, scratch,
                [&](size_t begin, size_t) { return At(in.input, in.input_type, begin); });
}

LowBitResult Bf16Reduce(const LowBitReduceInput& in, LowBitPacket out) {
  PartScratch scratch;
  return Encode(in, DataType::kF32, in.output_type, out, scratch,
                [&](size_t begin, size_t count) -> const void* {
                  SumPart(in, begin, count, scratch.sums);
                  return scratch.sums;
                });
}

LowBitResult Bf16Average(const LowBitReduceInput& in, void* output) {
  switch (in.output_type) {
    case DataType::kF32:
      return AverageAs<DataType::kF32>(in, static_cast<float*>(output));
    case DataType::kF16:
      return AverageAs<DataType::kF16>(in, static_cast<uint16_t*>(output));
    case DataType::kBf16:
      return AverageAs<DataType::kBf16>(in, static_cast<uint16_t*>(output));
      ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
  }
  return {};
}

LowBitResult Bf16AddDelta(const LowBitDeltaInput& in, void* output) {
  switch (in.output_type) {
    case DataType::kF32:
      return AddDeltaAs<DataType::kF32>(in, static_cast<float*>(output));
    case DataType::kF16:
      return AddDeltaAs<DataType::kF16>(in, static_cast<uint16_t*>(output));
    case DataType::kBf16:
      return AddDeltaAs<DataType::kBf16>(in, static_cast<uint16_t*>(output));
      ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
  }
  return {};
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onebit::kernels::cpu {

HWY_EXPORT(Bf16Compress);
HWY_EXPORT(Bf16Reduce);
HWY_EXPORT(Bf16Average);
HWY_EXPORT(Bf16AddDelta);

LowBitResult Bf16Compress(const CompressInput& in, LowBitPacket out) {
  const reference::FpEnvironment fp;
  return HWY_DYNAMIC_DISPATCH(Bf16Compress)(in, out);
}

LowBitResult Bf16Reduce(const LowBitReduceInput& in, LowBitPacket out) {
  const reference::FpEnvironment fp;
  return HWY_DYNAMIC_DISPATCH(Bf16Reduce)(in, out);
}

LowBitResult Bf16Average(const LowBitReduceInput& in, void* output) {
  const reference::FpEnvironment fp;
  return HWY_DYNAMIC_DISPATCH(Bf16Average)(in, output);
}

LowBitResult Bf16AddDelta(const LowBitDeltaInput& in, void* output) {
  const reference::FpEnvironment fp;
  return HWY_DYNAMIC_DISPATCH(Bf16AddDelta)(in, output);
}

}  // namespace onebit::kernels::cpu
#endif  // HWY_ONCE
