// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// ChannelState: what the parts of a message channel share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "channel/channel_context.h"
#include "channel/frames.h"
#include "channel/message_request.h"
#include "channel/peer.h"
#include "channel/wire.h"

namespace onebit::channel {

// Guarded by the channel's lock.
class ChannelState {
 public:
  ChannelState(const ChannelContext& its_context, const ChannelInfo& info);

  Peer& peer(int of) { return peers[static_cast<size_t>(of)]; }
  const Peer& peer(int of) const { return peers[static_cast<size_t>(of)]; }
  int RankOf(const Peer& peer) const { return static_cast<int>(&peer - peers.data()); }

  // Payloads up to this size start before the receiver asks for them.
  size_t early_bytes(const Peer& other) const {
    return other.link->isPaced != 0 ? most_early_bytes
                                    : std::min(most_early_bytes, kMostEarlyOverMemory);
  }
  // Memory of a slot, for an eager or early payload.
  size_t slot_bytes() const { return std::max(most_early_bytes, eager_bytes); }
  // True if the receiver copies a payload of this size out of the sender's memory.
  bool IsPulled(const Peer& other, size_t payload_bytes) const {
    return other.link->canPull != 0 && payload_bytes > std::max(eager_bytes, early_bytes(other));
  }

  // Tells the sink, once for each peer that is gone.
  void ReportDeparture(int of);

  const ChannelContext& context;
  const int rank;
  const int nranks;
  const uint64_t comm_id;
  const size_t eager_bytes;
  const size_t most_early_bytes;  // for any peer

  Frames frames;
  std::vector<Peer> peers;  // empty until connect begins, then fixed
  std::unique_ptr<MessageRequests> requests;
  uint64_t events = 0;         // that a caller may wait for
  bool has_losses = false;     // some link was lost or some peer has ended
  bool lacks_room = false;     // Send returned onebitInProgress
  bool is_discarding = false;  // arriving frames are dropped: the endpoint ends

 private:
  PeerErrorSink* const sink_;  // null: nobody listens
};

}  // namespace onebit::channel
