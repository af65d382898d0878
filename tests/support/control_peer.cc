// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/control_peer.h"

#include <arpa/inet.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <future>
#include <stdexcept>
#include <thread>

#include "tests/support/deadlines.h"

namespace onebit::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Returns false after the deadline.
bool AwaitInput(const Descriptor& socket, steady_clock::time_point deadline) {
  return AwaitReadable(socket, deadline).ok();
}

}  // namespace

void OrThrow(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.text());
}

SocketAddress LoopbackAddress(uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return SocketAddress(reinterpret_cast<const sockaddr*>(&address));
}

UniqueId StartControlServer(ControlServer::Options options) {
  options.address = LoopbackAddress();
  options.key = RandomKey();
  options.process = "server:1";
  const JobKey key = options.key;
  return {.address = ValueOrThrow(ControlServer::Start(std::move(options))), .key = key};
}

Descriptor ConnectTo(const SocketAddress& address) {
  return ValueOrThrow(Connect(address, steady_clock::now() + kTestTimeout));
}

std::optional<Failure> AwaitFailure(const ControlClient& client) {
  const auto deadline = steady_clock::now() + kTestTimeout;
  while (steady_clock::now() < deadline) {
    if (auto failure = client.first_failure()) return failure;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return std::nullopt;
}

bool IsClosedWithin(const Descriptor& socket, milliseconds time) {
  const auto deadline = steady_clock::now() + time;
  char bytes[4096];
  while (AwaitInput(socket, deadline)) {
    const ssize_t count = recv(socket.get(), bytes, sizeof(bytes), 0);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return true;
  }
  return false;
}

Job JoinJob(const UniqueId& id, int ranks, ControlClient::Options options) {
  Job job;
  std::vector<std::future<std::unique_ptr<ControlClient>>> joins;
  for (int rank = 0; rank < ranks; ++rank) {
    ControlClient::Options own = options;
    own.rank = rank;
    own.ranks = ranks;
    own.connect_timeout = kTestTimeout;
    own.process = "rank:" + std::to_string(rank);
    joins.push_back(std::async(std::launch::async, [own, &id] {
      auto client = ValueOrThrow(ControlClient::Join(
          own, [&id](Deadline) { return Result<UniqueId>(id); }, /*is_final=*/true));
      const Bytes mine(1, static_cast<std::byte>(own.rank));
      const auto all = ValueOrThrow(client->Gather(mine, client->connect_deadline(), "testing"));
      for (size_t rank = 0; rank < all.size(); ++rank) {
        if (all[rank] != Bytes(1, static_cast<std::byte>(rank))) {
          throw std::runtime_error("a gather brought the wrong bytes");
        }
      }
      return client;
    }));
  }
  for (auto& join : joins) job.ranks.push_back(join.get());
  return job;
}

ControlPeer::Session ControlPeer::Begin(const UniqueId& id) {
  Session session = {.socket = ConnectTo(id.address), .keys = {}};
  const auto deadline = steady_clock::now() + kTestTimeout;
  const ClientHello hello = MakeClientHello();
  OrThrow(SendAll(session.socket, &hello, sizeof(hello), deadline));
  ServerHello answer;
  OrThrow(ReceiveAll(session.socket, &answer, sizeof(answer), deadline));
  const ClientAnswer client = ValueOrThrow(CheckServer(id.key, hello, answer));
  OrThrow(SendAll(session.socket, client.proof.data(), client.proof.size(), deadline));
  session.keys = client.keys;
  return session;
}

ControlPeer::ControlPeer(const UniqueId& id) : ControlPeer(Begin(id)) {}

ControlPeer::ControlPeer(Session session)
    : socket_(std::move(session.socket)),
      sealer_(session.keys.to_server),
      opener_(session.keys.to_client, MostHubMessageBytes(64)) {}

Bytes ControlPeer::Frame(const RankMessage& message) {
  Bytes frame;
  sealer_.Append(Encode(message), &frame);
  return frame;
}

void ControlPeer::SendRaw(std::span<const std::byte> bytes) {
  OrThrow(SendAll(socket_, bytes.data(), bytes.size(), steady_clock::now() + kTestTimeout));
}

std::optional<HubMessage> ControlPeer::Receive(milliseconds time) {
  const auto deadline = steady_clock::now() + time;
  while (true) {
    const auto message = ValueOrThrow(opener_.Next());
    if (message.has_value()) return ValueOrThrow(DecodeHubMessage(*message));
    if (!AwaitInput(socket_, deadline)) return std::nullopt;
    std::byte bytes[4096];
    const ssize_t count = recv(socket_.get(), bytes, sizeof(bytes), 0);
    if (count <= 0) return std::nullopt;
    opener_.Feed(std::span(bytes).first(static_cast<size_t>(count)));
  }
}

Failure ControlPeer::AwaitFailure(milliseconds time) {
  const auto deadline = steady_clock::now() + time;
  while (steady_clock::now() < deadline) {
    const auto message = Receive(time);
    if (!message.has_value()) break;
    if (const auto* failed = std::get_if<Failed>(&*message)) return failed->first;
  }
  throw std::runtime_error("the hub reported no failure in time");
}

}  // namespace onebit::testing
