// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Defaults and ranges of a compressor's configuration, with an error text for each member.
#include "api/compressor_config.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "api/handles.h"
#include "api/memory_location.h"
#include "base/config_head.h"

namespace onebit {
namespace {

// Four bytes follow the last member. One that is added there would not change the size, by which
// versions of the structure are told apart.
static_assert(sizeof(onebitCompressorConfig_t) ==
              offsetof(onebitCompressorConfig_t, levels) + 2 * sizeof(int32_t));

constexpr size_t kMaxCount = SIZE_MAX / 2 / sizeof(float);  // so that no size overflows
// The structure ended before `cuts` at first, and before `levels` later.
constexpr std::array<size_t, 2> kFormerSizes = {offsetof(onebitCompressorConfig_t, cuts),
                                                offsetof(onebitCompressorConfig_t, levels)};
constexpr int32_t kMaxAlignment = 65528;  // largest multiple of 8 that fits its header member

// Returns `value`, or `fallback` if it is undefined.
int32_t Or(int32_t value, int32_t fallback) { return value == ONEBIT_UNDEF_INT ? fallback : value; }

Status Refuse(const char* member, int64_t value, const char* allowed) {
  return Error(Code::kInvalidArgument, "compressor config: {} is {}, but must be {}", member, value,
               allowed);
}

// Rows of an all-to-all-v need not be multiples of anything, but codes of a block begin at a byte.
Status CheckBlock(int32_t block, const CodecRow& row, Collective collective) {
  const CodecRow::Blocks& blocks = row.blocks;
  const bool is_in_range = block <= blocks.most;
  if (collective != Collective::kAllToAllv || !row.codec.is_low_bit()) {
    if (is_in_range && block >= blocks.least && block % blocks.multiple == 0) return OkStatus();
    return Refuse("block", block, blocks.text);
  }
  if (is_in_range && block >= 1 && static_cast<size_t>(block) * row.codec.element_bits() % 8 == 0) {
    return OkStatus();
  }
  return Refuse("block", block,
                "1 to 65536 with this codec and collective, and fill whole bytes with its codes: a "
                "multiple of 2 for 4-bit codes, of 4 for 2-bit codes");
}

// Checks members that only signs, or only other codecs, support.
Status CheckCodec(const onebitCompressorConfig_t& config, const CodecRow& row, int32_t mode,
                  int32_t block, Collective collective) {
  if (!row.codec.is_sign() && config.scaleRule != ONEBIT_UNDEF_INT) {
    return Refuse("scaleRule", config.scaleRule,
                  "left at its default unless codec is onebitCodecSign: other codecs have a rule "
                  "of their own");
  }
  if (mode == onebitModeEf && row.codec.rounds_at_random()) {
    return Refuse("mode", mode,
                  "onebitModePlain with onebitCodecInt8Stochastic: error feedback would make its "
                  "result biased");
  }
  return CheckBlock(block, row, collective);
}

// Checks what onebitCodecLossless is for, and that members without meaning for it are left alone.
Status CheckLossless(const onebitCompressorConfig_t& config, const CodecRow& row,
                     Collective collective) {
  if (!row.codec.is_lossless()) {
    if (collective != Collective::kBroadcast) return OkStatus();
    return Refuse("codec", config.codec,
                  "onebitCodecLossless for a broadcast; an all-gather takes any codec");
  }
  if (collective != Collective::kAllGather && collective != Collective::kBroadcast) {
    return Refuse("collective", config.collective,
                  "onebitCollectiveAllGather or onebitCollectiveBroadcast with this codec");
  }
  const std::pair<const char*, int32_t> without_meaning[] = {
      {"mode", config.mode},
      {"residualType", config.residualType},
      {"transactional", config.transactional},
  };
  for (const auto& [member, value] : without_meaning) {
    if (value == ONEBIT_UNDEF_INT) continue;
    return Refuse(member, value, "left undefined with this codec, which loses nothing");
  }
  if (config.levels != 0) {
    return Refuse("levels", config.levels,
                  "0 with this codec, whose calls take two levels where a dense call does");
  }
  if (config.mask != nullptr) {
    return Error(Code::kInvalidArgument,
                 "compressor config: mask must be NULL with this codec: it sends all elements");
  }
  return OkStatus();
}

// Members that only sparse codecs have.
struct SparseMembers {
  kernels::SparseCodec codec;
  int hops = 2;
  float ef_decay = 1;
};

Status CheckUndefined(const char* member, int32_t value) {
  if (value == ONEBIT_UNDEF_INT) return OkStatus();
  return Refuse(member, value,
                "left undefined unless codec is onebitCodecTopk or onebitCodecRandk");
}

Status RefuseDecay(float decay, const char* allowed) {
  return Error(Code::kInvalidArgument, "compressor config: efDecay is {}, but must be {}", decay,
               allowed);
}

// Checks that other codecs leave alone what only sparse ones support.
Status CheckNoSparseMembers(const onebitCompressorConfig_t& config) {
  ONEBIT_TRY(CheckUndefined("k", config.k));
  ONEBIT_TRY(CheckUndefined("values", config.values));
  ONEBIT_TRY(CheckUndefined("hops", config.hops));
  if (config.efDecay < 0 || config.efDecay == 1) return OkStatus();
  return RefuseDecay(config.efDecay, "1 unless codec is onebitCodecTopk or onebitCodecRandk");
}

// Checks where sparse codecs are supported.
Status CheckSparseUse(const onebitCompressorConfig_t& config, Collective collective, int32_t mode) {
  const bool is_all_reduce = collective == Collective::kAllReduce;
  const bool has_parts =
      collective == Collective::kReduceScatter || collective == Collective::kAllGather;
  if (!is_all_reduce && !has_parts) {
    return Refuse("collective", config.collective,
                  "onebitCollectiveAllReduce or, with onebitModePlain, ReduceScatter or AllGather, "
                  "with this codec");
  }
  if (has_parts && mode != onebitModePlain) {
    return Refuse("mode", mode, "onebitModePlain with this codec and collective");
  }
  if (has_parts && config.hops != ONEBIT_UNDEF_INT) {
    return Refuse("hops", config.hops, "left undefined except for an allreduce");
  }
  if (config.memory == onebitMemoryDevice) {
    return Refuse("memory", config.memory, "onebitMemoryHost with this codec");
  }
  return OkStatus();
}

Result<SparseMembers> ParseSparse(const onebitCompressorConfig_t& config, const CodecRow& row,
                                  int32_t block, int32_t mode, Collective collective,
                                  uint32_t ranks) {
  ONEBIT_TRY(CheckSparseUse(config, collective, mode));
  SparseMembers members{.codec = row.codec.sparse};
  kernels::SparseCodec& codec = members.codec;
  codec.is_unbiased = codec.is_random && mode == onebitModePlain;
  const int32_t k = Or(config.k, block / 64);
  if (k >= 1 && k <= UINT16_MAX) codec.k = static_cast<uint16_t>(k);
  if (!IsSparseBlock(codec, static_cast<size_t>(block))) {
    return Refuse("k", k, "1 to block / 2");
  }
  const int32_t values = Or(config.values, onebitValuesTwoMagnitudes);
  if (values != onebitValuesTwoMagnitudes && values != onebitValuesFloat32) {
    return Refuse("values", values, "onebitValuesTwoMagnitudes or onebitValuesFloat32");
  }
  codec.values = values == onebitValuesFloat32 ? kernels::SparseValues::kF32
                                               : kernels::SparseValues::kTwoMagnitudes;
  constexpr uint32_t kMostRanksOfOneHop = 8;
  const bool is_all_reduce = collective == Collective::kAllReduce;
  members.hops = Or(config.hops, is_all_reduce && ranks <= kMostRanksOfOneHop ? 1 : 2);
  if (members.hops != 1 && members.hops != 2) return Refuse("hops", members.hops, "1 or 2");
  if (members.hops == 1 && config.serverResidual != ONEBIT_UNDEF_INT &&
      config.serverResidual != 0) {
    return Refuse("serverResidual", config.serverResidual,
                  "0 with one hop (hops, default for up to 8 ranks), which has no servers");
  }
  if (config.efDecay >= 0) members.ef_decay = config.efDecay;
  if (!(config.efDecay <= 1))
    return RefuseDecay(config.efDecay, "from 0 to 1, or negative (default)");
  if (mode == onebitModePlain && members.ef_decay != 1) {
    return RefuseDecay(config.efDecay, "1 with onebitModePlain, which feeds nothing back");
  }
  return members;
}

// Checks members that only some collectives support.
Status CheckCollective(const onebitCompressorConfig_t& config, Collective collective, int32_t mode,
                       int32_t residual_type, size_t count) {
  if (collective != Collective::kAllReduce) {
    if (config.chunkAlignment != ONEBIT_UNDEF_INT) {
      return Refuse("chunkAlignment", config.chunkAlignment,
                    "left undefined except for an allreduce: parts have the call's count");
    }
    if (config.serverResidual != ONEBIT_UNDEF_INT) {
      return Refuse("serverResidual", config.serverResidual,
                    "left undefined except for an allreduce: nothing is compressed twice");
    }
  }
  if (collective == Collective::kAllGather && mode == onebitModeEf &&
      residual_type != onebitFloat32) {
    return Refuse("residualType", residual_type,
                  "onebitFloat32 for an all-gather, whose output is what the residual holds");
  }
  if (collective == Collective::kSendRecv && mode == onebitModeEf &&
      residual_type == onebitBfloat16) {
    return Refuse("residualType", residual_type,
                  "onebitFloat32 for a receive, whose output is what the residual holds");
  }
  if (collective != Collective::kAllToAllv) return OkStatus();
  if (mode != onebitModePlain) {
    return Refuse(
        "mode", mode,
        "onebitModePlain for an all-to-all-v: counts change from call to call, so nothing "
        "can be fed back");
  }
  if (count != 0) {
    return Error(Code::kInvalidArgument,
                 "count is {}, but must be 0 for an all-to-all-v: every call has counts of its own",
                 count);
  }
  if (config.mask != nullptr) {
    return Error(Code::kInvalidArgument,
                 "compressor config: mask must be NULL: an all-to-all-v has none");
  }
  return OkStatus();
}

// Checks where blocks may restart at cuts.
Result<std::shared_ptr<const Cuts>> ParseCuts(const onebitCompressorConfig_t& config,
                                              const CodecRow& row, int32_t block,
                                              Collective collective, size_t count) {
  if (config.cutCount == 0) return std::shared_ptr<const Cuts>();
  if (config.cuts == nullptr) {
    return Error(Code::kInvalidArgument, "compressor config: cutCount is {}, but cuts is NULL",
                 config.cutCount);
  }
  if (collective != Collective::kAllReduce || !row.codec.is_sign() || block == 0) {
    return Refuse("cutCount", static_cast<int64_t>(config.cutCount),
                  "0 except for an allreduce with onebitCodecSign and scales of blocks");
  }
  return Cuts::Create({config.cuts, config.cutCount}, count);
}

// Checks what two levels are for. Where there is one host, or one rank on each, they do nothing.
Status CheckLevels(int32_t levels, int32_t block, int hops, Collective collective) {
  if (levels < 0 || levels > 2) return Refuse("levels", levels, "0, 1 or 2");
  if (levels < 2) return OkStatus();
  if (!CanHaveLevels(collective)) {
    return Refuse("levels", levels,
                  "0 or 1 except for an allreduce, a reduce-scatter or an all-gather");
  }
  if (block == 0) {
    return Refuse("levels", levels,
                  "0 or 1 with ONEBIT_BLOCK_TENSOR: a rank knows the scale of its own part only");
  }
  if (hops == 1) return Refuse("levels", levels, "0 or 1 with one hop: set hops to 2");
  return OkStatus();
}

std::optional<Collective> CollectiveOf(int32_t collective) {
  switch (collective) {
    case onebitCollectiveAllReduce:
      return Collective::kAllReduce;
    case onebitCollectiveReduceScatter:
      return Collective::kReduceScatter;
    case onebitCollectiveAllGather:
      return Collective::kAllGather;
    case onebitCollectiveAllToAll:
      return Collective::kAllToAll;
    case onebitCollectiveAllToAllv:
      return Collective::kAllToAllv;
    case onebitCollectiveSendRecv:
      return Collective::kSendRecv;
    case onebitCollectiveBroadcast:
      return Collective::kBroadcast;
  }
  return std::nullopt;
}

}  // namespace

Result<Compressor::Config> ParseCompressorConfig(const onebitCompressorConfig_t* given,
                                                 size_t count, onebitDataType_t type,
                                                 uint32_t default_tensor_id, uint32_t ranks) {
  onebitCompressorConfig_t known = ONEBIT_COMPRESSOR_CONFIG_INIT;
  if (given != nullptr) {
    ONEBIT_TRY(CheckConfigHead("compressor config", "ONEBIT_COMPRESSOR_CONFIG_INIT",
                               {given->size, given->magic, given->version},
                               {known.size, known.magic, known.version}, kFormerSizes));
    std::memcpy(&known, given, given->size);
  }
  const onebitCompressorConfig_t* const config = &known;
  const auto data_type = TypeOf(type);
  if (!data_type) {
    return Error(Code::kInvalidArgument,
                 "datatype {} is unknown: use onebitFloat32, onebitFloat16 or onebitBfloat16",
                 static_cast<int>(type));
  }
  if (!kernels::IsCompressible(*data_type)) {
    return Error(Code::kInvalidArgument,
                 "datatype {} is for calls without a compressor only: use onebitFloat32, "
                 "onebitFloat16 or onebitBfloat16",
                 static_cast<int>(type));
  }
  if (count > kMaxCount) {
    return Error(Code::kInvalidArgument, "count is {}: more than memory can hold", count);
  }
  const int32_t mode = Or(config->mode, onebitModeEf);
  if (mode != onebitModePlain && mode != onebitModeEf) {
    return Refuse("mode", mode, "onebitModePlain or onebitModeEf");
  }
  const int32_t number = Or(config->collective, onebitCollectiveAllReduce);
  const auto collective = CollectiveOf(number);
  if (!collective) {
    return Refuse("collective", number,
                  "onebitCollectiveAllReduce, ReduceScatter, AllGather, AllToAll, AllToAllv, "
                  "SendRecv or Broadcast");
  }
  const int32_t rule = Or(config->scaleRule, onebitScaleL2);
  if (rule != onebitScaleL2 && rule != onebitScaleL1) {
    return Refuse("scaleRule", rule, "onebitScaleL2 or onebitScaleL1");
  }
  const CodecRow* const row = FindCodec(Or(config->codec, onebitCodecSign));
  if (row == nullptr) {
    return Error(Code::kInvalidArgument,
                 "compressor config: codec is {}, but must be a onebitCodec_t: {}", config->codec,
                 CodecNames());
  }
  const int32_t block = Or(config->block, static_cast<int32_t>(row->codec.block));
  ONEBIT_TRY(CheckLossless(*config, *row, *collective));
  ONEBIT_TRY(CheckCodec(*config, *row, mode, block, *collective));
  SparseMembers sparse;
  if (row->codec.is_sparse()) {
    ONEBIT_ASSIGN_OR_RETURN(sparse, ParseSparse(*config, *row, block, mode, *collective, ranks));
  } else {
    ONEBIT_TRY(CheckNoSparseMembers(*config));
  }
  const int32_t levels = Or(config->levels, 0);
  ONEBIT_TRY(CheckLevels(levels, block, sparse.hops, *collective));
  const int32_t residual = Or(config->residualType, onebitFloat32);
  if (residual != onebitFloat32 && residual != onebitBfloat16) {
    return Refuse("residualType", residual, "onebitFloat32 or onebitBfloat16");
  }
  const int32_t transactional = Or(config->transactional, 1);
  if (transactional != 0 && transactional != 1)
    return Refuse("transactional", transactional, "0 or 1");
  const int32_t alignment = Or(config->chunkAlignment, 64);
  if (alignment < 8 || alignment > kMaxAlignment || alignment % 8 != 0) {
    return Refuse("chunkAlignment", alignment, "a multiple of 8 from 8 to 65528");
  }
  const int32_t server_residual = Or(config->serverResidual, 1);
  if (server_residual != 0 && server_residual != 1) {
    return Refuse("serverResidual", server_residual, "0 or 1");
  }
  ONEBIT_TRY(CheckCollective(*config, *collective, mode, residual, count));
  ONEBIT_ASSIGN_OR_RETURN(const MemoryLocation location,
                          LocationOfResiduals(config->memory, config->device));
  ONEBIT_ASSIGN_OR_RETURN(std::shared_ptr<const Cuts> cuts,
                          ParseCuts(*config, *row, block, *collective, count));
  if (config->tensorId > UINT32_MAX) {
    return Refuse("tensorId", config->tensorId, "negative (default) or below 2^32");
  }
  return Compressor::Config{
      .codec = {.kind = row->codec.KindIn(mode == onebitModeEf && !row->codec.is_lossless()),
                .rule = rule == onebitScaleL2 ? kernels::ScaleRule::kL2 : kernels::ScaleRule::kL1,
                .low_bit = row->codec.low_bit,
                .sparse = sparse.codec,
                .block = static_cast<uint32_t>(block)},
      .count = count,
      .type = *data_type,
      .hops = sparse.hops,
      .levels = levels,
      .ef_decay = sparse.ef_decay,
      .seed = config->seed,
      .residual_type =
          residual == onebitFloat32 ? kernels::DataType::kF32 : kernels::DataType::kBf16,
      .is_transactional = transactional == 1,
      .chunk_alignment = static_cast<uint16_t>(alignment),
      .has_server_residual = server_residual == 1 && sparse.hops != 1,
      .tensor_id =
          config->tensorId < 0 ? default_tensor_id : static_cast<uint32_t>(config->tensorId),
      .collective = *collective,
      .cuts = std::move(cuts),
      .location = location,
      .devices = location.is_device() ? FindDevices() : nullptr,
  };
}

}  // namespace onebit
