// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A proxy between one client and a server that forwards bytes, records the client's, and can fall
// silent while both connections stay open.
#pragma once

#include <atomic>
#include <thread>

#include "comm/byte_stream.h"
#include "comm/socket.h"

namespace onebit::testing {

class TcpProxy {
 public:
  explicit TcpProxy(const SocketAddress& server);
  ~TcpProxy();
  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;

  const SocketAddress& address() const { return address_; }
  // Stops forwarding.
  void FallSilent() { is_silent_ = true; }
  // Waits until one side has closed. Returns what the client sent until then.
  Bytes Finish();

 private:
  void Run();

  SocketAddress server_;
  Descriptor listener_;
  SocketAddress address_;
  std::atomic<bool> is_silent_{false};
  std::atomic<bool> is_over_{false};
  Bytes said_;  // owned by the thread until it has ended
  std::thread thread_;
};

}  // namespace onebit::testing
