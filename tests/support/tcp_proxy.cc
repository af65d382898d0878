// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/tcp_proxy.h"

#include <sys/socket.h>

#include <array>
#include <chrono>
#include <span>

#include "tests/support/control_peer.h"

namespace onebit::testing {
namespace {

constexpr std::chrono::seconds kTestTimeout{10};

using Buffer = std::array<std::byte, 4096>;

// Forwards available bytes; `buffer` is empty if there were none. Returns false at the end of the
// source.
bool Pass(const Descriptor& from, const Descriptor& to, Buffer* buffer,
          std::span<const std::byte>* passed) {
  const ssize_t count = recv(from.get(), buffer->data(), buffer->size(), 0);
  *passed = std::span(*buffer).first(count > 0 ? static_cast<size_t>(count) : 0);
  if (count == 0) return false;
  // A receiver that has closed shows up when it is read.
  static_cast<void>(
      SendAll(to, passed->data(), passed->size(), std::chrono::steady_clock::now() + kTestTimeout));
  return true;
}

}  // namespace

TcpProxy::TcpProxy(const SocketAddress& server)
    : server_(server),
      listener_(ValueOrThrow(Listen(LoopbackAddress()))),
      address_(ValueOrThrow(LocalAddress(listener_))),
      thread_([this] { Run(); }) {}

TcpProxy::~TcpProxy() {
  is_over_ = true;
  if (thread_.joinable()) thread_.join();
}

Bytes TcpProxy::Finish() {
  if (thread_.joinable()) thread_.join();
  return said_;
}

void TcpProxy::Run() {
  const auto deadline = std::chrono::steady_clock::now() + kTestTimeout;
  while (!AwaitReadable(listener_, std::chrono::steady_clock::now() + std::chrono::milliseconds(20))
              .ok()) {
    if (is_over_ || std::chrono::steady_clock::now() >= deadline) return;
  }
  const Descriptor client(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  const auto connected = Connect(server_, deadline);
  if (!connected.ok()) return;
  const Descriptor& server = connected.value();
  Buffer buffer;
  std::span<const std::byte> from_client, from_server;
  while (!is_over_ && std::chrono::steady_clock::now() < deadline) {
    if (!is_silent_) {
      if (!Pass(client, server, &buffer, &from_client)) return;
      said_.insert(said_.end(), from_client.begin(), from_client.end());
      if (!Pass(server, client, &buffer, &from_server)) return;
    }
    if (is_silent_ || (from_client.empty() && from_server.empty())) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
}

}  // namespace onebit::testing
