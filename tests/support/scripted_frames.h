// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Test double of a frame transport, and a message channel on top of it. The test plays all peers of
// rank 0 and sends frames that no honest peer would send.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "channel/channel_context.h"
#include "channel/message_channel.h"
#include "channel/wire.h"
#include "plugins/common/frame_table.h"
#include "plugins/common/frame_transport.h"

namespace onebit::testing {

using channel::WireHeader;
using channel::WireType;

// Records frames that the channel sends, and delivers those that the test has queued, one per
// Progress.
class ScriptedFrames : public plugin::FrameTransport {
 public:
  struct Frame {
    std::vector<std::byte> header;
    std::vector<std::byte> payload;
    int peer = -1;  // whose link it comes by; -1: the transport does not tell
  };
  struct SentFrame {
    int rank;
    WireHeader wire;
    std::vector<std::byte> payload;
  };

  ScriptedFrames(const onebitTransportCommInfo& info, size_t piece_bytes);

  void Arrive(Frame frame) { arriving_.push_back(std::move(frame)); }
  // Returns where the payload of a frame goes that comes by a rank's link.
  std::byte* Place(int peer, const WireHeader& wire, size_t payload_bytes) const {
    return sink_.Place(peer, &wire, sizeof wire, payload_bytes);
  }
  void Lose(int rank);
  void set_has_room(bool has_room) { has_room_for_pieces_ = has_room_for_others_ = has_room; }
  void set_has_room_for_pieces(bool has_room) { has_room_for_pieces_ = has_room; }
  void set_has_room_for_others(bool has_room) { has_room_for_others_ = has_room; }
  // Delivers a frame during the channel's first sleep.
  void ArriveInSleep(Frame frame) { in_sleep_.push_back(std::move(frame)); }
  uint64_t longest_sleep_ns() const { return longest_sleep_ns_; }
  const std::vector<SentFrame>& sent() const { return sent_; }
  // Counts frames of a type that were sent to a rank for messages with this number.
  size_t CountSent(int rank, WireType type, uint64_t number) const;

  onebitResult_t GetAddress(void* address, size_t* bytes);
  onebitResult_t Connect(const void* const* addresses, const size_t* address_bytes,
                         uint64_t timeout_ms);
  onebitResult_t Abort() { return onebitSuccess; }
  plugin::Link* link(int rank) { return &links_[static_cast<size_t>(rank)]; }
  plugin::Sent Send(int rank, onebitFrameKind kind, std::span<const std::byte> header,
                    std::span<const std::byte> payload);
  bool Progress();
  void Sleep(uint64_t timeout_ns);

 private:
  std::vector<plugin::Link> links_;
  std::deque<Frame> arriving_;
  std::deque<Frame> in_sleep_;
  uint64_t longest_sleep_ns_ = 0;
  std::vector<SentFrame> sent_;
  bool has_room_for_pieces_ = true;
  bool has_room_for_others_ = true;
};

// The transport's context: makes frames, and keeps the last ones for the test.
struct ScriptContext {
  static onebitResult_t Create(const onebitTransportHost&, std::unique_ptr<ScriptContext>*) {
    return onebitInternalError;  // the test has one
  }
  static onebitTransportProperties Properties(const ScriptContext*) { return {}; }
  bool is_idle() const { return true; }
  onebitResult_t Open(const onebitTransportCommInfo& info, std::unique_ptr<ScriptedFrames>* made);

  size_t piece_bytes = 0;
  ScriptedFrames* frames = nullptr;
};

// A connected rank 0 of three. One at a time per process, because a log has no owner.
class FramedRank final : private channel::PeerErrorSink {
 public:
  static constexpr int kRanks = 3;
  static constexpr size_t kEagerBytes = 64;
  static constexpr size_t kEarlyBytes = 1024;
  static constexpr size_t kPieceBytes = 256;
  static constexpr uint64_t kCommId = 77;

  explicit FramedRank(size_t early_bytes = kEarlyBytes);
  ~FramedRank();

  channel::MessageChannel& channel() { return *channel_; }
  ScriptedFrames& frames() { return *script_.frames; }
  // Warnings of the channel so far, one for each frame that it dropped.
  static const std::vector<std::string>& warnings() { return warnings_; }
  // Errors that the channel has reported about peers.
  const std::vector<onebitResult_t>& peer_errors() const { return peer_errors_; }

  // Returns the header of a frame from rank 1.
  static WireHeader Wire(WireType type, uint64_t number, uint64_t value = 0);
  // Delivers a frame. By default the user's header has as many bytes as the wire header says.
  void Arrive(const WireHeader& wire, std::span<const std::byte> payload = {},
              std::span<const std::byte> header = {});

 private:
  void OnPeerError(int peer, Code code, const char* text) override;

  static inline std::vector<std::string> warnings_;
  std::vector<onebitResult_t> peer_errors_;
  ScriptContext script_;
  channel::ChannelContext context_;
  std::unique_ptr<channel::MessageChannel> channel_;
};

}  // namespace onebit::testing
