// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// TCP sockets of the bootstrap: addresses, and errors that name the address and the cause.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/fork.h"
#include "base/status.h"

namespace onebit {

using Deadline = std::chrono::steady_clock::time_point;

// An IPv4 or IPv6 address with its port.
class SocketAddress {
 public:
  SocketAddress() = default;
  // `address` must be of family AF_INET or AF_INET6.
  explicit SocketAddress(const sockaddr* address);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const;
  int family() const { return storage_.ss_family; }
  uint16_t port() const;
  void set_port(uint16_t port);
  bool is_loopback() const;
  bool is_any() const;  // listens on every interface
  std::string HostText() const;
  std::string Text() const;  // "10.0.0.1:4711", "[::1]:4711"

 private:
  sockaddr_storage storage_ = {};
};

// Every interface, any port.
SocketAddress AnyAddress(int family, uint16_t port = 0);

// All sockets are non-blocking and are closed by exec. On failure errno says why.
Descriptor NewSocket(int family);
Descriptor AcceptFrom(const Descriptor& listener);

// Port 0 takes any free port.
Result<Descriptor> Listen(const SocketAddress& address);
Result<SocketAddress> LocalAddress(const Descriptor& socket);
// This end of a path to `address`, which gets no packet.
Result<SocketAddress> LocalAddressTowards(const SocketAddress& address);
Result<Descriptor> Connect(const SocketAddress& address, Deadline deadline);

// How often the system has tried in vain to send something. 0 without TCP.
struct VainAttempts {
  uint32_t sent_again = 0;      // since the socket was made
  uint32_t unacknowledged = 0;  // without an answer yet, or without a route to send on
};
VainAttempts VainAttemptsOf(const Descriptor& socket);

// Makes a connection with little to send try again sooner when the network loses it: six times
// after even pauses, before TCP doubles them.
void BoundBackOff(int fd);

Status AwaitReadable(const Descriptor& socket, Deadline deadline);

// Blocking transfer of exactly `size` bytes over a non-blocking socket. A peer that closes is
// kRemoteError, a deadline that passes kTimeout.
Status SendAll(const Descriptor& socket, const void* data, size_t size, Deadline deadline);
Status ReceiveAll(const Descriptor& socket, void* data, size_t size, Deadline deadline);

}  // namespace onebit
