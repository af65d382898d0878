// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Rows of the settings and their parser.
#include "plugins/transport_ucx/settings.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <iterator>
#include <string_view>

namespace onebit::ucx {
namespace {

constexpr size_t kMostEagerBytes = 32768;
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

// UCX itself refuses names it does not know; what it could not even read is refused here.
bool IsList(std::string_view text) {
  for (const char c : text) {
    const bool is_part = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                         (c >= '0' && c <= '9') ||
                         std::string_view("_-.:,^@/").find(c) != std::string_view::npos;
    if (!is_part) return false;
  }
  return true;
}

bool ParseTls(std::string_view text, Options* options) {
  options->tls = text;
  return !text.empty() && IsList(text);
}

bool ParseNetDevices(std::string_view text, Options* options) {
  options->net_devices = text;
  return IsList(text);
}

bool ParseSharedMemory(std::string_view text, Options* options) {
  options->shared_memory = text == "1";
  return text == "0" || text == "1";
}

// The library asks without knowing the parser; what is parsed is thrown away.
template <bool (*kParse)(std::string_view, Options*)>
int Accepts(const char* text) {
  Options options;
  return kParse(text, &options) ? 1 : 0;
}

constexpr onebitTransportSetting kRows[] = {
    {.name = "ONEBIT_UCX_EAGER_BYTES",
     .type = "bytes, 0 to 32768",
     .defaultValue = "1152",
     .help = "Payloads up to this size travel with their header; 32 times this is reserved per "
             "peer; equal on all ranks.",
     .accepts = Accepts<ParseEagerBytes>},
    {.name = "ONEBIT_UCX_EARLY_BYTES",
     .type = "bytes, 0 to 1048576",
     .defaultValue = "1048576",
     .help = "Payloads up to this size, and up to 2 MiB divided by the number of ranks, set out "
             "before their receiver asks for them; 32 times this is reserved per peer; equal on "
             "all ranks.",
     .accepts = Accepts<ParseEarlyBytes>},
    {.name = "ONEBIT_UCX_TLS",
     .type = "list of UCX transports, as UCX_TLS",
     .defaultValue = "all",
     .help = "What UCX may use; \"tcp\" keeps ranks of one host from sharing memory, too.",
     .accepts = Accepts<ParseTls>},
    {.name = "ONEBIT_UCX_NET_DEVICES",
     .type = "list of network devices, as UCX_NET_DEVICES",
     .defaultValue = "",
     .help =
         "Devices that UCX may use; empty: those of ONEBIT_SOCKET_IFNAME, else all but bridges of "
         "containers, and RDMA devices in any case.",
     .accepts = Accepts<ParseNetDevices>},
    {.name = "ONEBIT_UCX_SHARED_MEMORY",
     .type = "0 or 1",
     .defaultValue = "1",
     .help = "1: ranks of one host share memory; 0: they use the network, where UCX sees a peer's "
             "death itself.",
     .accepts = Accepts<ParseSharedMemory>},
};

using Parser = bool (*)(std::string_view, Options*);
constexpr Parser kParsers[] = {ParseEagerBytes, ParseEarlyBytes, ParseTls, ParseNetDevices,
                               ParseSharedMemory};
static_assert(std::size(kParsers) == std::size(kRows));

}  // namespace

onebitResult_t ReadOptions(const onebitTransportHost& host, Options* options) {
  if (host.interfaces != nullptr) options->interfaces = host.interfaces;
  for (size_t i = 0; i < std::size(kRows); ++i) {
    const char* text = host.setting(kRows[i].name);
    if (text == nullptr || *text == '\0' || kParsers[i](text, options)) continue;
    char line[256];
    std::snprintf(line, sizeof line, "ucx: %s is \"%s\"; it must be: %s", kRows[i].name, text,
                  kRows[i].type);
    host.log(onebitLogWarn, line);
    return onebitInvalidUsage;
  }
  return onebitSuccess;
}

bool AllowsSharedMemory(const std::string& tls) {
  const bool is_exclusion = tls.starts_with('^');
  bool is_named = false;
  std::string_view rest(tls);
  if (is_exclusion) rest.remove_prefix(1);
  while (!rest.empty()) {
    const std::string_view name = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    for (const std::string_view shared : {"all", "sm", "shm", "mm", "posix", "sysv", "xpmem"}) {
      is_named |= name == shared;
    }
  }
  // Of an exclusion it is enough that one of them is named: a wrong guess costs speed only.
  return is_named != is_exclusion;
}

onebitTransportProperties DefaultProperties() {
  return {.structSize = sizeof(onebitTransportProperties),
          .name = "ucx",
          .hasHostFace = 1,
          .addressBytes = kMostAddressBytes,
          .eagerBytes = Options().eager_bytes,
          .settings = kRows,
          .settingCount = std::size(kRows),
          .survivesLoss = 1};
}

}  // namespace onebit::ucx
