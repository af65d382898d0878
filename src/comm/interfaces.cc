// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

namespace onebit {
namespace {

// Bridges and virtual links of containers and virtual machines, which other hosts rarely reach.
constexpr std::string_view kVirtualPrefixes[] = {"docker", "veth", "virbr",
                                                 "br-",    "cni",  "flannel"};

int RankOf(const Interface& interface) {
  if (interface.is_loopback) return 2;
  const auto is_prefix = [&](std::string_view prefix) {
    return std::string_view(interface.name).starts_with(prefix);
  };
  return std::any_of(std::begin(kVirtualPrefixes), std::end(kVirtualPrefixes), is_prefix) ? 1 : 0;
}

std::vector<std::string_view> Split(std::string_view list) {
  std::vector<std::string_view> entries;
  while (true) {
    const size_t comma = list.find(',');
    entries.push_back(list.substr(0, comma));
    if (comma == std::string_view::npos) return entries;
    list.remove_prefix(comma + 1);
  }
}

Status Refuse(std::string_view pattern, std::string_view why,
              std::span<const Interface> interfaces) {
  std::string candidates;
  for (const Interface& interface : interfaces) {
    AppendFormat(&candidates, "{}{} ({})", candidates.empty() ? "" : ", ", interface.name,
                 interface.address.HostText());
  }
  return Error(Code::kInvalidUsage, "ONEBIT_SOCKET_IFNAME=\"{}\": {}; this host has {}", pattern,
               why, candidates.empty() ? "no interface that is up" : candidates);
}

}  // namespace

Result<std::vector<Interface>> ListInterfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return Error(Code::kSystemError, "cannot list the network interfaces: {}",
                 std::strerror(errno));
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  std::vector<Interface> interfaces;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family ||
          (entry->ifa_flags & IFF_UP) == 0) {
        continue;
      }
      // A link-local address is useless to other hosts without their interface's number.
      if (family == AF_INET6 &&
          IN6_IS_ADDR_LINKLOCAL(
              &reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr)) {
        continue;
      }
      interfaces.push_back({.name = entry->ifa_name,
                            .address = SocketAddress(entry->ifa_addr),
                            .is_loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0});
    }
  }
  return interfaces;
}

Result<std::vector<Interface>> SelectInterfaces(std::span<const Interface> interfaces,
                                                std::string_view pattern) {
  std::vector<Interface> selected;
  if (pattern.empty()) {
    selected.assign(interfaces.begin(), interfaces.end());
    std::stable_sort(selected.begin(), selected.end(),
                     [](const auto& a, const auto& b) { return RankOf(a) < RankOf(b); });
    if (selected.empty()) return Refuse(pattern, "there is nothing to select", interfaces);
    return selected;
  }
  const bool is_exclusion = pattern.front() == '^';
  std::string_view list = pattern.substr(is_exclusion ? 1 : 0);
  const bool is_exact = list.starts_with('=');
  if (is_exact) list.remove_prefix(1);
  const auto entries = Split(list);
  const auto matches = [&](const Interface& interface, std::string_view entry) {
    return is_exact ? interface.name == entry : interface.name.starts_with(entry);
  };
  for (const std::string_view entry : entries) {
    if (entry.empty()) return Refuse(pattern, "a name is empty", interfaces);
    if (is_exclusion) continue;
    const size_t before = selected.size();
    for (const Interface& interface : interfaces) {
      if (matches(interface, entry)) selected.push_back(interface);
    }
    if (selected.size() == before) {
      return Refuse(pattern, Format("no interface that is up is called \"{}\"", entry), interfaces);
    }
  }
  if (is_exclusion) {
    for (const Interface& interface : interfaces) {
      const auto matches_it = [&](std::string_view entry) { return matches(interface, entry); };
      if (std::none_of(entries.begin(), entries.end(), matches_it)) selected.push_back(interface);
    }
    if (selected.empty()) return Refuse(pattern, "it excludes every interface", interfaces);
    std::stable_sort(selected.begin(), selected.end(),
                     [](const auto& a, const auto& b) { return RankOf(a) < RankOf(b); });
  }
  return selected;
}

std::vector<Interface> Likeliest(std::span<const Interface> interfaces) {
  const auto key = [](const Interface& interface) {
    return std::pair(RankOf(interface), interface.address.family() != AF_INET);
  };
  const auto less = [&](const Interface& a, const Interface& b) { return key(a) < key(b); };
  const auto best = key(*std::ranges::min_element(interfaces, less));
  std::vector<Interface> likeliest;
  for (const Interface& interface : interfaces) {
    if (key(interface) == best) likeliest.push_back(interface);
  }
  return likeliest;
}

std::string NamesOf(std::span<const Interface> interfaces) {
  std::vector<std::string> names;
  for (const Interface& interface : interfaces) {
    if (std::find(names.begin(), names.end(), interface.name) == names.end()) {
      names.push_back(interface.name);
    }
  }
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ",") + name;
  return list;
}

}  // namespace onebit
