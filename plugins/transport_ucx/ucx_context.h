// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Context: the state that the endpoints of a process share.
#pragma once

#include <onebit/transport.h>
#include <ucp/api/ucp.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "plugins/common/base_context.h"
#include "plugins/common/host_identity.h"
#include "plugins/transport_ucx/ucx_settings.h"

namespace onebit::ucx {

class UcxFrameTransport;

// Created by init, destroyed by finalize. Thread-safe.
class Context : public plugin::BaseContext {
 public:
  // Starts UCX with the host's settings. Logs the cause of an error.
  static onebitResult_t Create(const onebitTransportHost& host, std::unique_ptr<Context>* context);
  ~Context();

  // `context` is null before init.
  static onebitTransportProperties Properties(const Context* context);
  // Throws std::bad_alloc.
  onebitResult_t Open(const onebitTransportCommInfo& info,
                      std::unique_ptr<UcxFrameTransport>* frames);

  // UCX as the endpoints of a communicator use it: by shared memory alone if all ranks can share
  // it, else on the one interface that leads to the other ranks. What the settings name goes first.
  // Null: it cannot start, and that was logged.
  ucp_context_h UcpFor(const onebitTransportCommInfo& info);
  const Options& options() const { return options_; }
  const plugin::HostIdentity& identity() const { return identity_; }
  uint64_t machine() const { return machine_; }
  bool can_share_memory() const;
  // UCX stays as it is when the context ends, because something uses it.
  void KeepUcp() { keeps_ucp_.store(true, std::memory_order_relaxed); }
  // Logs that the process has too few descriptors for UCX, and returns the error for it.
  onebitResult_t NoDescriptors() const;

 private:
  // Transports and devices, as UCX names them.
  using Choice = std::pair<std::string, std::string>;

  explicit Context(const onebitTransportHost& host);
  onebitResult_t Start();
  onebitResult_t StartUcp(const Choice& choice, ucp_context_h* ucp);

  const plugin::HostIdentity identity_;
  const uint64_t machine_;
  const Options options_;
  std::set<std::string> devices_;  // of the network
  std::string net_devices_;

  std::atomic<bool> keeps_ucp_{false};
  std::mutex mutex_;
  std::map<Choice, ucp_context_h> ucps_;  // guarded by mutex_
};

}  // namespace onebit::ucx
