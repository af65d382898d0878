// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The control channel by hand: a server on loopback, honest jobs that join it, and a client that
// says whatever a test wants, or nothing.
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

// All functions throw std::runtime_error where a test could not go on.

template <typename T>
T ValueOrThrow(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().text());
  return std::move(result).value();
}
void OrThrow(const Status& status);

SocketAddress LoopbackAddress(uint16_t port = 0);

// Longer than tests wait for a connection to be closed: strangers that go meanwhile were turned
// away.
inline constexpr std::chrono::minutes kLongHandshake{5};

// A server in this process on a free port; address, key and place of `options` are set here.
UniqueId StartControlServer(ControlServer::Options options = {.handshake_timeout = kLongHandshake});

// A connection that has said nothing.
Descriptor ConnectTo(const SocketAddress& address);
// Reads and drops what comes until the other side closes or resets the connection.
bool IsClosedWithin(const Descriptor& socket, std::chrono::milliseconds time);

// Ranks of an honest job, joined and gathered once.
struct Job {
  std::vector<std::unique_ptr<ControlClient>> ranks;
};
Job JoinJob(const UniqueId& id, int ranks, ControlClient::Options options = {});
// The failure that `client` hears of; nothing if it hears of none.
std::optional<Failure> AwaitFailure(const ControlClient& client);

// Knows the key, and then does as it is told.
class ControlPeer {
 public:
  // Connects and proves that it knows the key.
  explicit ControlPeer(const UniqueId& id);

  const Descriptor& socket() const { return socket_; }
  // The next message as a frame.
  Bytes Frame(const RankMessage& message);
  void SendRaw(std::span<const std::byte> bytes);
  void Send(const RankMessage& message) { SendRaw(Frame(message)); }
  // Nothing once the other side has closed, or when the time is over.
  std::optional<HubMessage> Receive(std::chrono::milliseconds time);
  // Drops messages until the star tells of a failure; throws if it does not.
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
