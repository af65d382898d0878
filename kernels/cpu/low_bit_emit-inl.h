// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Writes the codes and the residuals of a chunk whose z is cached. Per-target header.
#if defined(ONEBIT_KERNELS_CPU_LOW_BIT_EMIT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEBIT_KERNELS_CPU_LOW_BIT_EMIT_INL_H_
#undef ONEBIT_KERNELS_CPU_LOW_BIT_EMIT_INL_H_
#else
#define ONEBIT_KERNELS_CPU_LOW_BIT_EMIT_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <hwy/highway.h>

#include "kernels/cpu/low_bit_codes-inl.h"
#include "kernels/cpu/low_bit_pack-inl.h"
#include "kernels/cpu/low_bit_read-inl.h"
#include "kernels/cpu/tile-inl.h"
#include "kernels/cpu/vectors-inl.h"
#include "kernels/low_bit.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

// The destination of a chunk, and what its elements need besides z.
struct ChunkOutput {
  LowBitScale block;
  const uint8_t* mask;    // padded, or null
  const uint32_t* draws;  // of kInt8Stochastic
  size_t count;           // at most kChunk
  void* residual;
  DataType value_type;  // residuals are differences from values of this type
  uint8_t* codes;
  bool are_codes_streamed;
};

// Returns false if a residual is not finite once it is stored.
using EmitChunk = bool (*)(const ChunkOutput& chunk, const float* z);

// The lowest byte of each lane.
HWY_INLINE void StoreBytes(VU32 code, uint8_t* to) {
#if HWY_TARGET == HWY_AVX3
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(code.raw));
#else
  const hn::Rebind<uint8_t, DF> d8;
  hn::StoreU(hn::TruncateTo(d8, code), d8, to);
#endif
}

HWY_INLINE VF RoundVectorTo(DataType type, VF value) {
  switch (type) {
    case DataType::kF32:
      return value;
    case DataType::kF16:
      return F32FromF16(hn::TruncateTo(kU16, F16BitsOf(value)));
    case DataType::kBf16:
      return F32FromBf16(hn::TruncateTo(kU16, Bf16BitsOf(value)));
  }
  return value;
}

template <LowBitCodec kCodec, Residual kResidual, bool kStream>
HWY_NOINLINE bool EmitChunkAs(const ChunkOutput& chunk_in_memory, const float* z) {
  constexpr DataType kStored = kResidualType<kResidual>;
  const ChunkOutput chunk = chunk_in_memory;  // stays in registers across stores
  const BlockCoder<kCodec> coder(chunk.block);
  alignas(64) uint8_t bytes[kChunk];
  // Only values that overflow fp16 make residuals infinite: z and its value are below 2^127 (1 +
  // 2^-7) and of the same sign, or close to 0.
  LargestMagnitude<kStored> largest;
  const auto emit = [&](size_t i, void* residual, size_t residual_i, bool is_last) HWY_ATTR {
    const VF number = hn::Load(kF32, z + i);
    if constexpr (kCodec == LowBitCodec::kInt8Stochastic) {
      StoreBytes(coder.Encode(number, hn::LoadU(kU32, chunk.draws + i)), bytes + i);
      return;
    } else {
      const Coded coded = coder.Encode(number);
      VU32 code = coded.code;
      if (kCodec == LowBitCodec::kUint8 && chunk.mask != nullptr) {
        code = hn::IfThenElseZero(MaskOfBits(kU32, chunk.mask, i), code);
      }
      StoreBytes(code, bytes + i);
      if constexpr (kResidual != Residual::kNone) {
        VF value = coded.value;
        if (chunk.value_type != DataType::kF32) value = RoundVectorTo(chunk.value_type, value);
        VF lost = hn::Sub(number, value);
        if (chunk.mask != nullptr) lost = hn::IfThenElseZero(MaskOfBits(chunk.mask, i), lost);
        if (is_last) {
          StoreF32As<kStored>(lost, residual, residual_i);
          lost = hn::IfThenElseZero(hn::FirstN(kF32, chunk.count - i), lost);
        } else {
          StoreF32As<kStored, kStream>(lost, residual, residual_i);
        }
        if (chunk.value_type == DataType::kF16) largest.Add(lost);
      }
    }
  };
  const size_t whole = chunk.count / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) emit(i, chunk.residual, i, false);
  if (whole != chunk.count) {
    alignas(64) ElementOf<kStored> last[kLanes];
    emit(whole, last, 0, true);
    if constexpr (kResidual != Residual::kNone) {
      memcpy(static_cast<ElementOf<kStored>*>(chunk.residual) + whole, last,
             (chunk.count - whole) * sizeof(last[0]));
    }
  }
  PackCodes<kCodec>(bytes, chunk.count, chunk.codes, chunk.are_codes_streamed);
  return largest.IsFinite();
}

// ---- Choice of the instance, once per call

template <LowBitCodec kCodec>
EmitChunk ChooseEmitChunkAs(Residual residual, bool is_streamed) {
  switch (residual) {
    case Residual::kNone:
      return &EmitChunkAs<kCodec, Residual::kNone, false>;
    case Residual::kF32:
      return is_streamed ? &EmitChunkAs<kCodec, Residual::kF32, true>
                         : &EmitChunkAs<kCodec, Residual::kF32, false>;
    case Residual::kBf16:
      return is_streamed ? &EmitChunkAs<kCodec, Residual::kBf16, true>
                         : &EmitChunkAs<kCodec, Residual::kBf16, false>;
  }
  return nullptr;
}

inline EmitChunk ChooseEmitChunk(LowBitCodec codec, Residual residual, bool is_streamed) {
  switch (codec) {
    case LowBitCodec::kFp4:
      return ChooseEmitChunkAs<LowBitCodec::kFp4>(residual, is_streamed);
    case LowBitCodec::kInt8:
      return ChooseEmitChunkAs<LowBitCodec::kInt8>(residual, is_streamed);
    case LowBitCodec::kUint8:
      return ChooseEmitChunkAs<LowBitCodec::kUint8>(residual, is_streamed);
    case LowBitCodec::kInt2:
      return ChooseEmitChunkAs<LowBitCodec::kInt2>(residual, is_streamed);
    case LowBitCodec::kInt8Stochastic:
      return &EmitChunkAs<LowBitCodec::kInt8Stochastic, Residual::kNone, false>;
  }
  return nullptr;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
