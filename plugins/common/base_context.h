// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// BaseContext: what the context of every transport has, services of the host and a count of
// endpoints.
#pragma once

#include <onebit/transport.h>

#include <atomic>
#include <cstdint>

namespace onebit::plugin {

// Any thread.
class BaseContext {
 public:
  // `name` begins every line in the log.
  BaseContext(const onebitTransportHost& host, const char* name);
  BaseContext(const BaseContext&) = delete;
  BaseContext& operator=(const BaseContext&) = delete;

  const onebitTransportHost& host() const { return host_; }
  uint64_t Now() const { return host_.nowNs(); }

  // Time to poll before sleeping; 0 when `ranks_here`, those of a communicator on this machine, or
  // the endpoints of this process, are more than cores: a rank that polls keeps the core from the
  // rank it waits for.
  uint64_t spin_ns(uint32_t ranks_here) const;

  // Counts open endpoints.
  void AddEndpoint() { open_endpoints_.fetch_add(1, std::memory_order_relaxed); }
  void RemoveEndpoint() { open_endpoints_.fetch_sub(1, std::memory_order_relaxed); }
  // True when every endpoint has been closed.
  bool is_idle() const { return open_endpoints_.load(std::memory_order_relaxed) == 0; }

  // Writes one line to the library's log, as a warning.
  [[gnu::format(printf, 2, 3)]] void Warn(const char* format, ...) const;

 private:
  const onebitTransportHost host_;
  const char* const name_;
  const uint32_t cores_;
  // relaxed everywhere: a number for a rule of thumb, nothing is published through it.
  std::atomic<uint32_t> open_endpoints_{0};
};

}  // namespace onebit::plugin
