// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/common/codec_choice.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "perf/common/codec_table.h"
#include "perf/common/flag_kinds.h"
#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

constexpr char kPlainSigns[] = "sign";

const Names<onebitCodec_t> kCodecs = [] {
  Names<onebitCodec_t> names;
  for (const CodecTraits& codec : AllCodecs()) names.emplace_back(codec.name, codec.codec);
  return names;
}();
const Names<onebitSparseValues_t> kValues = {{"two", onebitValuesTwoMagnitudes},
                                             {"fp32", onebitValuesFloat32}};
const Names<Mode> kModes = {{"dense", Mode::kDense},
                            {"plain", Mode::kPlain},
                            {"ef", Mode::kEf},
                            {kPlainSigns, Mode::kPlain}};
const Names<onebitScaleRule_t> kScaleRules = {{"l1", onebitScaleL1}, {"l2", onebitScaleL2}};

bool HasParts(onebitCollective_t collective) {
  return collective == onebitCollectiveReduceScatter || collective == onebitCollectiveAllGather;
}

// True if compressed calls of the collective may pass inside hosts and then between them.
bool CanHaveLevels(onebitCollective_t collective) {
  return collective == onebitCollectiveAllReduce || HasParts(collective);
}

// Returns what --block must be, or nothing if it is that.
std::string BlockProblem(const CodecChoice& choice, onebitCollective_t collective) {
  const int32_t block = choice.block;
  const CodecTraits& codec = TraitsOf(choice.codec);
  const CodecTraits::Blocks& blocks = codec.blocks;
  // Dense calls of ranges take it for the length of a row.
  if (!choice.is_compressed() && collective == onebitCollectiveAllToAllv) return "";
  if (block == ONEBIT_BLOCK_TENSOR && blocks.least != 0) return "for --codec sign";
  if (collective == onebitCollectiveAllToAllv && choice.has_codes() && codec.scale_bytes != 0) {
    const bool fits = block <= blocks.most && block * codec.element_bits % 8 == 0;
    return fits ? ""
                : fmt::format("not a length up to {} whose codes fill whole bytes", blocks.most);
  }
  const bool fits = block % blocks.multiple == 0 && block >= blocks.least && block <= blocks.most;
  return fits ? "" : blocks.problem;
}

void CheckSparse(const CLI::App& app, onebitCollective_t collective, const CodecChoice& choice) {
  const std::string codec(choice.codec_name());
  const bool has_parts = HasParts(collective);
  if (collective != onebitCollectiveAllReduce && !has_parts) {
    throw UsageError(
        fmt::format("--codec {} is for an allreduce, reduce-scatter or all-gather", codec));
  }
  if (!has_parts) return;
  if (choice.mode == Mode::kEf) {
    throw UsageError(fmt::format("--codec {} needs --mode plain except in an allreduce", codec));
  }
  if (app.count("--hops") > 0) throw UsageError("--hops is for an allreduce");
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
        fmt::format("--mode sign sends signs: with --codec {} use --mode plain", codec));
  }
  if (choice.mode == Mode::kEf && choice.codec == onebitCodecInt8Stochastic) {
    throw UsageError("--codec int8s has no error feedback: use --mode plain");
  }
  if (choice.mode == Mode::kEf && collective == onebitCollectiveAllToAllv) {
    throw UsageError("an all-to-all-v has no error feedback: use --mode plain");
  }
  for (const char* flag : {"--k", "--values", "--hops"}) {
    const bool is_known = app.get_option_no_throw(flag) != nullptr;  // not to every tool
    if (is_known && app.count(flag) > 0 && !choice.is_sparse()) {
      throw UsageError(fmt::format("{} is for --codec topk and randk", flag));
    }
  }
  if (choice.levels != 0 && !CanHaveLevels(collective)) {
    throw UsageError("--levels is for an allreduce, reduce-scatter or all-gather");
  }
  if (choice.levels != 0 && !choice.is_compressed()) {
    throw UsageError(
        "--levels is for compressed calls: ONEBIT_TWO_LEVEL_BYTES decides for dense ones");
  }
  if (choice.is_sparse()) CheckSparse(app, collective, choice);
  if (!choice.has_scale_rule() && choice.is_compressed() && app.count("--scale") > 0) {
    throw UsageError(fmt::format("--scale is for --codec sign, not {}", codec));
  }
}

}  // namespace

std::string_view CodecChoice::mode_name() const {
  const bool is_plain_sign = mode == Mode::kPlain && codec == onebitCodecSign;
  return is_plain_sign ? kPlainSigns : NameOf(kModes, mode);
}

bool CodecChoice::has_codes() const {
  return is_compressed() && TraitsOf(codec).functions != nullptr;
}

std::string_view CodecChoice::codec_name() const { return TraitsOf(codec).name; }

std::string_view CodecChoice::values_name() const { return NameOf(kValues, values); }

int CodecChoice::HopsOf(int ranks) const {
  constexpr int kMostRanksOfOneHop = 8;
  if (hops != 0) return hops;
  return ranks <= kMostRanksOfOneHop ? 1 : 2;
}

std::string_view CodecChoice::scale_name() const { return NameOf(kScaleRules, scale_rule); }

std::string CodecChoice::block_text() const {
  return block == ONEBIT_BLOCK_TENSOR ? "tensor" : fmt::format("{}", block);
}

PacketRule CodecChoice::packet() const {
  PacketRule rule = {.block = static_cast<size_t>(block)};
  if (is_sparse()) {
    const bool is_fp32 = values == onebitValuesFloat32;
    rule.element_bits = is_fp32 ? 32 : 2;
    rule.scale_bytes = is_fp32 ? 0 : 4;
    rule.code_alignment = 16;
    rule.has_verdicts = mode == Mode::kEf;
    rule.sent_of_block = static_cast<size_t>(k);
    rule.index_bits = codec == onebitCodecTopk ? 12 : 0;
    return rule;
  }
  if (!has_codes()) return rule;
  rule.element_bits = TraitsOf(codec).element_bits;
  rule.scale_bytes = TraitsOf(codec).scale_bytes;
  rule.code_alignment = 16;
  rule.has_verdicts = mode == Mode::kEf;
  return rule;
}

void CodecChoice::Configure(onebitCompressorConfig_t* config) const {
  config->mode = mode == Mode::kEf ? onebitModeEf : onebitModePlain;
  config->codec = codec;
  config->block = block;
  config->levels = levels;
  if (codec == onebitCodecSign) config->scaleRule = scale_rule;
  if (!is_sparse()) return;
  config->k = k;
  config->values = values;
  if (hops != 0) config->hops = hops;
}

CLI::Option* AddCodec(CLI::App& app, onebitCodec_t* codec, const std::string& help) {
  return AddChoice(app, "--codec", kCodecs, codec, help);
}

void AddCodecFlags(CLI::App& app, CodecChoice* choice) {
  AddCodec(app, &choice->codec,
           "code of an element, with its bits in the name; uint8mm spans the smallest to the "
           "largest, int8s rounds at random. topk and randk send --k of each --block, the largest "
           "ones or those that all ranks draw");
  AddChoice(app, "--mode", kModes, &choice->mode,
            "full precision, no or error feedback; sign: plain signs; with --codec ef, or plain if "
            "int8s");
  AddChoice(app, "--scale", kScaleRules, &choice->scale_rule,
            "scale of a block of signs: root mean square or mean magnitude");
  AddBlock(app, &choice->block, 1)->default_str("the codec's: " + DefaultBlocks());
  AddCount(app, "--k", "elements of a block that topk and randk send", 1, 2048, &choice->k)
      ->default_str("1/64 of the block");
  AddChoice(app, "--values", kValues, &choice->values,
            "how topk and randk send values: as a sign and one of two magnitudes, or unchanged");
  AddCount(
      app, "--hops",
      "topk and randk: 1 sends packets to all ranks, 2 to a server, which sends the sum to all", 1,
      2, &choice->hops)
      ->default_str("2 with --levels 2 or more than 8 ranks, otherwise 1");
  AddCount(app, "--levels",
           "levels of a compressed allreduce, reduce-scatter or all-gather where hosts have "
           "several ranks: 2 passes inside hosts and then between them, 1 does not, 0 does if the "
           "tensor is long",
           0, 2, &choice->levels);
}

void CompleteCodec(const CLI::App& app, onebitCollective_t collective, CodecChoice* choice) {
  if (app.count("--codec") > 0 && app.count("--mode") == 0) {
    const bool is_sparse = choice->codec == onebitCodecTopk || choice->codec == onebitCodecRandk;
    const bool is_plain = choice->codec == onebitCodecInt8Stochastic ||
                          collective == onebitCollectiveAllToAllv ||
                          collective == onebitCollectiveSendRecv ||
                          (is_sparse && collective != onebitCollectiveAllReduce);
    choice->mode = is_plain ? Mode::kPlain : Mode::kEf;
  }
  CheckCombination(app, collective, *choice);
  if (app.count("--block") == 0) choice->block = TraitsOf(choice->codec).block;
  const std::string problem = BlockProblem(*choice, collective);
  if (!problem.empty()) {
    throw UsageError(fmt::format("--block: '{}' is {}", choice->block_text(), problem));
  }
  // Reports must not say that the library chooses where it has one level in any case.
  const bool has_one_level =
      !CanHaveLevels(collective) || choice->block == ONEBIT_BLOCK_TENSOR || choice->hops == 1;
  if (choice->levels == 0 && has_one_level) choice->levels = 1;
  if (!choice->is_sparse()) return;
  if (choice->k == 0) choice->k = choice->block / 64;
  const bool is_allreduce = collective == onebitCollectiveAllReduce;
  if (choice->hops == 0 && choice->levels == 2 && is_allreduce) choice->hops = 2;
  const int most = choice->block / 2;
  if (choice->k > most) {
    throw UsageError(fmt::format("--k: '{}' is more than {}, half of --block {}", choice->k, most,
                                 choice->block_text()));
  }
}

}  // namespace onebit::perf
