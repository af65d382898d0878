// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/common/bound_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

// Returns the port that the system chose; 0: there is none.
int BindAny(int socket_number, sockaddr* any, socklen_t bytes) {
  const int on = 1;
  setsockopt(socket_number, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(socket_number, any, bytes) != 0 || getsockname(socket_number, any, &bytes) != 0) {
    return 0;
  }
  // Both families have the port in the same place.
  return ntohs(reinterpret_cast<const sockaddr_in*>(any)->sin_port);
}

}  // namespace

BoundPort::BoundPort() {
  // An IPv6 socket serves both families, if the host has IPv6.
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  socket_ = Descriptor(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket_.is_open()) {
    const int off = 0;
    setsockopt(socket_.number(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    number_ = BindAny(socket_.number(), reinterpret_cast<sockaddr*>(&any6), sizeof any6);
  }
  if (number_ != 0) return;
  sockaddr_in any{};
  any.sin_family = AF_INET;
  socket_ = Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  number_ = BindAny(socket_.number(), reinterpret_cast<sockaddr*>(&any), sizeof any);
  if (number_ == 0) {
    throw ToolError("cannot find a free port for the ranks to meet: " + ErrnoText());
  }
}

}  // namespace onebit::perf
