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
  BlockScale block;
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
      ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
  }
  return value;
}

// Codes and residuals of one chunk.
template <LowBitCodec kCodec, Residual kResidual, bool kStream>
class ChunkEmitter {
 public:
  HWY_INLINE ChunkEmitter(const ChunkOutput& chunk, const float* z)
      : chunk_(chunk), coder_(chunk.block), z_(z) {}

  HWY_INLINE bool Run() {
    size_t i = 0;
#if HWY_TARGET == HWY_AVX3
    const size_t grouped = chunk_.count / kPackGroup * kPackGroup;
    if (chunk_.are_codes_streamed && reinterpret_cast<uintptr_t>(chunk_.codes) % 64 == 0) {
      for (; i < grouped; i += kPackGroup) EmitGroup<true>(i);
    } else {
      for (; i < grouped; i += kPackGroup) EmitGroup<false>(i);
    }
#endif
    if (i != chunk_.count) EmitRest(i);
    return kResidual == Residual::kNone || chunk_.value_type != DataType::kF16 ||
           largest_.IsFinite();
  }

 private:
  static constexpr DataType kStored = kResidualType<kResidual>;

#if HWY_TARGET == HWY_AVX3
  template <bool kStreamCodes>
  HWY_INLINE void EmitGroup(size_t i) {
    const VU32 a = EmitVector<kStream>(i, chunk_.residual, i);
    const VU32 b = EmitVector<kStream>(i + kLanes, chunk_.residual, i + kLanes);
    const VU32 c = EmitVector<kStream>(i + 2 * kLanes, chunk_.residual, i + 2 * kLanes);
    const VU32 d = EmitVector<kStream>(i + 3 * kLanes, chunk_.residual, i + 3 * kLanes);
    PackVectors<kCodec, kStreamCodes>(a, b, c, d, chunk_.codes + i * CodeBits(kCodec) / 8);
  }
#endif

  HWY_INLINE void EmitRest(size_t begin) {
    alignas(64) uint8_t bytes[kChunk + kPackGroup];
    const size_t whole = chunk_.count / kLanes * kLanes;
    size_t i = begin;
    for (; i < whole; i += kLanes) {
      StoreBytes(EmitVector<kStream>(i, chunk_.residual, i), bytes + (i - begin));
    }
    if (whole != chunk_.count) {
      alignas(64) ElementOf<kStored> last[kLanes];
      StoreBytes(EmitVector<false>(i, last, 0), bytes + (i - begin));
      if constexpr (kResidual != Residual::kNone) {
        memcpy(static_cast<ElementOf<kStored>*>(chunk_.residual) + whole, last,
               (chunk_.count - whole) * sizeof(last[0]));
      }
    }
    PackCodes<kCodec>(bytes, chunk_.count - begin, chunk_.codes + begin * CodeBits(kCodec) / 8);
  }

  // Returns the codes of elements i, i + 1, ..., and writes their residuals.
  template <bool kStreamResidual>
  HWY_INLINE VU32 EmitVector(size_t i, void* residual, size_t residual_i) {
    const VF z = hn::Load(kF32, z_ + i);
    if constexpr (kCodec == LowBitCodec::kInt8Stochastic) {
      return coder_.Encode(z, hn::LoadU(kU32, chunk_.draws + i));
    } else {
      Coded coded = coder_.Encode(z);
      if (kCodec == LowBitCodec::kUint8 && chunk_.mask != nullptr) {
        coded.code = hn::IfThenElseZero(MaskOfBits(kU32, chunk_.mask, i), coded.code);
      }
      if constexpr (kResidual != Residual::kNone) {
        if (HWY_UNLIKELY(chunk_.value_type != DataType::kF32)) {
          coded.value = RoundVectorTo(chunk_.value_type, coded.value);
        }
        VF lost = hn::Sub(z, coded.value);
        if (chunk_.mask != nullptr) lost = hn::IfThenElseZero(MaskOfBits(chunk_.mask, i), lost);
        StoreF32As<kStored, kStreamResidual>(lost, residual, residual_i);
        if (chunk_.value_type == DataType::kF16) {
          if (i + kLanes > chunk_.count) {
            lost = hn::IfThenElseZero(hn::FirstN(kF32, chunk_.count - i), lost);
          }
          largest_.Add(lost);
        }
      }
      return coded.code;
    }
  }

  const ChunkOutput chunk_;  // a copy, which stays in registers across stores
  const BlockCoder<kCodec> coder_;
  const float* const z_;
  // Only values that overflow fp16 make residuals infinite: z and its value are below 2^127 (1 +
  // 2^-7) and of the same sign, or close to 0.
  LargestMagnitude<kStored> largest_;
};

template <LowBitCodec kCodec, Residual kResidual, bool kStream>
HWY_NOINLINE bool EmitChunkAs(const ChunkOutput& chunk, const float* z) {
  return ChunkEmitter<kCodec, kResidual, kStream>(chunk, z).Run();
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
