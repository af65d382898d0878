// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// HostLookup: the addresses of a host name, within a deadline.
#pragma once

#include <future>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/socket.h"

namespace onebit {

// Used by one thread at a time. getaddrinfo has no time-out and may take minutes, so it runs in a
// thread of its own, which may outlive this object. Numeric hosts take no thread.
class HostLookup {
 public:
  HostLookup(std::string host, uint16_t port) : host_(std::move(host)), port_(port) {}

  // Blocks until there is an answer, an address or more; errors name the host. kTimeout: there was
  // none by `deadline`, and the next call waits for the same answer. After any other result the
  // next call asks again.
  Result<std::vector<SocketAddress>> Wait(Deadline deadline);

 private:
  using Addresses = Result<std::vector<SocketAddress>>;

  std::string host_;
  uint16_t port_;
  std::shared_future<Addresses> pending_;  // not valid: nothing was asked
};

}  // namespace onebit
