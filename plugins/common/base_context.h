// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// BaseContext: the part of a context that all transports share, which is the host's services and a
// count of open endpoints.
#pragma once

#include <onebit/transport.h>

#include <atomic>
#include <cstdint>

namespace onebit::plugin {

// Thread-safe.
class BaseContext {
 public:
  // `name` is the prefix of every log line.
  BaseContext(const onebitTransportHost& host, const char* name);
  BaseContext(const BaseContext&) = delete;
  BaseContext& operator=(const BaseContext&) = delete;

  const onebitTransportHost& host() const { return host_; }
  const char* name() const { return name_; }
  uint64_t Now() const { return host_.nowNs(); }

  // Both maintain the count of open endpoints.
  void AddEndpoint() { open_endpoints_.fetch_add(1, std::memory_order_relaxed); }
  void RemoveEndpoint() { open_endpoints_.fetch_sub(1, std::memory_order_relaxed); }
  // True when every endpoint has been closed.
  bool is_idle() const { return open_endpoints_.load(std::memory_order_relaxed) == 0; }

  // Writes one line to the library's log, as a warning.
  [[gnu::format(printf, 2, 3)]] void Warn(const char* format, ...) const;

 private:
  const onebitTransportHost host_;
  const char* const name_;
  // relaxed everywhere: the count publishes nothing.
  std::atomic<uint32_t> open_endpoints_{0};
};

}  // namespace onebit::plugin
