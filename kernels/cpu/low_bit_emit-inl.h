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
#include "kernels/cpu/low_bit_values-inl.h"
#include "kernels/cpu/tile-inl.h"
#include "kernels/cpu/vectors-inl.h"
#include "kernels/low_bit.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

// The destination of a chunk, and everything that its elements need besides z.
struct ChunkOutput {
  const BlockScale* scales;  // of each block; one that is not finite gets no codes
  size_t block;
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

// Codes and residuals of a chunk in one block.
template <LowBitCodec kCodec, Residual kResidual, bool kStream>
class ChunkEmitter {
 public:
  HWY_INLINE ChunkEmitter(const ChunkOutput& chunk, const float* z)
      : chunk_(chunk),
        coder_(*chunk.scales),
        z_(z),
        are_codes_streamed_(chunk.are_codes_streamed &&
                            reinterpret_cast<uintptr_t>(chunk.codes) % 64 == 0) {}

  HWY_INLINE void EmitAll() {
    size_t i = 0;
#if ONEBIT_PACKS_VECTORS
    if (chunk_.scales->inverse < kMaxGroupInverse) {
      for (; i + kVectorGroup <= chunk_.count; i += kVectorGroup) EmitGroup(i);
    }
#endif
    if (i != chunk_.count) EmitRest(i);
  }

#if ONEBIT_PACKS_VECTORS
  // Elements i, i + 1, ..., kVectorGroup of them.
  HWY_INLINE void EmitGroup(size_t i) {
    uint8_t* codes = chunk_.codes + i * CodeBits(kCodec) / 8;
#if HWY_TARGET == HWY_AVX2
    constexpr bool kHasGroups = kCodec == LowBitCodec::kFp4;
#else
    constexpr bool kHasGroups = kCodec == LowBitCodec::kFp4 && kResidual == Residual::kNone;
#endif
    if constexpr (kHasGroups) {
      EmitFp4Group(i, codes);
    } else {
      const VU32 a = EmitVector<kStream>(i, chunk_.residual, i);
      const VU32 b = EmitVector<kStream>(i + kLanes, chunk_.residual, i + kLanes);
      const VU32 c = EmitVector<kStream>(i + 2 * kLanes, chunk_.residual, i + 2 * kLanes);
      const VU32 d = EmitVector<kStream>(i + 3 * kLanes, chunk_.residual, i + 3 * kLanes);
      PackVectors<kCodec>(a, b, c, d, are_codes_streamed_, codes);
    }
  }
#endif

  // False if a residual is not finite once it is stored.
  HWY_INLINE bool AreResidualsFinite() const {
    return kResidual == Residual::kNone || chunk_.value_type != DataType::kF16 ||
           largest_.IsFinite();
  }

 private:
  static constexpr DataType kStored = kResidualType<kResidual>;

#if ONEBIT_PACKS_VECTORS
  HWY_INLINE void EmitFp4Group(size_t i, uint8_t* codes) {
    const float* at = z_ + i;
    const VF z[4] = {hn::Load(kF32, at), hn::Load(kF32, at + kLanes),
                     hn::Load(kF32, at + 2 * kLanes), hn::Load(kF32, at + 3 * kLanes)};
#if HWY_TARGET == HWY_AVX2
    const __m256i bytes = coder_.EncodeToBytes(z[0], z[1], z[2], z[3]);
    PackNarrow<4>(bytes, are_codes_streamed_, codes);
    if constexpr (kResidual != Residual::kNone) {
      VF units[4];
      UnitsOfFp4(bytes, units);
      HWY_UNROLL(4)
      for (size_t k = 0; k < 4; ++k) {
        const size_t element = i + k * kLanes;
        EmitResidual<kStream>(z[k], hn::Mul(units[k], coder_.Scale()), element, chunk_.residual,
                              element);
      }
    }
#else
    PackWords(coder_.EncodeToWords(z[0], z[1]), coder_.EncodeToWords(z[2], z[3]),
              are_codes_streamed_, codes);
#endif
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
        EmitResidual<kStreamResidual>(z, coded.value, i, residual, residual_i);
      }
      return coded.code;
    }
  }

  template <bool kStreamResidual>
  HWY_INLINE void EmitResidual(VF z, VF value, size_t i, void* residual, size_t residual_i) {
    if (HWY_UNLIKELY(chunk_.value_type != DataType::kF32)) {
      value = RoundVectorTo(chunk_.value_type, value);
    }
    VF lost = hn::Sub(z, value);
    if (chunk_.mask != nullptr) lost = hn::IfThenElseZero(MaskOfBits(chunk_.mask, i), lost);
    StoreF32As<kStored, kStreamResidual>(lost, residual, residual_i);
    if (chunk_.value_type == DataType::kF16) {
      if (i + kLanes > chunk_.count) {
        lost = hn::IfThenElseZero(hn::FirstN(kF32, chunk_.count - i), lost);
      }
      largest_.Add(lost);
    }
  }

  const ChunkOutput chunk_;  // a copy, which stays in registers across stores
  const BlockCoder<kCodec> coder_;
  const float* const z_;
  const bool are_codes_streamed_;
  // Only values that overflow fp16 make residuals infinite: z and its value are below 2^127 (1 +
  // 2^-7) and of the same sign, or close to 0.
  LargestMagnitude<kStored> largest_;
};

// The block at `begin` of a chunk.
template <LowBitCodec kCodec, Residual kResidual>
HWY_INLINE ChunkOutput PartOf(const ChunkOutput& chunk, const BlockScale& scale, size_t begin) {
  ChunkOutput part = chunk;
  part.scales = &scale;
  if (chunk.mask != nullptr) part.mask += begin / 8;
  if (chunk.draws != nullptr) part.draws += begin;
  part.count = HWY_MIN(chunk.block, chunk.count - begin);
  part.residual = At(chunk.residual, kResidualType<kResidual>, begin);
  part.codes += begin * CodeBits(kCodec) / 8;
  return part;
}

template <LowBitCodec kCodec, Residual kResidual, bool kStream>
HWY_NOINLINE bool EmitChunkAs(const ChunkOutput& chunk, const float* z) {
  bool is_finite = true;
  const BlockScale* scale = chunk.scales;
  for (size_t begin = 0; begin < chunk.count; begin += chunk.block, ++scale) {
    if (HWY_UNLIKELY(!scale->is_finite)) continue;
    ChunkEmitter<kCodec, kResidual, kStream> emitter(
        PartOf<kCodec, kResidual>(chunk, *scale, begin), z + begin);
    emitter.EmitAll();
    if (!emitter.AreResidualsFinite()) is_finite = false;
  }
  return is_finite;
}

#if ONEBIT_PACKS_VECTORS
// Emits blocks and reads others into their place, alternating after few elements. Blocks are whole
// numbers of groups and have finite scales, no element is masked, and values are fp32.
using SwapChunk = void (*)(const ChunkOutput& leaving, const TileInput& entering, float* z,
                           StatisticLanes* lanes);

template <LowBitCodec kCodec, DataType kInput, Residual kResidual, bool kStream>
HWY_NOINLINE void SwapChunkAs(const ChunkOutput& leaving, const TileInput& entering, float* z,
                              StatisticLanes* lanes) {
  const size_t count = leaving.count, block = HWY_MIN(leaving.block, count);
  const BlockScale* scale = leaving.scales;
  for (size_t begin = 0; begin < count; begin += block, ++scale, ++lanes) {
    ChunkOutput output = PartOf<kCodec, kResidual>(leaving, *scale, begin);
    TileInput input = PartOf<kInput, kResidual>(entering, begin, block);
    // Known here, so that the loop need not look.
    input.mask = output.mask = nullptr;
    output.value_type = DataType::kF32;
    ChunkEmitter<kCodec, kResidual, kStream> emitter(output, z + begin);
    PartReader<kInput, kResidual, StatisticOf(kCodec)> reader(input, z + begin, *lanes);
    for (size_t i = 0; i < block; i += kVectorGroup) {
      emitter.EmitGroup(i);
      HWY_UNROLL(4)
      for (size_t k = 0; k < kVectorGroup; k += kLanes) reader.Read(i + k);
    }
    reader.Finish();
  }
}
#endif

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

#if ONEBIT_PACKS_VECTORS
template <LowBitCodec kCodec, DataType kInput>
SwapChunk ChooseSwapChunkAs(Residual residual, bool is_streamed) {
  switch (residual) {
    case Residual::kNone:
      return &SwapChunkAs<kCodec, kInput, Residual::kNone, false>;
    case Residual::kF32:
      return is_streamed ? &SwapChunkAs<kCodec, kInput, Residual::kF32, true>
                         : &SwapChunkAs<kCodec, kInput, Residual::kF32, false>;
    case Residual::kBf16:
      return is_streamed ? &SwapChunkAs<kCodec, kInput, Residual::kBf16, true>
                         : &SwapChunkAs<kCodec, kInput, Residual::kBf16, false>;
  }
  return nullptr;
}

template <LowBitCodec kCodec>
SwapChunk ChooseSwapChunkOf(DataType input, Residual residual, bool is_streamed) {
  switch (input) {
    case DataType::kF32:
      return ChooseSwapChunkAs<kCodec, DataType::kF32>(residual, is_streamed);
    case DataType::kF16:
      return ChooseSwapChunkAs<kCodec, DataType::kF16>(residual, is_streamed);
    case DataType::kBf16:
      return ChooseSwapChunkAs<kCodec, DataType::kBf16>(residual, is_streamed);
      ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
  }
  return nullptr;
}

// Returns null for codecs that need draws.
inline SwapChunk ChooseSwapChunk(LowBitCodec codec, DataType input, Residual residual,
                                 bool is_streamed) {
  switch (codec) {
    case LowBitCodec::kFp4:
      return ChooseSwapChunkOf<LowBitCodec::kFp4>(input, residual, is_streamed);
    case LowBitCodec::kInt8:
      return ChooseSwapChunkOf<LowBitCodec::kInt8>(input, residual, is_streamed);
    case LowBitCodec::kUint8:
      return ChooseSwapChunkOf<LowBitCodec::kUint8>(input, residual, is_streamed);
    case LowBitCodec::kInt2:
      return ChooseSwapChunkOf<LowBitCodec::kInt2>(input, residual, is_streamed);
    case LowBitCodec::kInt8Stochastic:
      return nullptr;
  }
  return nullptr;
}
#endif

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
