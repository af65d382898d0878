// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/codec_perf_options.h"

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

constexpr std::string_view kDevice = "--device";
constexpr std::string_view kMegabytes = "--megabytes";
constexpr size_t kMostMegabytes = 4096;  // so that a count of tiles fits 32 bits

template <class Number>
std::optional<Number> NumberOf(std::string_view text) {
  Number number{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return number;
}

void SetDevice(std::string_view text, CodecPerfOptions* options) {
  constexpr std::string_view kNumbered = "cuda:";
  options->is_cuda = text != "cpu";
  options->device = 0;
  if (text == "cpu" || text == "cuda") return;
  const auto number = text.starts_with(kNumbered)
                          ? NumberOf<unsigned short>(text.substr(kNumbered.size()))
                          : std::nullopt;
  if (!number) {
    throw UsageError(fmt::format("--device: '{}' is none of cpu, cuda and cuda:N", text));
  }
  options->device = *number;
}

void SetMegabytes(std::string_view text, CodecPerfOptions* options) {
  const auto number = NumberOf<size_t>(text);
  if (!number || *number == 0 || *number > kMostMegabytes) {
    throw UsageError(
        fmt::format("--megabytes: '{}' is no number from 1 to {}", text, kMostMegabytes));
  }
  options->megabytes = *number;
}

}  // namespace

CodecPerfOptions TakeCodecPerfOptions(int* argc, char** argv) {
  CodecPerfOptions options;
  int kept = 1;
  for (int i = 1; i < *argc; ++i) {
    const std::string_view argument = argv[i];
    const std::string_view name = argument.substr(0, argument.find('='));
    if (name != kDevice && name != kMegabytes) {
      argv[kept++] = argv[i];
      continue;
    }
    std::string_view value;
    if (name.size() < argument.size()) {
      value = argument.substr(name.size() + 1);
    } else if (i + 1 < *argc) {
      value = argv[++i];
    } else {
      throw UsageError(fmt::format("{} needs a value", name));
    }
    name == kDevice ? SetDevice(value, &options) : SetMegabytes(value, &options);
  }
  argv[kept] = nullptr;
  *argc = kept;
  return options;
}

}  // namespace onebit::perf
