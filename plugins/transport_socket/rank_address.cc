// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/transport_socket/rank_address.h"

#include <arpa/inet.h>
#include <sys/stat.h>

#include <cstring>
#include <type_traits>

#include "plugins/common/host_identity.h"

namespace onebit::sockets {
namespace {

static_assert(std::has_unique_object_representations_v<Address>, "padding would travel");

constexpr uint64_t kMagic = 0x32536b6369626e6f;  // "onbickS2"

}  // namespace

void WriteAddress(const Address& address, void* bytes) {
  std::memcpy(bytes, &address, sizeof address);
  plugin::SealAddress(kMagic, bytes, sizeof address);
}

const char* ReadAddress(const void* bytes, size_t byte_count, Address* address) {
  if (bytes == nullptr || byte_count != sizeof *address) return "it has a wrong length";
  std::memcpy(address, bytes, sizeof *address);
  const char* const problem = plugin::ProblemOf(kMagic, bytes, byte_count);
  if (problem != nullptr) return problem;
  const bool has_family = address->family == AF_INET || address->family == AF_INET6;
  return has_family && address->port <= 65'535 ? nullptr : "it is malformed";
}

SocketAddress SocketAddressOf(const Address& address) {
  sockaddr_in four{};
  sockaddr_in6 six{};
  if (address.family == AF_INET) {
    four.sin_family = AF_INET;
    four.sin_port = htons(static_cast<uint16_t>(address.port));
    std::memcpy(&four.sin_addr, address.ip.data(), sizeof four.sin_addr);
    return SocketAddress(reinterpret_cast<const sockaddr*>(&four));
  }
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(static_cast<uint16_t>(address.port));
  six.sin6_scope_id = address.scope;
  std::memcpy(&six.sin6_addr, address.ip.data(), sizeof six.sin6_addr);
  return SocketAddress(reinterpret_cast<const sockaddr*>(&six));
}

void SetSocketAddress(const SocketAddress& from, Address* address) {
  address->family = static_cast<uint32_t>(from.family());
  address->port = from.port();
  address->ip = {};
  if (from.family() == AF_INET) {
    const auto& four = *reinterpret_cast<const sockaddr_in*>(from.get());
    std::memcpy(address->ip.data(), &four.sin_addr, sizeof four.sin_addr);
  } else {
    const auto& six = *reinterpret_cast<const sockaddr_in6*>(from.get());
    address->scope = six.sin6_scope_id;
    std::memcpy(address->ip.data(), &six.sin6_addr, sizeof six.sin6_addr);
  }
}

uint64_t IdentityOfThisNetwork() {
  struct stat facts {};
  if (stat("/proc/self/ns/net", &facts) != 0) return 0;
  const uint64_t numbers[] = {facts.st_dev, facts.st_ino};
  return plugin::HashOf(numbers, sizeof numbers, 5) | 1;
}

}  // namespace onebit::sockets
