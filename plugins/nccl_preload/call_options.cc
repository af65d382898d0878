// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/nccl_preload/call_options.h"

#include <onebit/nccl_ext.h>

#include <climits>
#include <cstddef>
#include <string_view>

namespace onebit::preload {
namespace {

using OptionError = std::optional<std::string>;

// NCCL refuses another magic number itself. No version of it has shorter configurations.
bool IsReadable(const CollConfig& config) {
  return config.size >= kLeastCollConfigBytes && config.magic == kConfigMagic;
}

bool IsPlain(const CollConfig& config) {
  constexpr int kUndefined = INT_MIN;
  // A longer one is of a later NCCL, and may ask for what is not known here.
  if (config.size > sizeof config) return false;
  const bool has_event = config.size == sizeof config && config.launch_completion_event != nullptr;
  const bool has_algorithm = (config.algorithms != nullptr && *config.algorithms != '\0') ||
                             config.must_have_algorithm != 1;
  return config.min_ctas == kUndefined && config.max_ctas == kUndefined &&
         config.nvls_ctas == kUndefined && config.cga_cluster_size == kUndefined &&
         config.cta_policy == kUndefined && config.profiler_tag == 0 && !has_algorithm &&
         !has_event;
}

OptionError ReadCodec(const char* text, Operation operation, CallOptions* options) {
  if (text == nullptr) return "option codec is NULL";
  Compression compression;
  if (const OptionError error = ParseCompression(text, operation, &compression)) {
    return "option codec, \"" + std::string(text) + "\": " + *error;
  }
  if (compression.codec == kOff) {
    options->is_off = true;
  } else {
    options->compression = compression;
  }
  return std::nullopt;
}

OptionError ReadOff(int value, CallOptions* options) {
  if (value != 0 && value != 1) {
    return "option off is " + std::to_string(value) + ", but must be 0 or 1";
  }
  options->is_off |= value == 1;
  return std::nullopt;
}

OptionError ReadOption(const ConfigOption& option, Operation operation, CallOptions* options) {
  switch (option.id) {
    case onebitNcclTensor:
      options->tensor = reinterpret_cast<uintptr_t>(option.value.pointer);
      return std::nullopt;
    case onebitNcclCodec:
      return ReadCodec(option.value.text, operation, options);
    case onebitNcclOff:
      return ReadOff(option.value.number, options);
    default:
      return "there is no option " + std::to_string(option.id) +
             "; the options are tensor (1), codec (2) and off (3)";
  }
}

}  // namespace

std::optional<std::string> ReadCallOptions(const CollConfig& config, Operation operation,
                                           CallOptions* options) {
  CallOptions found;
  if (!IsReadable(config)) {
    *options = {.is_plain = false};
    return std::nullopt;
  }
  found.is_plain = IsPlain(config);
  unsigned seen = 0;
  for (const ConfigOption* each = config.options; each != nullptr; each = each->next) {
    if (each->vendor != ONEBIT_NCCL_VENDOR) continue;
    if (const OptionError error = ReadOption(*each, operation, &found)) return error;
    const unsigned bit = 1u << each->id;
    if ((seen & bit) != 0) return "option " + std::to_string(each->id) + " is given twice";
    seen |= bit;
  }
  *options = found;
  return std::nullopt;
}

}  // namespace onebit::preload
