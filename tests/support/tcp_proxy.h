// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Stands between one client and a server: passes bytes on, keeps what the client said, and can fall
// silent with both connections open.
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
  // From now on nothing is passed on.
  void FallSilent() { is_silent_ = true; }
  // Waits until one side has closed; what the client said until then.
  Bytes Finish();

 private:
  void Run();

  SocketAddress server_;
  Descriptor listener_;
  SocketAddress address_;
  std::atomic<bool> is_silent_{false};
  std::atomic<bool> is_over_{false};
  Bytes said_;  // the thread's until it has ended
  std::thread thread_;
};

}  // namespace onebit::testing
