// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Controls: the control messages of a channel, and with them what its slots have released.
#pragma once

#include <cstdint>
#include <vector>

#include "channel/channel_state.h"

namespace onebit::channel {

class Controls {
 public:
  explicit Controls(ChannelState* state) : state_(*state) {
    flushing_.reserve(static_cast<size_t>(state_.nranks));
  }

  // The header of a frame to a peer.
  WireHeader Wire(Peer& to, WireType type, uint64_t number, uint64_t value) const;
  void Send(int rank, WireType type, uint64_t number, uint64_t value = 0);
  void Flush(int rank);
  void FlushAll();

  void AnnounceReleased(int rank);
  void AnnounceReleasedNow(int rank);
  void AnnounceReleasedWhenIdle();

 private:
  bool NeedsAnnouncement(const Peer& to) const;

  ChannelState& state_;
  std::vector<int> flushing_;     // peers with waiting controls; capacity reserved
  bool has_unannounced_ = false;  // slots were released, and the peer may need to know
};

}  // namespace onebit::channel
