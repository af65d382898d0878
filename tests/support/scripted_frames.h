// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Test double of a frame transport, and an endpoint on top of it. The test plays all peers of rank
// 0 and sends frames that no honest peer would send.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "plugins/common/base_context.h"
#include "plugins/common/endpoint.h"
#include "plugins/common/frame_transport.h"
#include "plugins/common/wire.h"

namespace onebit::testing {

// Records frames that the endpoint sends, and delivers those that the test has queued, one per
// Progress.
class ScriptedFrames : public plugin::FrameTransport {
 public:
  struct Frame {
    std::vector<std::byte> header;
    std::vector<std::byte> payload;
  };
  struct SentFrame {
    int rank;
    plugin::WireHeader wire;
    std::vector<std::byte> payload;
  };

  ScriptedFrames(int ranks, size_t piece_bytes);

  void Arrive(Frame frame) { arriving_.push_back(std::move(frame)); }
  void Lose(int rank);
  void set_has_room(bool has_room) { has_room_for_pieces_ = has_room_for_others_ = has_room; }
  void set_has_room_for_pieces(bool has_room) { has_room_for_pieces_ = has_room; }
  void set_has_room_for_others(bool has_room) { has_room_for_others_ = has_room; }
  // Delivers a frame during the endpoint's first sleep.
  void ArriveInSleep(Frame frame) { in_sleep_.push_back(std::move(frame)); }
  uint64_t longest_sleep_ns() const { return longest_sleep_ns_; }
  const std::vector<SentFrame>& sent() const { return sent_; }
  // Counts frames of a type that were sent to a rank for messages with this number.
  size_t CountSent(int rank, plugin::WireType type, uint64_t number) const;

  onebitResult_t GetAddress(void* address, size_t* bytes) override;
  onebitResult_t Open(const void* const* addresses, const size_t* address_bytes,
                      uint64_t timeout_ns, const std::function<bool()>& is_aborted) override;
  void Close() override {}
  plugin::Link* link(int rank) override { return &links_[static_cast<size_t>(rank)]; }
  uint32_t ranks_here() const override { return static_cast<uint32_t>(links_.size()); }
  plugin::Sent Send(int rank, plugin::FrameKind kind, std::span<const std::byte> header,
                    std::span<const std::byte> payload) override;
  bool Progress() override;
  void Sleep(uint64_t timeout_ns) override;
  void Interrupt() override {}

 private:
  std::vector<plugin::Link> links_;
  std::deque<Frame> arriving_;
  std::deque<Frame> in_sleep_;
  uint64_t longest_sleep_ns_ = 0;
  std::vector<SentFrame> sent_;
  bool has_room_for_pieces_ = true;
  bool has_room_for_others_ = true;
};

// A connected rank 0 of three. One at a time per process, because a log has no owner.
class FramedRank {
 public:
  static constexpr int kRanks = 3;
  static constexpr size_t kEagerBytes = 64;
  static constexpr size_t kEarlyBytes = 1024;
  static constexpr size_t kPieceBytes = 256;
  static constexpr uint64_t kCommId = 77;

  FramedRank();
  ~FramedRank();

  plugin::Endpoint& endpoint() { return *endpoint_; }
  ScriptedFrames& frames() { return *frames_; }
  // Warnings of the endpoint so far, one for each frame that it dropped.
  static const std::vector<std::string>& warnings() { return warnings_; }
  // Results that peerError was called with.
  const std::vector<onebitResult_t>& peer_errors() const { return peer_errors_; }

  // Returns the header of a frame from rank 1.
  static plugin::WireHeader Wire(plugin::WireType type, uint64_t number, uint64_t value = 0);
  // Delivers a frame. By default the user's header has as many bytes as the wire header says.
  void Arrive(const plugin::WireHeader& wire, std::span<const std::byte> payload = {},
              std::span<const std::byte> header = {});

 private:
  static inline std::vector<std::string> warnings_;
  std::vector<onebitResult_t> peer_errors_;
  plugin::BaseContext context_;
  ScriptedFrames* frames_;  // the endpoint's
  std::unique_ptr<plugin::Endpoint> endpoint_;
};

}  // namespace onebit::testing
