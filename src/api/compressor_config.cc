// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Defaults and ranges of a compressor's configuration, with an error text for each member.
#include "api/compressor_config.h"

#include <optional>

#include "api/handles.h"
#include "api/memory_location.h"
#include "base/config_head.h"

namespace onebit {
namespace {

constexpr size_t kMaxCount = SIZE_MAX / 2 / sizeof(float);  // so that no size overflows
constexpr int32_t kMaxBlock = 1 << 30;
constexpr int32_t kMaxAlignment = 65528;  // largest multiple of 8 that fits its header member

// Returns `value`, or `fallback` if it is undefined.
int32_t Or(int32_t value, int32_t fallback) { return value == ONEBIT_UNDEF_INT ? fallback : value; }

Status Refuse(const char* member, int64_t value, const char* allowed) {
  return Error(Code::kInvalidArgument, "compressor config: {} is {}, but may be {}", member, value,
               allowed);
}

// Checks members that only some collectives support.
Status CheckCollective(const onebitCompressorConfig_t& config, Collective collective, int32_t mode,
                       int32_t residual_type, size_t count) {
  if (collective != Collective::kAllReduce) {
    if (config.chunkAlignment != ONEBIT_UNDEF_INT) {
      return Refuse("chunkAlignment", config.chunkAlignment,
                    "left undefined but for an allreduce: parts have the call's count");
    }
    if (config.serverResidual != ONEBIT_UNDEF_INT) {
      return Refuse("serverResidual", config.serverResidual,
                    "left undefined but for an allreduce: nothing is compressed twice");
    }
  }
  if (collective == Collective::kAllGather && mode == onebitModeEf &&
      residual_type != onebitFloat32) {
    return Refuse("residualType", residual_type,
                  "onebitFloat32 for an all-gather, whose output is what the residual holds");
  }
  if (collective != Collective::kAllToAllv) return OkStatus();
  if (mode != onebitModeSign) {
    return Refuse("mode", mode,
                  "onebitModeSign for an all-to-all-v: counts change from call to call, so nothing "
                  "can be fed back");
  }
  if (count != 0) {
    return Error(
        Code::kInvalidArgument,
        "count is {}, but a compressor for an all-to-all-v has 0: every call tells its own", count);
  }
  if (config.mask != nullptr) {
    return Error(Code::kInvalidArgument,
                 "compressor config: mask is not NULL, but an all-to-all-v has none");
  }
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
  }
  return std::nullopt;
}

}  // namespace

Result<Compressor::Config> ParseCompressorConfig(const onebitCompressorConfig_t* config,
                                                 size_t count, onebitDataType_t type,
                                                 uint32_t default_tensor_id) {
  const onebitCompressorConfig_t defaults = ONEBIT_COMPRESSOR_CONFIG_INIT;
  if (config == nullptr) config = &defaults;
  ONEBIT_TRY(CheckConfigHead("compressor config", "ONEBIT_COMPRESSOR_CONFIG_INIT",
                             {config->size, config->magic, config->version},
                             {defaults.size, defaults.magic, defaults.version}));
  const auto data_type = TypeOf(type);
  if (!data_type) {
    return Error(Code::kInvalidArgument,
                 "datatype {} is unknown: onebitFloat32, onebitFloat16 or onebitBfloat16",
                 static_cast<int>(type));
  }
  if (!kernels::IsCompressible(*data_type)) {
    return Error(
        Code::kInvalidArgument,
        "datatype {} is for calls without compressor only: onebitFloat32, onebitFloat16 or "
        "onebitBfloat16",
        static_cast<int>(type));
  }
  if (count > kMaxCount) {
    return Error(Code::kInvalidArgument, "count is {}: more than memory can hold", count);
  }
  const int32_t mode = Or(config->mode, onebitModeEf);
  if (mode != onebitModeSign && mode != onebitModeEf) {
    return Refuse("mode", mode, "onebitModeSign or onebitModeEf");
  }
  const int32_t number = Or(config->collective, onebitCollectiveAllReduce);
  const auto collective = CollectiveOf(number);
  if (!collective) {
    return Refuse("collective", number,
                  "onebitCollectiveAllReduce, ReduceScatter, AllGather, AllToAll or AllToAllv");
  }
  const int32_t rule = Or(config->scaleRule, onebitScaleL2);
  if (rule != onebitScaleL2 && rule != onebitScaleL1) {
    return Refuse("scaleRule", rule, "onebitScaleL2 or onebitScaleL1");
  }
  const int32_t block = Or(config->block, 4096);
  if (block < 0 || block > kMaxBlock ||
      block % static_cast<int32_t>(kernels::kBlockMultiple) != 0) {
    return Refuse("block", block, "ONEBIT_BLOCK_TENSOR or a multiple of 64 up to 2^30");
  }
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
  if (config->tensorId > UINT32_MAX) {
    return Refuse("tensorId", config->tensorId, "negative (default) or below 2^32");
  }
  return Compressor::Config{
      .kind = mode == onebitModeEf ? CodecKind::kEf : CodecKind::kSign,
      .count = count,
      .type = *data_type,
      .rule = rule == onebitScaleL2 ? kernels::ScaleRule::kL2 : kernels::ScaleRule::kL1,
      .block = static_cast<uint32_t>(block),
      .residual_type =
          residual == onebitFloat32 ? kernels::DataType::kF32 : kernels::DataType::kBf16,
      .is_transactional = transactional == 1,
      .chunk_alignment = static_cast<uint16_t>(alignment),
      .has_server_residual = server_residual == 1,
      .tensor_id =
          config->tensorId < 0 ? default_tensor_id : static_cast<uint32_t>(config->tensorId),
      .collective = *collective,
      .location = location,
      .devices = location.is_device() ? FindDevices() : nullptr,
  };
}

}  // namespace onebit
