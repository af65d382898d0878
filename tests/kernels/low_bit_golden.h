// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Packets of the low-bit codecs, and random numbers, that another program has computed: an
// implementation of FORMAT.md, section 15, in numpy, which shares no code with this library.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/low_bit.h"

namespace onebit::kernels {

inline constexpr size_t kGoldenCount = 80;
inline constexpr size_t kGoldenBlock = 32;  // the last block has 16 elements

// The numbers that the packets are made of: several magnitudes, both signs, and both zeros.
inline std::vector<float> GoldenNumbers() {
  std::vector<float> numbers(kGoldenCount);
  for (size_t i = 0; i < kGoldenCount; ++i) {
    const int step = static_cast<int>((37 * i + 11) % 61) - 30;
    numbers[i] = std::ldexp(static_cast<float>(step) / 8, static_cast<int>(i % 5) - 2);
  }
  numbers[40] = 0.0f;
  numbers[41] = -0.0f;
  return numbers;
}

struct GoldenPacket {
  LowBitCodec codec;
  uint16_t scales[3];
  uint16_t minimums[3];
  const char* codes;      // packed, in hexadecimal
  double relative_error;  // sum of squared errors / sum of squares; 0 if it was not computed
};

inline constexpr Draws kGoldenDraws = {
    .seed = 0x0123456789ABCDEF, .first = 0, .epoch = 3, .tensor = 7, .stream = 2};

inline constexpr GoldenPacket kGoldenPackets[] = {
    {LowBitCodec::kFp4,
     {0x3FB5, 0x401B, 0x4020},
     {0, 0, 0},
     "29f994925e29e096026e20e007127e30c106196b00b106197a90a107297a9092"
     "0f29f990020f29e0",
     0.0129732455593},
    {LowBitCodec::kInt8,
     {0x3D89, 0x3DEA, 0x3DF2},
     {0, 0, 0},
     "f711f59034f813f99743f915fc9f52fa1600a661fb1804ae70fc1a07b57ffd1c"
     "07d953fff009dd5c00000be16500f20de66d00f30fea7601f512ee7f01f614f3"
     "8102f715f88a02f817fc9203f919009a",
     2.78400100474e-05},
    {LowBitCodec::kUint8,
     {0x3D81, 0x3D99, 0x3D91},
     {0xC0F0, 0xC090, 0xC170},
     "6e896b00af6f8b6f08bf708d7310ce718f7718de72917b20ee73937f28fe7495"
     "4600bb3a244a07c93c3c4d0dd63c275014e43d29541bf13d2b5721fe3e2c5a28"
     "00d7c5f7c60ed8c7fbcd1cd9c8fed42a",
     0},
    {LowBitCodec::kInt2,
     {0x407B, 0x40B1, 0x40DD},
     {0, 0, 0},
     "b3cc36db60830d36dc73c03dc71c73cc32cb2c83",
     0.159344364153},
    {LowBitCodec::kInt8Stochastic,
     {0x3D8A, 0x3DEA, 0x3DF2},
     {0, 0, 0},
     "f711f59034f813f89843f914fca051fa1700a760fb1804af6ffc1a08b67efc1c"
     "06d953fef009dd5c00000be16400f20de56d01f30fea7601f411ee7f01f614f3"
     "8202f715f88902f818fb9203f919009a",
     0},
};

// Words of Philox4x32-10 for a counter and a key that are all 0, and all 1.
inline constexpr uint32_t kGoldenPhiloxZeros[] = {0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8};
inline constexpr uint32_t kGoldenPhiloxOnes[] = {0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD};

// Draws of elements of a tensor under kGoldenDraws.
struct GoldenDraw {
  uint64_t index;
  uint32_t random;
};
inline constexpr GoldenDraw kGoldenDrawn[] = {
    {0, 0x43CAAEF3},    {1, 0xA7DB4D05},          {2, 0x4836870A},
    {3, 0xC8271459},    {4, 0x1768C01E},          {5, 0xCCC2C5DD},
    {1000, 0xEA4B4FA2}, {4294967296, 0x66EE6155}, {17179869184, 0x680F94C4},
};

}  // namespace onebit::kernels
