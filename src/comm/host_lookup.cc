// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The call of getaddrinfo, and the thread it runs in.
#include "comm/host_lookup.h"

#include <netdb.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "base/guard.h"
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

struct HostLookup::Answer {
  std::mutex mutex;
  std::condition_variable is_there;
  std::optional<Addresses> addresses;
};

Addresses HostLookup::Wait(Deadline deadline) {
  if (pending_ == nullptr) {
    if (auto numeric = Ask(host_, port_, AI_NUMERICHOST); numeric.ok()) return numeric;
    auto answer = std::make_shared<Answer>();
    try {
      const WithoutSignals without_signals;
      std::thread([answer, host = host_, port = port_] {
        std::vector<SocketAddress> found;
        Status status = CatchNoMemory([&]() -> Status {
          ONEBIT_ASSIGN_OR_RETURN(found, Ask(host, port, 0));
          return OkStatus();
        });
        const std::lock_guard lock(answer->mutex);
        if (status.ok()) {
          answer->addresses.emplace(std::move(found));
        } else {
          answer->addresses.emplace(std::move(status));
        }
        answer->is_there.notify_all();
      }).detach();
    } catch (const std::system_error& error) {
      return Error(Code::kSystemError, "host \"{}\": no thread to look it up: {}", host_,
                   error.what());
    }
    pending_ = std::move(answer);
  }
  std::unique_lock lock(pending_->mutex);
  if (!pending_->is_there.wait_until(lock, deadline,
                                     [&] { return pending_->addresses.has_value(); })) {
    return Error(Code::kTimeout,
                 "host \"{}\": no name service has answered in time; see /etc/resolv.conf, or give "
                 "the address as a number",
                 host_);
  }
  Addresses addresses = *pending_->addresses;  // copied: copies of this object share the answer
  lock.unlock();
  pending_.reset();
  return addresses;
}

}  // namespace onebit
