// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Context: what the endpoints of a process share.
#pragma once

#include <onebit/transport.h>
#include <ucp/api/ucp.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "plugins/transport_ucx/host_identity.h"
#include "plugins/transport_ucx/settings.h"

namespace onebit::ucx {

// Made by init, ended by finalize. Any thread.
class Context {
 public:
  // Reads the settings and starts UCX. Logs why not.
  static onebitResult_t Create(const onebitTransportHost& host, std::unique_ptr<Context>* context);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  ucp_context_h ucp() const { return ucp_; }
  const onebitTransportHost& host() const { return host_; }
  const Options& options() const { return options_; }
  const HostIdentity& identity() const { return identity_; }
  uint64_t machine() const { return machine_; }
  bool can_share_memory() const;

  // Time to poll before sleeping; 0 when `ranks_here`, those of a communicator on this machine, or
  // the endpoints of this process, are more than cores: a rank that polls keeps the core from the
  // rank it waits for.
  uint64_t spin_ns(uint32_t ranks_here) const;

  // Counts open endpoints.
  void AddEndpoint() { open_endpoints_.fetch_add(1, std::memory_order_relaxed); }
  void RemoveEndpoint() { open_endpoints_.fetch_sub(1, std::memory_order_relaxed); }
  bool is_idle() const { return open_endpoints_.load(std::memory_order_relaxed) == 0; }

  // Writes one line to the library's log, as a warning.
  [[gnu::format(printf, 2, 3)]] void Warn(const char* format, ...) const;
  // Says that the process has too few descriptors for UCX, and returns the error for it.
  onebitResult_t NoDescriptors() const;

 private:
  explicit Context(const onebitTransportHost& host);
  onebitResult_t Start();

  const onebitTransportHost host_;
  const HostIdentity identity_;
  const uint64_t machine_;
  const uint32_t cores_;
  Options options_;
  ucp_context_h ucp_ = nullptr;
  // relaxed everywhere: a number for a rule of thumb, nothing is published through it.
  std::atomic<uint32_t> open_endpoints_{0};
};

}  // namespace onebit::ucx
