// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// One rank's endpoint of a faulty transport: frames of another transport, with a fault at one
// message.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "channel/frames.h"
#include "channel/wire.h"
#include "plugins/common/frame_transport.h"
#include "tests/support/fault_switch.h"
#include "transport/transport.h"

namespace onebit::testing {

// Numbers of the messages to one peer, as this rank's channel and as the peer count them. They
// differ from the message on that was lost, came twice or was overtaken.
class Renumbering {
 public:
  enum class Kind { kNone, kLost, kTwice, kSwapped };

  Renumbering() = default;
  Renumbering(Kind kind, int peer, uint64_t number) : kind_(kind), peer_(peer), number_(number) {}

  uint64_t number() const { return number_; }  // of the first message that is concerned
  bool Loses(int peer, uint64_t number) const {
    return kind_ == Kind::kLost && peer == peer_ && number == number_;
  }
  // The number of a message, or the number of messages so far, for the peer.
  uint64_t ForPeer(int peer, uint64_t number) const;
  // The number that the peer means; nothing if it means the copy of the message that came twice.
  std::optional<uint64_t> FromPeer(int peer, uint64_t number) const;
  // How many messages the peer has released.
  uint64_t ReleasedBy(int peer, uint64_t released) const;

 private:
  Kind kind_ = Kind::kNone;
  int peer_ = -1;
  uint64_t number_ = 0;
};

// Counts a message when its kMessage frame is sent. Used by its rank's thread.
class FaultyFrames : public plugin::FrameTransport {
 public:
  FaultyFrames(FaultSwitch* faults, const Transport& inner, const onebitTransportCommInfo& info);

  onebitResult_t Open(onebitTransportCommInfo info);
  onebitResult_t GetAddress(void* address, size_t* bytes) const {
    return inner_.GetAddress(address, bytes);
  }
  onebitResult_t Connect(const void* const* addresses, const size_t* bytes, uint64_t timeout_ms);
  onebitResult_t Abort();
  const onebitTransportLink* link(int rank) const { return &links_[static_cast<size_t>(rank)]; }
  onebitResult_t Send(int rank, onebitFrameKind kind, std::span<const std::byte> header,
                      std::span<const std::byte> payload);
  bool Progress();
  void Sleep(uint64_t timeout_ns);
  void Offer(int rank, int index, std::span<const std::byte> payload);
  void Recall(int rank, int index);
  channel::Frames& inner() { return inner_; }

 private:
  struct Frame {
    int rank;
    onebitFrameKind kind;
    channel::WireHeader wire;
    std::array<std::byte, kMessageHeaderBytes> header;
    std::span<const std::byte> payload;
  };
  // A frame of a message that another one overtakes, or of a copy.
  struct LateFrame {
    Frame frame;
    std::vector<std::byte> payload;
  };
  // A message whose payload changes on the way.
  struct Damage {
    int rank;
    uint64_t number;
    uint64_t payload_bytes;
    bool is_cut;  // else a bit flips
    size_t bit;
  };

  onebitResult_t SendMessage(Frame frame);
  onebitResult_t Strike(Frame frame);
  onebitResult_t Forward(Frame frame);
  onebitResult_t Put(const Frame& frame);
  onebitResult_t SendOffer(const Frame& frame);
  void Delay(const Frame& frame);
  void SendLateFrames();
  void EndHold();
  bool DamagePayload(Frame* frame);
  void OnFrame(int peer, const void* header, size_t header_bytes, const void* payload,
               size_t payload_bytes);
  void ReportLoss();
  void RefreshLinks();
  // True while a message waits to be overtaken, but not for ever.
  bool has_hold() const {
    return held_until_ != FaultSwitch::Clock::time_point{} && !is_overtaken_ && !late_.empty();
  }
  bool is_silent() const { return faults_.silent_rank() == rank_; }
  // True if the peer has a slot for the message that it will count by this number.
  bool HasSlot(int peer, uint64_t number) const {
    return number < released_[static_cast<size_t>(peer)] + channel::kWindow;
  }

  FaultSwitch& faults_;
  channel::Frames inner_;
  std::vector<onebitTransportLink> links_;  // those of `inner_`, and the loss that is reported
  Renumbering renumbering_;
  std::vector<uint64_t> released_;  // messages that each peer has released, as it counts them
  std::optional<Damage> damage_;
  std::deque<LateFrame> late_;
  bool is_overtaken_ = false;
  std::optional<std::span<const std::byte>> lent_;  // payload of the first of `late_`
  FaultSwitch::Clock::time_point held_until_{};
  std::optional<LateFrame> offer_;  // of the message that is sent next: rank, number and payload
  std::vector<std::array<int, ONEBIT_TRANSPORT_OFFERS>> offers_;  // index in `inner_`; -1: none
  // Hold the damaged payload, the first while it is offered.
  std::vector<std::byte> offered_copy_;
  std::vector<std::byte> copy_;
  FaultSwitch::Clock::time_point delayed_until_{};
  bool has_reported_loss_ = false;
};

// The context of a faulty transport. Code that knows the transport is one may access it.
struct FaultyContext {
  FaultSwitch faults;
  // If ranks are processes, which create one communicator after another: the one that the fault is
  // for.
  std::optional<int> only_comm;
  FaultSwitch no_faults;  // for all other communicators
  std::atomic<int> comms = 0;
  Transport inner;

  onebitResult_t Open(const onebitTransportCommInfo& info, std::unique_ptr<FaultyFrames>* made);
};

// The functions of a faulty transport's endpoints.
extern const onebitTransport kFaultyFrameFunctions;

}  // namespace onebit::testing
