// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Rows of the settings and their parser.
#include "plugins/transport_mpi/settings.h"

#include <charconv>
#include <iterator>
#include <string_view>

#include "plugins/transport_mpi/mpi_address.h"

namespace onebit::mpi {
namespace {

// A send of such a payload is done at once to its caller, who may not come back soon, so MPI must
// not need him to deliver it. Open MPI sends up to 4096 bytes at once over shared memory, its own
// header and those of wire.h and channel.cc included; its other ways and MPICH take more.
constexpr size_t kMostEagerBytes = 3584;
constexpr size_t kMostEarlyBytes = 1048576;

bool ParseBytes(std::string_view text, size_t most, size_t* bytes) {
  const char* end = text.data() + text.size();
  size_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value > most) return false;
  *bytes = value;
  return true;
}

bool ParseEagerBytes(std::string_view text, Options* options) {
  return ParseBytes(text, kMostEagerBytes, &options->eager_bytes);
}

bool ParseEarlyBytes(std::string_view text, Options* options) {
  return ParseBytes(text, kMostEarlyBytes, &options->early_bytes);
}

bool ParseNativeDense(std::string_view text, Options* options) {
  options->native_dense = text == "1";
  return text == "0" || text == "1";
}

// The library asks without knowing the parser; what is parsed is thrown away.
template <bool (*kParse)(std::string_view, Options*)>
int Accepts(const char* text) {
  Options options;
  return kParse(text, &options) ? 1 : 0;
}

constexpr onebitTransportSetting kRows[] = {
    {.name = "ONEBIT_MPI_EAGER_BYTES",
     .type = "bytes, 0 to 3584",
     .defaultValue = "2048",
     .help = "Payloads up to this size travel with their header; 32 times this is reserved per "
             "peer; equal on all ranks.",
     .accepts = Accepts<ParseEagerBytes>},
    {.name = "ONEBIT_MPI_EARLY_BYTES",
     .type = "bytes, 0 to 1048576",
     .defaultValue = "1048576",
     .help = "Payloads up to this size, and up to 2 MiB divided by the number of ranks, set out "
             "before their receiver asks for them; 32 times this is reserved per peer; equal on "
             "all ranks.",
     .accepts = Accepts<ParseEarlyBytes>},
    {.name = "ONEBIT_MPI_NATIVE_DENSE",
     .type = "0 or 1",
     .defaultValue = "0",
     .help =
         "1: dense allreduces of fp32 are MPI's own, in full precision but not with bytes equal "
         "to those of other transports; its bytes are in no counter; equal on all ranks.",
     .accepts = Accepts<ParseNativeDense>},
};

using Parser = bool (*)(std::string_view, Options*);
constexpr Parser kParsers[] = {ParseEagerBytes, ParseEarlyBytes, ParseNativeDense};
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
          .name = "mpi",
          .hasHostFace = 1,
          .addressBytes = sizeof(Address),
          .eagerBytes = options.eager_bytes,
          .settings = kRows,
          .settingCount = std::size(kRows),
          .survivesLoss = 0,
          .nativeDense = options.native_dense ? 1 : 0};
}

}  // namespace onebit::mpi
