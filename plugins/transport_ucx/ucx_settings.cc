// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/transport_ucx/ucx_settings.h"

#include <algorithm>
#include <iterator>
#include <type_traits>

#include "plugins/common/address_head.h"

namespace onebit::ucx {
namespace {

static_assert(std::is_standard_layout_v<Options>, "offsetof must be defined");

constexpr onebitTransportSetting kSettings[] = {
    // A whole window of such payloads, headers included, is about 40 KiB, which the operating
    // systems of both ends accept at once: then no message that counts as sent stays in UCX until
    // its sender calls again.
    plugin::EagerBytesSetting("ONEBIT_UCX_EAGER_BYTES", "1152", 32'768,
                              offsetof(Options, eager_bytes)),
    plugin::EarlyBytesSetting("ONEBIT_UCX_EARLY_BYTES", offsetof(Options, early_bytes)),
    // UCX goes on without names that it does not know, unless it knows none: the log warns of them.
    {.name = "ONEBIT_UCX_TLS",
     .kind = onebitSettingList,
     .values = "a list of UCX transports, as in UCX_TLS",
     .defaultValue = "all",
     .help = "What UCX may use; \"tcp\" keeps ranks of one host from sharing memory, too.",
     .offset = offsetof(Options, tls)},
    {.name = "ONEBIT_UCX_NET_DEVICES",
     .kind = onebitSettingList,
     .values = "a list of network devices, as in UCX_NET_DEVICES, with their ports",
     .defaultValue = "",
     .help = "Devices that UCX may use; empty: none if all ranks share memory, else those of "
             "ONEBIT_SOCKET_IFNAME or the one that leads to rank 0, and RDMA devices.",
     .offset = offsetof(Options, net_devices)},
    {.name = "ONEBIT_UCX_SHARED_MEMORY",
     .kind = onebitSettingBoolean,
     .values = "",
     .defaultValue = "1",
     .help = "1: ranks of one host share memory; 0: they use the network, where UCX sees a peer's "
             "death itself.",
     .offset = offsetof(Options, shares_memory)},
    {.name = "ONEBIT_UCX_RENDEZVOUS",
     .kind = onebitSettingBoolean,
     .values = "",
     .defaultValue = "0",
     .help = "1: between hosts, pieces of long payloads go by UCX's rendezvous protocol, by RDMA "
             "where the network has it, and none is sent early; equal on all ranks; takes 2 MiB "
             "per peer; tried over TCP and RoCE in software only.",
     .offset = offsetof(Options, uses_rendezvous)},
};

// `matches` tells the names that are meant; one of them suffices, for an exclusion, too.
template <typename Matches>
bool Allows(std::string_view tls, const Matches& matches) {
  const bool is_exclusion = tls.starts_with('^');
  bool is_named = false;
  std::string_view rest = tls;
  if (is_exclusion) rest.remove_prefix(1);
  while (!rest.empty()) {
    const std::string_view name = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    is_named |= name == "all" || matches(name);
  }
  return is_named != is_exclusion;
}

}  // namespace

bool AllowsSharedMemory(std::string_view tls) {
  return Allows(tls, [](std::string_view name) {  // a wrong guess costs only speed
    return name == "sm" || name == "shm" || name == "mm" || name == "posix" || name == "sysv" ||
           name == "xpmem";
  });
}

bool AllowsAdapters(std::string_view tls) {
  // An exclusion leaves some of their transports, unless it names all of them.
  const bool is_exclusion = tls.starts_with('^');
  return Allows(tls, [is_exclusion](std::string_view name) {
    const bool is_one = name.starts_with("rc") || name.starts_with("dc") || name.starts_with("ud");
    return name == "ib" || (is_one && !is_exclusion);
  });
}

onebitTransportProperties PropertiesWith(const Options& options) {
  return {.structSize = sizeof(onebitTransportProperties),
          .name = "ucx",
          .hasFrameFace = 1,
          .addressBytes = kMostAddressBytes,
          .eagerBytes = options.eager_bytes,
          .earlyBytes = options.early_bytes,
          .settings = kSettings,
          .settingCount = std::size(kSettings),
          .settingsBytes = sizeof(Options),
          .survivesLoss = 1};
}

}  // namespace onebit::ucx
