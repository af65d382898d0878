// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/known_network.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>

#include "comm/host_lookup.h"

namespace onebit {
namespace {

// Limits the wait for the address of a name that PyTorch has resolved before.
constexpr std::chrono::milliseconds kLookup{5000};

// Unlike for our own variable, names that lead to nothing are no error.
std::optional<Interface> FirstNamed(std::span<const Interface> interfaces, std::string_view list) {
  const auto first = [&](std::string_view pattern) -> std::optional<Interface> {
    const auto selected = SelectInterfaces(interfaces, pattern);
    if (!selected.ok()) return std::nullopt;
    return selected.value().front();
  };
  if (list.starts_with('^')) return first(list);
  const std::string_view mark = list.starts_with('=') ? "=" : "";
  for (list.remove_prefix(mark.size()); !list.empty();) {
    const size_t comma = std::min(list.find(','), list.size());
    if (comma != 0) {
      const auto found = first(std::string(mark).append(list.substr(0, comma)));
      if (found) return found;
    }
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return std::nullopt;
}

std::optional<Interface> LeadingTo(std::span<const Interface> interfaces, const std::string& host) {
  constexpr uint16_t kAnyPort = 9;  // nothing is sent
  const auto addresses =
      HostLookup(host, kAnyPort).Wait(std::chrono::steady_clock::now() + kLookup);
  if (!addresses.ok()) return std::nullopt;
  for (const SocketAddress& address : addresses.value()) {
    const auto local = LocalAddressTowards(address);
    if (!local.ok()) continue;
    const auto found = std::ranges::find_if(interfaces, [&](const Interface& interface) {
      return !interface.is_loopback && interface.address.HostText() == local.value().HostText();
    });
    if (found != interfaces.end()) return *found;
  }
  return std::nullopt;
}

}  // namespace

Result<std::vector<Interface>> FindInterfaces(std::string_view pattern,
                                              const EnvironmentView& environment) {
  ONEBIT_ASSIGN_OR_RETURN(const auto interfaces, ListInterfaces());
  ONEBIT_ASSIGN_OR_RETURN(const auto selected, SelectInterfaces(interfaces, pattern));
  if (!pattern.empty()) return std::vector{selected.front()};
  // Gloo takes whole names.
  if (const auto names = environment.Find("GLOO_SOCKET_IFNAME")) {
    if (const auto found = FirstNamed(interfaces, Format("={}", *names)))
      return std::vector{*found};
  }
  if (const auto names = environment.Find("NCCL_SOCKET_IFNAME")) {
    if (const auto found = FirstNamed(interfaces, *names)) return std::vector{*found};
  }
  if (const auto host = environment.Find("MASTER_ADDR"); host && !host->empty()) {
    if (const auto found = LeadingTo(interfaces, std::string(*host))) return std::vector{*found};
  }
  return Likeliest(selected);
}

}  // namespace onebit
