// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/socket.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace onebit {
namespace {

// Enough for a thousand connections at once.
constexpr int kBacklog = 4096;

std::string ErrnoText(int error) { return Format("{} (errno {})", std::strerror(error), error); }

Status SocketError(const char* what, const SocketAddress& address) {
  const int error = errno;
  return Error(
      Code::kSystemError, "{} {}: {}{}", what, address.Text(), ErrnoText(error),
      error == EMFILE ? "; this process has too few file descriptors left: raise ulimit -n" : "");
}

int MillisecondsUntil(Deadline deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60'000));
}

Status WaitFor(int fd, short events, Deadline deadline) {
  while (true) {
    pollfd entry = {fd, events, 0};
    const int count = poll(&entry, 1, MillisecondsUntil(deadline));
    if (count > 0) return OkStatus();
    if (count < 0 && errno != EINTR) {
      return Error(Code::kSystemError, "poll: {}", ErrnoText(errno));
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      return Error(Code::kTimeout, "no answer in time");
    }
  }
}

// Control messages are small and urgent: Nagle's algorithm would hold them back.
void SendSoon(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  BoundBackOff(fd);
}

}  // namespace

SocketAddress::SocketAddress(const sockaddr* address) {
  std::memcpy(&storage_, address,
              address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
}

socklen_t SocketAddress::size() const {
  return family() == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

uint16_t SocketAddress::port() const {
  return ntohs(family() == AF_INET ? reinterpret_cast<const sockaddr_in&>(storage_).sin_port
                                   : reinterpret_cast<const sockaddr_in6&>(storage_).sin6_port);
}

void SocketAddress::set_port(uint16_t port) {
  if (family() == AF_INET) {
    reinterpret_cast<sockaddr_in&>(storage_).sin_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in6&>(storage_).sin6_port = htons(port);
  }
}

bool SocketAddress::is_loopback() const {
  if (family() == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in&>(storage_).sin_addr.s_addr) >> 24 == 127;
  }
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(storage_).sin6_addr);
}

bool SocketAddress::is_any() const {
  if (family() == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(storage_).sin_addr.s_addr == htonl(INADDR_ANY);
  }
  return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6&>(storage_).sin6_addr);
}

std::string SocketAddress::HostText() const {
  char text[INET6_ADDRSTRLEN] = "?";
  const void* address =
      family() == AF_INET
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in&>(storage_).sin_addr)
          : static_cast<const void*>(&reinterpret_cast<const sockaddr_in6&>(storage_).sin6_addr);
  inet_ntop(family(), address, text, sizeof(text));
  return text;
}

std::string SocketAddress::Text() const {
  return family() == AF_INET ? Format("{}:{}", HostText(), port())
                             : Format("[{}]:{}", HostText(), port());
}

SocketAddress AnyAddress(int family, uint16_t port) {
  sockaddr_in6 any = {};  // of either family: all of it is zero
  any.sin6_family = static_cast<sa_family_t>(family);
  SocketAddress address(reinterpret_cast<const sockaddr*>(&any));
  address.set_port(port);
  return address;
}

Descriptor NewSocket(int family) {
  return Descriptor::From(
      [&] { return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
}

Descriptor AcceptFrom(const Descriptor& listener) {
  return Descriptor::From(
      [&] { return accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); });
}

Result<Descriptor> Listen(const SocketAddress& address) {
  Descriptor socket = NewSocket(address.family());
  if (!socket.is_open()) return SocketError("cannot make a socket for", address);
  SendSoon(socket.get());  // for the connections it accepts
  // A port that an earlier job used a moment ago is free for us.
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(socket.get(), address.get(), address.size()) != 0) {
    return SocketError("cannot bind to", address);
  }
  if (listen(socket.get(), kBacklog) != 0) return SocketError("cannot listen at", address);
  return socket;
}

Result<SocketAddress> LocalAddress(const Descriptor& socket) {
  sockaddr_storage storage = {};
  socklen_t size = sizeof(storage);
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&storage), &size) != 0) {
    return Error(Code::kSystemError, "a socket has no address: {}", ErrnoText(errno));
  }
  return SocketAddress(reinterpret_cast<const sockaddr*>(&storage));
}

Result<SocketAddress> LocalAddressTowards(const SocketAddress& address) {
  const Descriptor socket =
      Descriptor::From([&] { return ::socket(address.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0); });
  if (!socket.is_open() || connect(socket.get(), address.get(), address.size()) != 0) {
    return Error(Code::kSystemError, "no route to {}: {}", address.HostText(),
                 std::strerror(errno));
  }
  return LocalAddress(socket);
}

Result<Descriptor> Connect(const SocketAddress& address, Deadline deadline) {
  Descriptor socket = NewSocket(address.family());
  if (!socket.is_open()) return SocketError("cannot make a socket for", address);
  SendSoon(socket.get());
  if (connect(socket.get(), address.get(), address.size()) != 0) {
    if (errno != EINPROGRESS) return SocketError("cannot connect to", address);
    if (Status status = WaitFor(socket.get(), POLLOUT, deadline); !status.ok()) {
      return Error(status.code(), "cannot connect to {}: {}", address.Text(), status.text());
    }
    socklen_t size = sizeof(errno);
    int error = 0;
    getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
      errno = error;
      return SocketError("cannot connect to", address);
    }
  }
  return socket;
}

VainAttempts VainAttemptsOf(const Descriptor& socket) {
  tcp_info facts{};
  socklen_t bytes = sizeof(facts);
  if (getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &facts, &bytes) != 0) return {};
  // Without a route nothing leaves that could be sent again: the system probes for one.
  return {.sent_again = facts.tcpi_total_retrans,
          .unacknowledged = uint32_t{facts.tcpi_retransmits} + facts.tcpi_probes};
}

void BoundBackOff(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &on, sizeof(on));
}

Status AwaitReadable(const Descriptor& socket, Deadline deadline) {
  return WaitFor(socket.get(), POLLIN, deadline);
}

Status SendAll(const Descriptor& socket, const void* data, size_t size, Deadline deadline) {
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t sent = send(socket.get(), next, size, MSG_NOSIGNAL);
    if (sent >= 0) {
      next += sent;
      size -= static_cast<size_t>(sent);
    } else if (errno == EAGAIN) {
      ONEBIT_TRY(WaitFor(socket.get(), POLLOUT, deadline));
    } else if (errno != EINTR) {
      return Error(Code::kRemoteError, "the connection broke: {}", ErrnoText(errno));
    }
  }
  return OkStatus();
}

Status ReceiveAll(const Descriptor& socket, void* data, size_t size, Deadline deadline) {
  char* next = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t received = recv(socket.get(), next, size, 0);
    if (received > 0) {
      next += received;
      size -= static_cast<size_t>(received);
    } else if (received == 0) {
      return Error(Code::kRemoteError, "the other side closed the connection");
    } else if (errno == EAGAIN) {
      ONEBIT_TRY(WaitFor(socket.get(), POLLIN, deadline));
    } else if (errno != EINTR) {
      return Error(Code::kRemoteError, "the connection broke: {}", ErrnoText(errno));
    }
  }
  return OkStatus();
}

}  // namespace onebit
