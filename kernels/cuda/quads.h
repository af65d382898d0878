// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Four neighbouring elements, or their bits: a lane's part of a group, which a warp processes at a
// time.
//
// Lane l of a warp holds the elements 4l to 4l + 3 of a group of 128. So a group is a run of
// 16-byte moves, and sum lane k of FORMAT.md is element k mod 4 of lane k / 4.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/warp.h"
#include "kernels/reference/elements.h"

namespace onebit::kernels::cuda {

inline constexpr unsigned kQuad = 4;
inline constexpr unsigned kGroup = kQuad * kLanes;

template <class T>
struct Quad {
  T at[kQuad] = {};
};

ONEBIT_KERNEL bool IsAligned(const void* at, size_t bytes) {
  return reinterpret_cast<uintptr_t>(at) % bytes == 0;
}

// Loads and stores several 32-bit words of global memory, at addresses aligned to their total size.
// Most are used once, so they are the first that a cache gives up.
#if defined(ONEBIT_CUDA_LANES)
ONEBIT_KERNEL void LoadWords(const void* at, uint32_t (&words)[4]) {
  const uint4 all = __ldcs(static_cast<const uint4*>(at));
  words[0] = all.x;
  words[1] = all.y;
  words[2] = all.z;
  words[3] = all.w;
}
ONEBIT_KERNEL void LoadWords(const void* at, uint32_t (&words)[2]) {
  const uint2 all = __ldcs(static_cast<const uint2*>(at));
  words[0] = all.x;
  words[1] = all.y;
}
ONEBIT_KERNEL void StoreWords(const uint32_t (&words)[4], void* at) {
  __stcs(static_cast<uint4*>(at), make_uint4(words[0], words[1], words[2], words[3]));
}
ONEBIT_KERNEL void StoreWords(const uint32_t (&words)[2], void* at) {
  __stcs(static_cast<uint2*>(at), make_uint2(words[0], words[1]));
}
#else
template <size_t kCount>
void LoadWords(const void* at, uint32_t (&words)[kCount]) {
  memcpy(words, at, sizeof(words));
}
template <size_t kCount>
void StoreWords(const uint32_t (&words)[kCount], void* at) {
  memcpy(at, words, sizeof(words));
}
#endif

// Convert an element's bits to fp32 and back. The GPU's own conversions equal the integer
// arithmetic of `reference` except for the payload of a NaN, which only dense results and optimizer
// states can have (FORMAT.md, "Values that are not finite").
#if defined(__CUDACC__)
ONEBIT_KERNEL float FloatOfFp16(uint32_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<uint16_t>(bits)));
  return value;
}
ONEBIT_KERNEL uint32_t Fp16OfFloat(float value) {
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
ONEBIT_KERNEL uint32_t Bf16OfFloat(float value) {
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
#else
inline float FloatOfFp16(uint32_t bits) {
  return reference::FloatOfFp16(static_cast<uint16_t>(bits));
}
using reference::Bf16OfFloat;
using reference::Fp16OfFloat;
#endif

ONEBIT_KERNEL float FloatOfBits(DataType type, uint32_t bits) {
  if (type == DataType::kF32) return std::bit_cast<float>(bits);
  return type == DataType::kBf16 ? std::bit_cast<float>(bits << 16) : FloatOfFp16(bits);
}

ONEBIT_KERNEL uint32_t BitsOfFloat(DataType type, float value) {
  if (type == DataType::kF32) return std::bit_cast<uint32_t>(value);
  return type == DataType::kBf16 ? Bf16OfFloat(value) : Fp16OfFloat(value);
}

ONEBIT_KERNEL bool IsFinite(float value) {
  return (std::bit_cast<uint32_t>(value) & 0x7F800000u) != 0x7F800000u;
}

// True if an element with these bits is finite.
ONEBIT_KERNEL bool AreBitsFinite(DataType type, uint32_t bits) {
  const uint32_t exponent = type == DataType::kF32   ? 0x7F800000u
                            : type == DataType::kF16 ? 0x7C00u
                                                     : 0x7F80u;
  return (bits & exponent) != exponent;
}

ONEBIT_KERNEL uint32_t SignBit(DataType type) {
  return type == DataType::kF32 ? 0x80000000u : 0x8000u;
}

// BytesOf for the types that quads have, as one select.
ONEBIT_KERNEL size_t BytesOfFloat(DataType type) { return type == DataType::kF32 ? 4 : 2; }

// A typed array, with a flag that says if whole quads can be moved.
template <class Void>
struct ArrayOf {
  Void* data = nullptr;
  DataType type = DataType::kF32;
  bool is_aligned = false;
};
using Input = ArrayOf<const void>;
using Output = ArrayOf<void>;

// The array that begins `offset` elements after `data`; null stays null.
template <class Void>
ONEBIT_KERNEL ArrayOf<Void> ArrayAt(Void* data, DataType type, uint64_t offset = 0) {
  using Byte = std::conditional_t<std::is_const_v<Void>, const char, char>;
  if (data == nullptr) return {nullptr, type, true};
  Void* at = static_cast<Byte*>(data) + offset * BytesOfFloat(type);
  return {at, type, IsAligned(at, kQuad * BytesOfFloat(type))};
}

// Returns the number of elements of the quad at `i` that are before `end`.
ONEBIT_KERNEL unsigned QuadCount(uint64_t i, uint64_t end) {
  return i >= end ? 0 : end - i < kQuad ? static_cast<unsigned>(end - i) : kQuad;
}

// Loads the quad at an aligned address.
template <DataType kType>
ONEBIT_KERNEL Quad<float> LoadWholeQuad(const void* at) {
  Quad<float> quad;
  if constexpr (kType == DataType::kF32) {
    uint32_t words[4];
    LoadWords(at, words);
    ONEBIT_UNROLL
    for (unsigned c = 0; c < kQuad; ++c) quad.at[c] = std::bit_cast<float>(words[c]);
  } else {
    uint32_t words[2];
    LoadWords(at, words);
    ONEBIT_UNROLL
    for (unsigned c = 0; c < kQuad; ++c) {
      quad.at[c] = FloatOfBits(kType, (words[c / 2] >> (16 * (c % 2))) & 0xFFFFu);
    }
  }
  return quad;
}

template <DataType kType>
ONEBIT_KERNEL void StoreWholeQuad(const Quad<uint32_t>& bits, void* at) {
  if constexpr (kType == DataType::kF32) {
    StoreWords(bits.at, at);
  } else {
    const uint32_t words[2] = {bits.at[0] | bits.at[1] << 16, bits.at[2] | bits.at[3] << 16};
    StoreWords(words, at);
  }
}

// Loads the first `count` elements of the quad at `i`; the others are 0.
ONEBIT_KERNEL Quad<float> LoadQuad(const Input& from, uint64_t i, unsigned count) {
  if (from.is_aligned && count == kQuad) {
    const char* const at = static_cast<const char*>(from.data) + i * BytesOfFloat(from.type);
    switch (from.type) {
      case DataType::kF32:
        return LoadWholeQuad<DataType::kF32>(at);
      case DataType::kF16:
        return LoadWholeQuad<DataType::kF16>(at);
      case DataType::kBf16:
        return LoadWholeQuad<DataType::kBf16>(at);
        ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
    }
  }
  Quad<float> quad;
  ONEBIT_UNROLL
  for (unsigned c = 0; c < kQuad; ++c) {
    if (c >= count) continue;
    quad.at[c] = from.type == DataType::kF32
                     ? static_cast<const float*>(from.data)[i + c]
                     : FloatOfBits(from.type, static_cast<const uint16_t*>(from.data)[i + c]);
  }
  return quad;
}

// Stores bits of elements in the output's type.
ONEBIT_KERNEL void StoreQuadBits(const Quad<uint32_t>& bits, const Output& to, uint64_t i,
                                 unsigned count) {
  if (to.is_aligned && count == kQuad) {
    char* const at = static_cast<char*>(to.data) + i * BytesOfFloat(to.type);
    if (to.type == DataType::kF32) {
      StoreWholeQuad<DataType::kF32>(bits, at);
    } else {
      StoreWholeQuad<DataType::kF16>(bits, at);  // or bf16, which has the same size
    }
    return;
  }
  ONEBIT_UNROLL
  for (unsigned c = 0; c < kQuad; ++c) {
    if (c >= count) continue;
    if (to.type == DataType::kF32) {
      static_cast<float*>(to.data)[i + c] = std::bit_cast<float>(bits.at[c]);
    } else {
      static_cast<uint16_t*>(to.data)[i + c] = static_cast<uint16_t>(bits.at[c]);
    }
  }
}

ONEBIT_KERNEL void StoreQuad(const Quad<float>& values, const Output& to, uint64_t i,
                             unsigned count) {
  Quad<uint32_t> bits;
  ONEBIT_UNROLL
  for (unsigned c = 0; c < kQuad; ++c) bits.at[c] = BitsOfFloat(to.type, values.at[c]);
  StoreQuadBits(bits, to, i, count);
}

// Returns four bits of a packed array at element `i`, a multiple of 4.
ONEBIT_KERNEL uint32_t NibbleAt(const uint8_t* bits, uint64_t i) {
  return (bits[i / 8] >> (i % 8)) & 0xFu;
}

// Groups whose bits a warp loads at once, 128 bytes: lane l has those of elements 32l to 32l + 31.
inline constexpr unsigned kRunGroups = 8 * sizeof(uint32_t) * kLanes / kGroup;

ONEBIT_KERNEL Lanes<uint32_t> LoadRun(const Warp& warp, const uint8_t* bits) {
  Lanes<uint32_t> run;
  warp.ForEachLane(
      [&](unsigned lane) { run[lane] = reinterpret_cast<const uint32_t*>(bits)[lane]; });
  return run;
}

// Gives each lane the bits of its quad of group `g` of a run; those from bit 4 on are of others.
ONEBIT_KERNEL Lanes<uint32_t> BitsOfGroup(const Warp& warp, const Lanes<uint32_t>& run,
                                          unsigned g) {
  Lanes<uint32_t> bits =
      warp.Shuffle(run, [&](unsigned lane) { return g * (kLanes / kRunGroups) + lane / 8; });
  warp.ForEachLane([&](unsigned lane) { bits[lane] >>= lane % 8 * kQuad; });
  return bits;
}

// Bit c is set if element i + c is one of the first `count` and takes part.
ONEBIT_KERNEL uint32_t PartOfQuad(const uint8_t* mask, uint64_t i, unsigned count) {
  const uint32_t all = (1u << count) - 1;
  return mask == nullptr || count == 0 ? all : all & NibbleAt(mask, i);
}

// Counts the set bits among four.
ONEBIT_KERNEL uint32_t CountOfNibble(uint32_t nibble) {
  return (nibble & 1) + (nibble >> 1 & 1) + (nibble >> 2 & 1) + (nibble >> 3 & 1);
}

// Bit c is is_set(element c).
template <class IsSet>
ONEBIT_KERNEL uint32_t NibbleOf(const Quad<float>& quad, const IsSet& is_set) {
  uint32_t nibble = 0;
  ONEBIT_UNROLL
  for (unsigned c = 0; c < kQuad; ++c) {
    const bool bit = is_set(quad.at[c]);
    nibble |= (bit ? 1u : 0u) << c;
  }
  return nibble;
}

// Writes the bits of the group at element `group`: four of each lane, 0 for elements from `end` on.
// `group` is a multiple of 8.
ONEBIT_KERNEL void StoreGroupBits(const Warp& warp, const Lanes<uint32_t>& nibbles, uint64_t group,
                                  uint64_t end, uint8_t* bits) {
  const Lanes<uint32_t> next = warp.ShuffleDown(nibbles, 1);
  warp.ForEachLane([&](unsigned lane) {
    const uint64_t i = group + kQuad * lane;
    if (lane % 2 != 0 || i >= end) return;
    bits[i / 8] = static_cast<uint8_t>(nibbles[lane] | next[lane] << 4);
  });
}

}  // namespace onebit::kernels::cuda
