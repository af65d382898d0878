// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Rows of the settings and their parser.
#include "plugins/transport_nccl/settings.h"

#include <charconv>
#include <iterator>
#include <string_view>

#include "plugins/transport_nccl/nccl_address.h"

namespace onebit::nccl {
namespace {

constexpr uint64_t kMostCloseMs = 600'000;

bool ParseLibrary(std::string_view text, Options* options) {
  options->library = text;
  return true;
}

bool ParseFlag(std::string_view text, bool* flag) {
  *flag = text == "1";
  return text == "0" || text == "1";
}

bool ParseNativeDense(std::string_view text, Options* options) {
  return ParseFlag(text, &options->native_dense);
}

bool ParseBlocking(std::string_view text, Options* options) {
  return ParseFlag(text, &options->is_blocking);
}

bool ParseCloseMs(std::string_view text, Options* options) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, options->close_ms);
  return error == std::errc() && stop == end && options->close_ms <= kMostCloseMs;
}

// The library asks without knowing the parser; what is parsed is thrown away.
template <bool (*kParse)(std::string_view, Options*)>
int Accepts(const char* text) {
  Options options;
  return kParse(text, &options) ? 1 : 0;
}

constexpr onebitTransportSetting kRows[] = {
    {.name = "ONEBIT_NCCL_LIB",
     .type = "path of a file",
     .defaultValue = "",
     .help = "File of NCCL; empty: the libnccl.so.2 that the process has loaded, else the one that "
             "the system's loader finds.",
     .accepts = nullptr},
    {.name = "ONEBIT_NCCL_NATIVE_DENSE",
     .type = "0 or 1",
     .defaultValue = "0",
     .help =
         "1: dense allreduces of fp32 are NCCL's own, in full precision but not with bytes equal "
         "to those of other transports; its bytes are in no counter; equal on all ranks.",
     .accepts = Accepts<ParseNativeDense>},
    {.name = "ONEBIT_NCCL_BLOCKING",
     .type = "0 or 1",
     .defaultValue = "1",
     .help =
         "0: communicators that the library makes are NCCL's non-blocking ones: a call takes more "
         "of "
         "the processor's time, but one that connects to a peer which is gone ends by itself, not "
         "only when the communicator is aborted.",
     .accepts = Accepts<ParseBlocking>},
    {.name = "ONEBIT_NCCL_CLOSE_MS",
     .type = "milliseconds, 0 to 600000",
     .defaultValue = "5000",
     .help =
         "How long the end of a communicator waits for work that was started before; then it is "
         "aborted.",
     .accepts = Accepts<ParseCloseMs>},
};

using Parser = bool (*)(std::string_view, Options*);
constexpr Parser kParsers[] = {ParseLibrary, ParseNativeDense, ParseBlocking, ParseCloseMs};
static_assert(std::size(kParsers) == std::size(kRows));

}  // namespace

onebitResult_t ReadOptions(const plugin::BaseContext& context, Options* options) {
  for (size_t i = 0; i < std::size(kRows); ++i) {
    const char* text = context.host().setting(kRows[i].name);
    if (text == nullptr || *text == '\0' || kParsers[i](text, options)) continue;
    context.Warn("%s is \"%s\"; it must be: %s", kRows[i].name, text, kRows[i].type);
    return onebitInvalidUsage;
  }
  return onebitSuccess;
}

onebitTransportProperties PropertiesWith(const Options& options) {
  return {.structSize = sizeof(onebitTransportProperties),
          .name = "nccl",
          .hasHostFace = 0,
          .addressBytes = sizeof(Address),
          .eagerBytes = 0,
          .settings = kRows,
          .settingCount = std::size(kRows),
          .survivesLoss = 1,
          .nativeDense = options.native_dense ? 1 : 0,
          .hasStreamFace = 1};
}

}  // namespace onebit::nccl
