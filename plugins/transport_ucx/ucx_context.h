// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Context: the state that the endpoints of a process share.
#pragma once

#include <onebit/transport.h>
#include <ucp/api/ucp.h>

#include <cstdint>
#include <memory>
#include <string>

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

  ucp_context_h ucp() const { return ucp_; }
  const Options& options() const { return options_; }
  const plugin::HostIdentity& identity() const { return identity_; }
  uint64_t machine() const { return machine_; }
  bool can_share_memory() const;
  // Logs that the process has too few descriptors for UCX, and returns the error for it.
  onebitResult_t NoDescriptors() const;

 private:
  explicit Context(const onebitTransportHost& host);
  onebitResult_t Start();

  const plugin::HostIdentity identity_;
  const uint64_t machine_;
  const Options options_;
  std::string net_devices_;
  ucp_context_h ucp_ = nullptr;
};

}  // namespace onebit::ucx
