// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sends: the sending half of a message channel.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "channel/controls.h"

namespace onebit::channel {

class Sends {
 public:
  Sends(ChannelState* state, Controls* controls) : state_(*state), controls_(*controls) {
    streaming_.reserve(static_cast<size_t>(state_.nranks));
  }

  // Inline, because every level between a call and the network costs each message.
  onebitResult_t Send(int rank, std::span<const std::byte> header,
                      std::span<const std::byte> payload, Request** request) {
    if (header.size() > kMessageHeaderBytes) return onebitInvalidArgument;
    Peer& to = state_.peer(rank);
    if (!to.controls.is_empty()) controls_.Flush(rank);
    const onebitResult_t result =
        HasRoom(to) ? Start(to, header, payload, request) : onebitInProgress;
    if (result != onebitSuccess && to.is_gone()) {
      state_.ReportDeparture(rank);
      return to.has_bye ? onebitRemoteError : onebitPeerLost;
    }
    if (result == onebitInProgress) state_.lacks_room = true;
    // A frame that the frame transport could not send at once may need nothing but progress, and
    // the caller may not come back soon. (Over shared memory, UCX attaches to a segment of the
    // receiver only when it makes progress, and holds the first message until then.)
    if (to.in_flight() != 0) state_.frames.Progress();
    return result;
  }
  bool Pump();
  void End(Request* request, RequestState outcome);

  void HandleRelease(Peer& from, uint64_t released);
  void HandleAnswer(Peer& from, const WireHeader& wire);

  // Both count what was handed over so far, headers and payloads. Any thread may ask.
  uint64_t bytes() const { return bytes_sent_.load(std::memory_order_relaxed); }
  uint64_t messages() const { return messages_sent_.load(std::memory_order_relaxed); }

 private:
  bool HasRoom(const Peer& to) const {
    return !to.is_gone() && to.controls.is_empty() && to.sent < to.released_by_it + kWindow &&
           to.offers[to.sent % kWindow] == nullptr &&
           (to.link->isPaced == 0 || to.pending_bytes < kMostPendingBytes);
  }
  onebitResult_t Start(Peer& to, std::span<const std::byte> header,
                       std::span<const std::byte> payload, Request** request);
  bool PumpStream(Peer& to);
  void StartStreaming(Request* request);
  void StopStreaming(Request* request);

  ChannelState& state_;
  Controls& controls_;
  Request sent_{.state = RequestState::kSent};
  std::vector<int> streaming_;  // peers whose stream is not empty; capacity reserved

  // Atomic so that another thread may read the statistics; only the owner writes them. relaxed:
  // nothing is published through them.
  std::atomic<uint64_t> bytes_sent_{0};
  std::atomic<uint64_t> messages_sent_{0};
};

}  // namespace onebit::channel
