// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A call with a low-bit codec, its compressor and the bytes that it should send.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <random>
#include <vector>

#include "kernels/low_bit.h"
#include "onebit/onebit.h"
#include "perf/common/low_bit_model.h"
#include "tests/support/chunk_calls.h"

namespace onebit::testing {

inline constexpr onebitCodec_t kLowBitCodecs[] = {onebitCodecFp4, onebitCodecInt8,
                                                  onebitCodecUint8mm, onebitCodecInt2,
                                                  onebitCodecInt8Stochastic};

// All codecs with a code for each element.
inline constexpr onebitCodec_t kCodesCodecs[] = {
    onebitCodecFp4,  onebitCodecInt8,           onebitCodecUint8mm,
    onebitCodecInt2, onebitCodecInt8Stochastic, onebitCodecBf16};

// A case of any of them.
struct LowBitCase {
  onebitCollective_t collective = onebitCollectiveAllReduce;
  onebitCodec_t codec = onebitCodecFp4;
  bool has_feedback = false;
  bool is_one_exchange = false;
  model::LowBitConfig model;
  std::vector<uint8_t> packed_mask;  // of model.mask

  // Points into this case, which must outlive it.
  onebitCompressorConfig_t config() const;
  size_t elements() const;  // of the tensor
  // Bytes that `rank` sends in one call, by the formulas of FORMAT.md, sections 15 and 20.
  uint64_t WireBytes(size_t rank) const;
};
std::ostream& operator<<(std::ostream& out, const LowBitCase& c);

kernels::LowBitCodec KernelCodec(onebitCodec_t codec);
const char* TextOf(onebitCodec_t codec);
// Bytes of the payload for one piece of `count` elements, or for several whose scales come first.
uint64_t PayloadBytes(kernels::LowBitFormat format, const std::vector<size_t>& counts);

// Draws type, op, block, residual type, mask and seed at random.
LowBitCase RandomLowBitCase(onebitCollective_t collective, onebitCodec_t codec, bool has_feedback,
                            size_t ranks, size_t count, std::mt19937& random);

}  // namespace onebit::testing
