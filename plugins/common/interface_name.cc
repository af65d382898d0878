// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/common/interface_name.h"

#include <ifaddrs.h>
#include <netinet/in.h>

#include <cstring>

namespace onebit::plugin {
namespace {

bool HasSameHost(const sockaddr* a, const sockaddr* b) {
  if (a == nullptr || a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(b)->sin_addr.s_addr;
  }
  return a->sa_family == AF_INET6 &&
         std::memcmp(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                     &reinterpret_cast<const sockaddr_in6*>(b)->sin6_addr, sizeof(in6_addr)) == 0;
}

}  // namespace

std::string InterfaceOf(const sockaddr* address) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  std::string name;
  for (const ifaddrs* one = all; one != nullptr && name.empty(); one = one->ifa_next) {
    if (HasSameHost(one->ifa_addr, address)) name = one->ifa_name;
  }
  freeifaddrs(all);
  return name;
}

}  // namespace onebit::plugin
