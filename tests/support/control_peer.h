// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Drives the control channel by hand: a server on loopback, honest jobs that join it, and a client
// that sends whatever a test wants, or nothing.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/control_client.h"
#include "comm/control_server.h"
#include "comm/socket.h"
#include "comm/unique_id.h"

namespace onebit::testing {

// All functions throw std::runtime_error if the test cannot continue.

template <typename T>
T ValueOrThrow(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().text());
  return std::move(result).value();
}
void OrThrow(const Status& status);

SocketAddress LoopbackAddress(uint16_t port = 0);

// Longer than tests wait for a connection to close: a stranger that is disconnected sooner was
// rejected.
inline constexpr std::chrono::minutes kLongHandshake{5};

// Starts a server in this process on a free port. Sets address, key and process name in `options`.
UniqueId StartControlServer(ControlServer::Options options = {.handshake_timeout = kLongHandshake});

// Returns a connection that has sent nothing.
Descriptor ConnectTo(const SocketAddress& address);
// Discards input until the other side closes or resets the connection.
bool IsClosedWithin(const Descriptor& socket, std::chrono::milliseconds time);

// Ranks of an honest job that have joined and gathered once.
struct Job {
  std::vector<std::unique_ptr<ControlClient>> ranks;
};
Job JoinJob(const UniqueId& id, int ranks, ControlClient::Options options = {});
// Returns the failure that `client` learns of, or nothing if there is none.
std::optional<Failure> AwaitFailure(const ControlClient& client);

// A client that knows the key and sends what the test tells it to.
class ControlPeer {
 public:
  // Connects and proves that it knows the key.
  explicit ControlPeer(const UniqueId& id);

  const Descriptor& socket() const { return socket_; }
  // Returns the next message as a frame.
  Bytes Frame(const RankMessage& message);
  void SendRaw(std::span<const std::byte> bytes);
  void Send(const RankMessage& message) { SendRaw(Frame(message)); }
  // Returns nothing if the other side has closed the connection, or after `time`.
  std::optional<HubMessage> Receive(std::chrono::milliseconds time);
  // Drops messages until the hub reports a failure; throws if it does not.
  Failure AwaitFailure(std::chrono::milliseconds time);

 private:
  struct Session {
    Descriptor socket;
    SessionKeys keys;
  };
  static Session Begin(const UniqueId& id);
  explicit ControlPeer(Session session);

  Descriptor socket_;
  FrameSealer sealer_;
  FrameOpener opener_;
};

}  // namespace onebit::testing
