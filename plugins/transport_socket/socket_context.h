// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Context: the state that the endpoints of a process share.
#pragma once

#include <onebit/transport.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "plugins/common/base_context.h"
#include "plugins/transport_socket/rank_address.h"

namespace onebit::sockets {

class SocketFrameTransport;

// The values that `init` receives; socket_context.cc declares the settings.
struct Options {
  uint64_t eager_bytes;
  uint64_t early_bytes;
  uint64_t shares_memory;  // 0 or 1
  uint64_t seals;          // 0 or 1
};

// Created by init, destroyed by finalize. Thread-safe.
class Context : public plugin::BaseContext {
 public:
  static onebitResult_t Create(const onebitTransportHost& host, std::unique_ptr<Context>* context);
  // `context` is null before init.
  static onebitTransportProperties Properties(const Context* context);
  // Throws std::bad_alloc.
  onebitResult_t Open(const onebitTransportCommInfo& info,
                      std::unique_ptr<SocketFrameTransport>* frames);

  const Options& options() const { return options_; }
  uint64_t machine() const { return machine_; }
  // Reads an address of a communicator's information; loopback if there is none.
  static onebitResult_t ReadSocketAddress(const void* bytes, size_t count, SocketAddress* address);
  // In words, how a connection leaves this host: "tcp over eth0".
  static std::string RouteOver(int socket);
  // Logs, once in a process, that ranks of other hosts could be reached over an RDMA port instead.
  void MentionRdma();

 private:
  explicit Context(const onebitTransportHost& host);

  const uint64_t machine_;
  const Options options_;
  std::atomic<bool> has_mentioned_rdma_{false};
};

}  // namespace onebit::sockets
