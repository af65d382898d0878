// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/common/codec_table.h"

#include <algorithm>
#include <iterator>

#include "kernels/bf16.h"

namespace onebit::perf {
namespace {

using kernels::LowBitCodec;
using model::kLowBitFunctions;
namespace reference = kernels::reference;

constexpr CodecTraits::Blocks kBlocksOfSigns = {64, 0, INT32_MAX,
                                                "neither a multiple of 64 nor 'tensor'"};
constexpr CodecTraits::Blocks kLowBitBlocks = {32, 32, 65536, "not a multiple of 32 up to 65536"};
constexpr CodecTraits::Blocks kSparseBlocks = {64, 320, 4096,
                                               "not a multiple of 64 from 320 to 4096"};

constexpr CodecTraits::Blocks kNoBlocks = {1, 1, 1, "for codecs with scales: leave out --block"};

constexpr model::CodeFunctions kBf16Functions = {
    .compress = [](const kernels::CompressInput& in, kernels::LowBitFormat, const kernels::Draws&,
                   kernels::LowBitPacket out) { return reference::Bf16Compress(in, out); },
    .reduce = [](const kernels::LowBitReduceInput& in, kernels::LowBitFormat, const kernels::Draws&,
                 kernels::LowBitPacket out) { return reference::Bf16Reduce(in, out); },
    .average = [](const kernels::LowBitReduceInput& in, kernels::LowBitFormat,
                  void* output) { return reference::Bf16Average(in, output); },
    .add_delta = [](const kernels::LowBitDeltaInput& in, kernels::LowBitFormat,
                    void* output) { return reference::Bf16AddDelta(in, output); },
};

constexpr CodecTraits kCodecs[] = {
    {"sign", onebitCodecSign, 4096, 1, 4, kBlocksOfSigns},
    {"fp4", onebitCodecFp4, 128, 4, 2, kLowBitBlocks, &kLowBitFunctions, LowBitCodec::kFp4},
    {"int8", onebitCodecInt8, 256, 8, 2, kLowBitBlocks, &kLowBitFunctions, LowBitCodec::kInt8},
    {"uint8mm", onebitCodecUint8mm, 256, 8, 4, kLowBitBlocks, &kLowBitFunctions,
     LowBitCodec::kUint8},
    {"int2", onebitCodecInt2, 4096, 2, 2, kLowBitBlocks, &kLowBitFunctions, LowBitCodec::kInt2},
    {"int8s", onebitCodecInt8Stochastic, 256, 8, 2, kLowBitBlocks, &kLowBitFunctions,
     LowBitCodec::kInt8Stochastic},
    {"topk", onebitCodecTopk, 4096, 0, 0, kSparseBlocks},
    {"randk", onebitCodecRandk, 4096, 0, 0, kSparseBlocks},
    {"bf16", onebitCodecBf16, 1, 16, 0, kNoBlocks, &kBf16Functions},
};

}  // namespace

std::span<const CodecTraits> AllCodecs() { return kCodecs; }

const CodecTraits& TraitsOf(onebitCodec_t codec) {
  return *std::find_if(std::begin(kCodecs), std::end(kCodecs) - 1,
                       [codec](const CodecTraits& traits) { return traits.codec == codec; });
}

std::string DefaultBlocks() {
  std::string text;
  for (const CodecTraits& codec : kCodecs) {
    text.append(text.empty() ? "" : ", ").append(codec.name).append(" ");
    text.append(codec.blocks.most == 1 ? "none" : std::to_string(codec.block));
  }
  return text;
}

void SetCodec(onebitCodec_t codec, int32_t block, model::LowBitConfig* config) {
  const CodecTraits& traits = TraitsOf(codec);
  config->format = {traits.low_bit, static_cast<size_t>(block)};
  config->code_bits = traits.element_bits;
  config->functions = traits.functions;
}

}  // namespace onebit::perf
