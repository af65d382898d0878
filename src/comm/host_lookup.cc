// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The call of getaddrinfo, and the thread it runs in.
#include "comm/host_lookup.h"

#include <netdb.h>

#include <cerrno>
#include <cstring>
#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "base/without_signals.h"

namespace onebit {
namespace {

using Addresses = Result<std::vector<SocketAddress>>;

// `flags` are those of getaddrinfo.
Addresses Ask(const std::string& host, uint16_t port, int flags) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0) {
    const int cause = errno;
    return Error(Code::kSystemError, "host \"{}\" has no address: {}", host,
                 error == EAI_SYSTEM ? std::strerror(cause) : gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    addresses.emplace_back(entry->ai_addr);
    addresses.back().set_port(port);
  }
  if (addresses.empty()) {
    return Error(Code::kSystemError, "host \"{}\" has neither an IPv4 nor an IPv6 address", host);
  }
  return addresses;
}

}  // namespace

Addresses HostLookup::Wait(Deadline deadline) {
  if (!pending_.valid()) {
    if (auto numeric = Ask(host_, port_, AI_NUMERICHOST); numeric.ok()) return numeric;
    std::packaged_task<Addresses()> ask(
        [host = host_, port = port_] { return Ask(host, port, 0); });
    std::shared_future<Addresses> answer = ask.get_future().share();
    try {
      const WithoutSignals without_signals;
      std::thread(std::move(ask)).detach();
    } catch (const std::system_error& error) {
      return Error(Code::kSystemError, "host \"{}\": no thread to look it up: {}", host_,
                   error.what());
    }
    pending_ = std::move(answer);
  }
  if (pending_.wait_until(deadline) == std::future_status::timeout) {
    return Error(Code::kTimeout,
                 "host \"{}\": no name service has answered in time; see /etc/resolv.conf, or give "
                 "the address as a number",
                 host_);
  }
  return std::exchange(pending_, {}).get();
}

}  // namespace onebit
