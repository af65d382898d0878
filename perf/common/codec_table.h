// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The tools' table of codecs, by src/codec/FORMAT.md and independent of the library's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "onebit/onebit.h"
#include "perf/common/low_bit_model.h"

namespace onebit::perf {

struct CodecTraits {
  const char* name;  // in --codec
  onebitCodec_t codec;
  int32_t block;        // elements per scale by default
  size_t element_bits;  // of a code
  size_t scale_bytes;   // of a block's scale, and of its minimum if it has one
  // Values of --block, except in an all-to-all-v: a multiple in a range. `problem` says what is
  // wrong with others.
  struct Blocks {
    int32_t multiple;
    int32_t least;
    int32_t most;
    const char* problem;
  } blocks;
  // Codecs with a code for each element have functions for the model, low-bit ones also a code.
  const model::CodeFunctions* functions = nullptr;
  kernels::LowBitCodec low_bit = kernels::LowBitCodec::kFp4;
};

std::span<const CodecTraits> AllCodecs();
const CodecTraits& TraitsOf(onebitCodec_t codec);

// "sign 4096, fp4 128, ..."
std::string DefaultBlocks();

// Makes the model one of a codec with codes.
void SetCodec(onebitCodec_t codec, int32_t block, model::LowBitConfig* config);

}  // namespace onebit::perf
