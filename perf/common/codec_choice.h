// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The compression of a tool's calls: the flags --codec, --mode, --scale, --block, --k, --values,
// --hops and --levels, and what they mean together.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "onebit/onebit.h"
#include "perf/common/packet_bytes.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace onebit::perf {

enum class Mode { kDense, kPlain, kEf };

struct CodecChoice {
  Mode mode = Mode::kDense;
  onebitCodec_t codec = onebitCodecSign;
  onebitScaleRule_t scale_rule = onebitScaleL2;  // of signs
  int32_t block = 4096;                          // elements per scale, or ONEBIT_BLOCK_TENSOR
  // Sparse codecs have these, of which CompleteCodec sets k:
  int k = 0;
  onebitSparseValues_t values = onebitValuesTwoMagnitudes;
  int hops = 0;  // 0: what suits the number of ranks
  // As in onebitCompressorConfig_t. CompleteCodec sets 1 where calls cannot have two.
  int levels = 0;

  bool is_compressed() const { return mode != Mode::kDense; }
  bool is_sparse() const {
    return is_compressed() && (codec == onebitCodecTopk || codec == onebitCodecRandk);
  }
  bool has_codes() const;  // one for each element, and not a sign alone
  bool has_scale_rule() const { return codec == onebitCodecSign; }
  // True if packets depend on random draws.
  bool is_random() const {
    return is_compressed() && (codec == onebitCodecInt8Stochastic || codec == onebitCodecRandk);
  }
  // Hops of an allreduce of `ranks` ranks.
  int HopsOf(int ranks) const;

  // "sign" for plain signs, as reports have always called them.
  std::string_view mode_name() const;
  std::string_view codec_name() const;
  std::string_view scale_name() const;
  std::string block_text() const;  // "tensor" or the number
  std::string_view values_name() const;

  PacketRule packet() const;
  // Sets what a compressor's configuration says of compression.
  void Configure(onebitCompressorConfig_t* config) const;
};

// Declares --codec alone, for tools whose other flags of compression are their own. *codec has the
// default.
CLI::Option* AddCodec(CLI::App& app, onebitCodec_t* codec, const std::string& help);

// Declares the flags. The members of `choice` are the defaults without any of them; it must outlive
// the parsing.
void AddCodecFlags(CLI::App& app, CodecChoice* choice);

// Completes what the parsed flags leave open, for calls of `collective`: a codec's usual mode and
// its block. Throws UsageError if they contradict each other.
void CompleteCodec(const CLI::App& app, onebitCollective_t collective, CodecChoice* choice);

}  // namespace onebit::perf
