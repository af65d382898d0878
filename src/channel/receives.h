// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Receives: the receiving half of a message channel, with the slots in which messages arrive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "channel/controls.h"

namespace onebit::channel {

class Receives {
 public:
  Receives(ChannelState* state, Controls* controls) : state_(*state), controls_(*controls) {}

  onebitResult_t Post(int rank, std::byte* header, Request** request);
  onebitResult_t Accept(Request* request, std::span<std::byte> payload);
  void MatchPosted(int source);
  void End(Request* request, RequestState outcome);

  std::byte* Place(int peer, const void* header, size_t header_bytes, size_t payload_bytes);
  // Takes memory back that the transport is writing into for a message.
  void StopPlacing(Peer& from, uint64_t number);

  // Each returns null, or what is wrong with the frame.
  const char* HandleMessage(int source, const WireHeader& wire, const std::byte* header,
                            const std::byte* payload, size_t payload_bytes);
  const char* HandleData(Peer& from, const WireHeader& wire, const std::byte* payload,
                         size_t payload_bytes);
  void HandleWithdrawal(Peer& from, const WireHeader& wire);

 private:
  void SkipWithdrawn(Peer& from);
  void ReleaseSlot(Peer& from, Slot& slot);

  ChannelState& state_;
  Controls& controls_;
};

}  // namespace onebit::channel
