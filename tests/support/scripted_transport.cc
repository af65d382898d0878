// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/scripted_transport.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "channel/wire.h"
#include "plugins/common/frame_table.h"
#include "plugins/common/frame_transport.h"

namespace onebit::testing {
namespace {

using channel::WireHeader;
using channel::WireType;

constexpr size_t kPieceBytes = 16384;

struct Script {
  std::map<int, std::deque<ScriptedMessage>> messages;  // by peer
  std::vector<std::vector<std::byte>> sent;
  int given_up = 0;
  int withdrawn = 0;
  bool is_rank_1_stuck = false;
};

Script& TheScript() {
  static Script script;
  return script;
}

// Rank 0 plays the script. Other ranks exist only so that there is a communicator.
class Frames : public plugin::FrameTransport {
 public:
  explicit Frames(const onebitTransportCommInfo& info)
      : FrameTransport(info), peers_(static_cast<size_t>(info.nranks)) {
    for (Peer& peer : peers_) {
      peer.link.pieceBytes = kPieceBytes;
      peer.link.isHere = peer.link.isReached = 1;
      peer.link.SetHost("nowhere");
      peer.link.SetRoute("a script");
    }
  }

  onebitResult_t GetAddress(void*, size_t* bytes) {
    *bytes = 0;
    return onebitSuccess;
  }
  onebitResult_t Connect(const void* const*, const size_t*, uint64_t) { return onebitSuccess; }
  onebitResult_t Abort() { return onebitSuccess; }
  plugin::Link* link(int rank) { return &peers_[static_cast<size_t>(rank)].link; }

  plugin::Sent Send(int rank, onebitFrameKind, std::span<const std::byte> header,
                    std::span<const std::byte>) {
    if (rank_ != 0) return plugin::Sent::kYes;
    Peer& peer = peers_[static_cast<size_t>(rank)];
    WireHeader wire;
    std::memcpy(&wire, header.data(), sizeof wire);
    peer.released = wire.released;
    if (wire.type == WireType::kMessage) {
      TheScript().sent.emplace_back(header.begin() + sizeof wire, header.end());
      ++peer.sent;
    } else if (wire.type == WireType::kDrop) {
      ++TheScript().given_up;
    } else if (wire.type == WireType::kWithdraw) {
      ++TheScript().withdrawn;
    } else if (wire.type == WireType::kAccept) {
      peer.accepted.push_back(wire.number);
    }
    return plugin::Sent::kYes;
  }

  bool Progress() {
    bool has_moved = false;
    for (int rank = 1; rank < nranks_ && rank_ == 0; ++rank) has_moved |= Play(rank);
    return has_moved;
  }
  void Sleep(uint64_t) {}

 private:
  struct Peer {
    plugin::Link link;
    uint64_t sent = 0;                                    // messages to it
    uint64_t acknowledged = 0;                            // of these, as it said
    uint64_t delivered = 0;                               // messages from it
    uint64_t released = 0;                                // of these, as rank 0 said
    std::deque<uint64_t> accepted;                        // payloads that rank 0 waits for
    std::map<uint64_t, std::vector<std::byte>> payloads;  // that were not delivered yet
  };

  // Delivers what the peer sends next. False if that is nothing.
  bool Play(int rank) {
    Peer& peer = peers_[static_cast<size_t>(rank)];
    if (!peer.accepted.empty()) {
      const uint64_t number = peer.accepted.front();
      peer.accepted.pop_front();
      const std::vector<std::byte> payload = std::move(peer.payloads[number]);
      peer.payloads.erase(number);
      for (size_t at = 0; at < payload.size(); at += kPieceBytes) {
        Deliver(rank, WireType::kData, number, at, {},
                std::span(payload).subspan(at, std::min(kPieceBytes, payload.size() - at)));
      }
      return true;
    }
    auto& script = TheScript().messages[rank];
    if (!script.empty() && peer.delivered < peer.released + channel::kWindow) {
      ScriptedMessage message = std::move(script.front());
      script.pop_front();
      const uint64_t number = peer.delivered++;
      const bool is_eager = message.payload.size() <= kScriptedEagerBytes;
      Deliver(
          rank, WireType::kMessage, number, message.payload.size(), message.header,
          is_eager ? std::span<const std::byte>(message.payload) : std::span<const std::byte>());
      if (!is_eager && !message.is_withheld) peer.payloads[number] = std::move(message.payload);
      return true;
    }
    if (peer.acknowledged == peer.sent) return false;
    Deliver(rank, WireType::kRelease, 0, 0, {}, {});
    return true;
  }

  // Every frame says that all messages to the peer have been taken.
  void Deliver(int rank, WireType type, uint64_t number, uint64_t value,
               std::span<const std::byte> header, std::span<const std::byte> payload) {
    Peer& peer = peers_[static_cast<size_t>(rank)];
    peer.acknowledged = peer.sent;
    const WireHeader wire = {.magic = channel::kWireMagic,
                             .type = type,
                             .header_bytes = static_cast<uint16_t>(header.size()),
                             .source = static_cast<uint32_t>(rank),
                             .unused = 0,
                             .comm_id = comm_id_,
                             .number = number,
                             .value = value,
                             .released = peer.sent};
    std::vector<std::byte> both(sizeof wire + header.size());
    std::memcpy(both.data(), &wire, sizeof wire);
    std::ranges::copy(header, both.begin() + sizeof wire);
    sink_.OnFrame(rank, both.data(), both.size(), payload.data(), payload.size());
  }

  std::vector<Peer> peers_;
};

struct Context {
  static onebitResult_t Create(const onebitTransportHost&, std::unique_ptr<Context>* created) {
    *created = std::make_unique<Context>();
    return onebitSuccess;
  }
  static onebitTransportProperties Properties(const Context*) {
    return {.structSize = sizeof(onebitTransportProperties),
            .name = "scripted",
            .hasFrameFace = 1,
            .addressBytes = 1,
            .eagerBytes = kScriptedEagerBytes};
  }
  bool is_idle() const { return true; }
  onebitResult_t Open(const onebitTransportCommInfo& info, std::unique_ptr<Frames>* made) {
    *made = std::make_unique<Frames>(info);
    return onebitSuccess;
  }
};

constexpr onebitTransport kFunctions = [] {
  onebitTransport functions = plugin::FrameTable<Context, Frames>::Functions();
  functions.describePeer = [](void*, int peer, char* text, size_t capacity) {
    if (!TheScript().is_rank_1_stuck || peer != 1) return onebitInvalidUsage;
    std::snprintf(text, capacity, "a script, 7 bytes lost");
    return onebitTimeout;
  };
  return functions;
}();

}  // namespace

void ScriptedTransport::SetScript(int peer, std::deque<ScriptedMessage> messages) {
  TheScript().messages[peer] = std::move(messages);
  TheScript().sent.clear();
  TheScript().given_up = TheScript().withdrawn = 0;
}

const std::vector<std::vector<std::byte>>& ScriptedTransport::sent() { return TheScript().sent; }

int ScriptedTransport::given_up() { return TheScript().given_up; }

int ScriptedTransport::withdrawn() { return TheScript().withdrawn; }

void ScriptedTransport::SetStuck(bool is_stuck) { TheScript().is_rank_1_stuck = is_stuck; }

const onebitTransport* ScriptedTransport::functions() { return &kFunctions; }

}  // namespace onebit::testing
