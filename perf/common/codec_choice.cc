// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/common/codec_choice.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "perf/common/flag_kinds.h"
#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

constexpr char kPlainSigns[] = "sign";

const Names<onebitCodec_t> kCodecs = {
    {"sign", onebitCodecSign}, {"fp4", onebitCodecFp4},
    {"int8", onebitCodecInt8}, {"uint8mm", onebitCodecUint8mm},
    {"int2", onebitCodecInt2}, {"int8s", onebitCodecInt8Stochastic}};
const Names<Mode> kModes = {{"dense", Mode::kDense},
                            {"plain", Mode::kPlain},
                            {"ef", Mode::kEf},
                            {kPlainSigns, Mode::kPlain}};
const Names<onebitScaleRule_t> kScaleRules = {{"l1", onebitScaleL1}, {"l2", onebitScaleL2}};

int32_t DefaultBlock(onebitCodec_t codec) {
  switch (codec) {
    case onebitCodecFp4:
      return 128;
    case onebitCodecInt8:
    case onebitCodecUint8mm:
    case onebitCodecInt8Stochastic:
      return 256;
    case onebitCodecSign:
    case onebitCodecInt2:
      break;
  }
  return 4096;
}

size_t CodeBits(onebitCodec_t codec) {
  switch (codec) {
    case onebitCodecSign:
      return 1;
    case onebitCodecInt2:
      return 2;
    case onebitCodecFp4:
      return 4;
    case onebitCodecInt8:
    case onebitCodecUint8mm:
    case onebitCodecInt8Stochastic:
      break;
  }
  return 8;
}

// Returns what --block must be, or nothing if it is that.
std::string BlockProblem(const CodecChoice& choice, onebitCollective_t collective) {
  constexpr int32_t kLongest = 65536;
  const int32_t block = choice.block;
  // Dense calls of ranges take it for the length of a row.
  if (!choice.is_compressed() && collective == onebitCollectiveAllToAllv) return "";
  if (choice.codec == onebitCodecSign) {
    return block % 64 == 0 ? "" : "neither a multiple of 64 nor 'tensor'";
  }
  if (block == ONEBIT_BLOCK_TENSOR) return "for --codec sign";
  if (collective == onebitCollectiveAllToAllv) {
    const bool fits = block <= kLongest && block * CodeBits(choice.codec) % 8 == 0;
    return fits ? "" : fmt::format("no length up to {} whose codes fill whole bytes", kLongest);
  }
  const bool fits = block <= kLongest && block % 32 == 0;
  return fits ? "" : fmt::format("no multiple of 32 up to {}", kLongest);
}

void CheckCombination(const CLI::App& app, onebitCollective_t collective,
                      const CodecChoice& choice) {
  const std::string codec(choice.codec_name());
  if (!choice.is_compressed() && app.count("--codec") > 0) {
    throw UsageError("--mode dense sends full precision: leave out --codec " + codec);
  }
  const bool is_for_signs =
      app.count("--mode") > 0 && app.get_option("--mode")->as<std::string>() == kPlainSigns;
  if (is_for_signs && choice.codec != onebitCodecSign) {
    throw UsageError(
        fmt::format("--mode sign sends signs: with --codec {} it is --mode plain", codec));
  }
  if (choice.mode == Mode::kEf && choice.codec == onebitCodecInt8Stochastic) {
    throw UsageError("--codec int8s has no error feedback: it is --mode plain");
  }
  if (choice.mode == Mode::kEf && collective == onebitCollectiveAllToAllv) {
    throw UsageError("an all-to-all-v has no error feedback: it is --mode plain");
  }
  if (choice.is_low_bit() && app.count("--scale") > 0) {
    throw UsageError(fmt::format("--scale is for --codec sign, not {}", codec));
  }
}

}  // namespace

std::string_view CodecChoice::mode_name() const {
  const bool is_plain_sign = mode == Mode::kPlain && codec == onebitCodecSign;
  return is_plain_sign ? kPlainSigns : NameOf(kModes, mode);
}

std::string_view CodecChoice::codec_name() const { return NameOf(kCodecs, codec); }

std::string_view CodecChoice::scale_name() const { return NameOf(kScaleRules, scale_rule); }

std::string CodecChoice::block_text() const {
  return block == ONEBIT_BLOCK_TENSOR ? "tensor" : fmt::format("{}", block);
}

PacketRule CodecChoice::packet() const {
  PacketRule rule = {.block = static_cast<size_t>(block)};
  if (!is_low_bit()) return rule;
  rule.element_bits = CodeBits(codec);
  rule.scale_bytes = codec == onebitCodecUint8mm ? 4 : 2;
  rule.code_alignment = 16;
  rule.has_verdicts = mode == Mode::kEf;
  return rule;
}

void CodecChoice::Configure(onebitCompressorConfig_t* config) const {
  config->mode = mode == Mode::kEf ? onebitModeEf : onebitModePlain;
  config->codec = codec;
  config->block = block;
  if (codec == onebitCodecSign) config->scaleRule = scale_rule;
}

CLI::Option* AddCodec(CLI::App& app, onebitCodec_t* codec, const std::string& help) {
  return AddChoice(app, "--codec", kCodecs, codec, help);
}

void AddCodecFlags(CLI::App& app, CodecChoice* choice) {
  AddCodec(app, &choice->codec,
           "code of an element: its sign, or 4, 8, 8, 2 or 8 bits; s rounds at random");
  AddChoice(app, "--mode", kModes, &choice->mode,
            "full precision, no or error feedback; sign: plain signs; with --codec ef, or plain if "
            "int8s");
  AddChoice(app, "--scale", kScaleRules, &choice->scale_rule,
            "scale of a block of signs: root mean square or mean magnitude");
  AddBlock(app, &choice->block, 1)
      ->default_str("the codec's: 4096, fp4 128, int8, uint8mm and int8s 256");
}

void CompleteCodec(const CLI::App& app, onebitCollective_t collective, CodecChoice* choice) {
  if (app.count("--codec") > 0 && app.count("--mode") == 0) {
    const bool is_plain = choice->codec == onebitCodecInt8Stochastic ||
                          collective == onebitCollectiveAllToAllv ||
                          collective == onebitCollectiveSendRecv;
    choice->mode = is_plain ? Mode::kPlain : Mode::kEf;
  }
  CheckCombination(app, collective, *choice);
  if (app.count("--block") == 0) choice->block = DefaultBlock(choice->codec);
  const std::string problem = BlockProblem(*choice, collective);
  if (!problem.empty()) {
    throw UsageError(fmt::format("--block: '{}' is {}", choice->block_text(), problem));
  }
}

}  // namespace onebit::perf
