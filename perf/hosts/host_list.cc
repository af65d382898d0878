// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/hosts/host_list.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>

#include <fmt/format.h>

#include "perf/common/rank_launcher.h"
#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

[[noreturn]] void Refuse(std::string_view entry, std::string_view why) {
  throw UsageError(
      fmt::format("--hosts: \"{}\" {}: write HOST:RANKS, with commas between hosts", entry, why));
}

HostRanks ParseEntry(std::string_view entry) {
  std::string_view name = entry, count;
  const size_t bracket = entry.rfind(']');
  // Colons before the closing bracket belong to an address.
  const size_t colon = entry.find(':', bracket == entry.npos ? 0 : bracket);
  if (colon != entry.npos) {
    name = entry.substr(0, colon);
    count = entry.substr(colon + 1);
    if (count.find(':') != count.npos) {
      Refuse(entry, "has several colons and no brackets around the address");
    }
  }
  HostRanks host;
  for (const char c : name) {
    if (c != '[' && c != ']') host.name += c;
  }
  if (host.name.empty() || host.name.find_first_of(" \t\n/") != host.name.npos) {
    Refuse(entry, "has no host");
  }
  // ssh would read it as an option.
  if (host.name.front() == '-') Refuse(entry, "begins with a dash");
  if (colon == entry.npos) return host;
  const char* const end = count.data() + count.size();
  const auto [stop, error] = std::from_chars(count.data(), end, host.ranks);
  if (error != std::errc() || stop != end || host.ranks < 1 || host.ranks > kMaxProcesses) {
    Refuse(entry, fmt::format("has no number of ranks in 1 ... {}", kMaxProcesses));
  }
  return host;
}

// Debian gives a host's own name the address 127.0.1.1, which no interface lists.
bool IsLoopback(const sockaddr& address) {
  constexpr uint32_t kLoopbackNetwork = 127;
  return address.sa_family == AF_INET &&
         ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 ==
             kLoopbackNetwork;
}

bool HasAddress(const sockaddr& own, const sockaddr& other) {
  if (own.sa_family != other.sa_family) return false;
  if (own.sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(own).sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in&>(other).sin_addr.s_addr;
  }
  return own.sa_family == AF_INET6 &&
         std::memcmp(&reinterpret_cast<const sockaddr_in6&>(own).sin6_addr,
                     &reinterpret_cast<const sockaddr_in6&>(other).sin6_addr,
                     sizeof(in6_addr)) == 0;
}

}  // namespace

std::vector<HostRanks> ParseHostList(std::string_view list) {
  std::vector<HostRanks> hosts;
  while (true) {
    const size_t comma = list.find(',');
    hosts.push_back(ParseEntry(list.substr(0, comma)));
    const std::string& name = hosts.back().name;
    const auto is_same = [&](const HostRanks& host) { return host.name == name; };
    if (std::any_of(hosts.begin(), hosts.end() - 1, is_same)) {
      throw UsageError(fmt::format(
          "--hosts: {} is given twice: give each host once, with the number of its ranks", name));
    }
    if (comma == list.npos) break;
    list.remove_prefix(comma + 1);
  }
  if (CountRanks(hosts) > kMaxProcesses) {
    throw UsageError(
        fmt::format("--hosts: there are {} ranks, more than {}", CountRanks(hosts), kMaxProcesses));
  }
  return hosts;
}

void TakeRanks(int ranks, std::vector<HostRanks>* hosts) {
  if (ranks > CountRanks(*hosts)) {
    throw UsageError(
        fmt::format("-n is {}, but --hosts has {} ranks: write HOST:RANKS to give a host more",
                    ranks, CountRanks(*hosts)));
  }
  for (HostRanks& host : *hosts) {
    host.ranks = std::min(host.ranks, ranks);
    ranks -= host.ranks;
  }
  std::erase_if(*hosts, [](const HostRanks& host) { return host.ranks == 0; });
}

int CountRanks(const std::vector<HostRanks>& hosts) {
  return std::accumulate(hosts.begin(), hosts.end(), 0,
                         [](int sum, const HostRanks& host) { return sum + host.ranks; });
}

std::string_view WithoutUser(std::string_view name) { return name.substr(name.rfind('@') + 1); }

bool IsThisHost(std::string_view name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  // A name that this process cannot resolve may be an alias of ssh's configuration.
  if (getaddrinfo(std::string(name).c_str(), nullptr, &hints, &found) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> interfaces(list, freeifaddrs);
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    if (IsLoopback(*address->ai_addr)) return true;
    for (const ifaddrs* own = list; own != nullptr; own = own->ifa_next) {
      if (own->ifa_addr != nullptr && HasAddress(*own->ifa_addr, *address->ai_addr)) return true;
    }
  }
  return false;
}

}  // namespace onebit::perf
