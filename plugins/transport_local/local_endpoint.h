// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Endpoint: one rank's end of one communicator.
#pragma once

#include <onebit/transport.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "plugins/transport_local/inbox.h"
#include "plugins/transport_local/local_context.h"
#include "plugins/transport_local/request.h"

namespace onebit::local {

// A small message is copied into a slot of the receiver's inbox, and its send is done. A large one
// puts only its header there; the receiver copies the payload from the sender's buffer when it
// accepts, and the send is done then.
//
// When a peer's endpoint is closed or aborted, messages it had sent before can still be received,
// except payloads it had not handed over. Then every operation that still needs it fails with
// onebitRemoteError: sends it has not taken, receives it will not serve, new sends. The first such
// failure per peer calls peerError, from inside Test, Progress, Receive or Send. A peer that ends
// while nothing is expected of it is not reported, because communicators end one rank after the
// other.
//
// One thread at a time, except Abort.
class Endpoint {
 public:
  using Request = local::Request;

  // Throws std::bad_alloc.
  Endpoint(Context* context, const onebitTransportCommInfo& info);
  // Closes the endpoint: cancels pending requests, tells the peers. Never waits for them, except
  // for the rest of a piece of at most kPieceBytes that a peer is copying at this moment.
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  onebitResult_t GetAddress(void* address, size_t* bytes) const;
  // All ranks are in this process and have opened already, so there is nothing to wait for. Throws
  // std::bad_alloc.
  onebitResult_t Connect(const void* const* addresses, const size_t* address_bytes,
                         uint64_t timeout_ms);

  onebitResult_t Send(int peer, const void* header, size_t header_bytes, const void* payload,
                      size_t payload_bytes, Request** request);
  onebitResult_t Receive(int peer, void* header, Request** request);
  onebitResult_t Probe(const Request& request, size_t* header_bytes, size_t* payload_bytes) const;
  onebitResult_t Accept(Request* request, void* payload, size_t payload_bytes);
  onebitResult_t Test(Request* request, onebitTransportState* state);
  onebitResult_t Cancel(Request* request);
  onebitResult_t Progress();
  onebitResult_t Wait(uint64_t timeout_ms);
  onebitResult_t Abort();
  void GetCounters(uint64_t* bytes_sent, uint64_t* messages_sent) const;
  onebitResult_t DescribePeer(int peer, char* text, size_t capacity) const;

 private:
  static constexpr size_t kPieceBytes = 256 * 1024;

  // This rank's view of another rank, or of itself.
  struct Peer {
    std::shared_ptr<Inbox> inbox;
    uint64_t sent = 0;      // messages published to the peer
    uint64_t received = 0;  // messages from it whose header was taken
    // Offers by slot of the peer's inbox, null when settled.
    std::array<Request*, kSlotsPerRing> offers = {};
    // Bit s is set if slot s holds a message whose header was taken and whose payload was not.
    uint32_t held_slots = 0;
    Request* posted = nullptr;  // the receive waiting for a header
    bool is_reported = false;   // peerError was called
  };

  // Reads the flag that abort sets. acquire: earlier writes of the aborting thread are visible.
  bool is_aborted() const {
    return inbox_->state().load(std::memory_order_acquire) != InboxState::kOpen;
  }
  bool is_connected() const { return !peers_.empty(); }
  onebitResult_t CheckPeer(int peer) const;

  // endpoint_send.cc
  bool HasRoom(Peer& to, Slot& slot);
  void ResolveOffer(Request* request);
  void WithdrawOffer(Request* request);

  // endpoint_receive.cc
  bool MatchPosted(Request* request);
  bool CopyOffered(Request* request, std::byte* payload);
  void ReleaseSlot(Request* request);
  void DropReceive(Request* request);

  // endpoint.cc
  bool HasDeparted(const Peer& peer) const;
  void ReportDeparture(int peer);
  void NotifyPeers();

  Context* const context_;
  const int rank_;
  const int nranks_;
  void (*const peer_error_)(void*, int, onebitResult_t, const char*);
  void* const peer_error_argument_;
  const std::shared_ptr<Inbox> inbox_;

  std::vector<Peer> peers_;             // empty until connected, then fixed
  std::atomic<bool> has_peers_{false};  // for aborts: peers_ no longer changes
  RequestPool requests_;
  Request sent_;                  // shared by all sends that completed at once
  std::vector<Request*> posted_;  // receives without header; capacity reserved

  // For Wait: `seen_rings_` is the doorbell's count when Wait last returned; `has_own_event_` is
  // set if calls of this rank have changed requests since. Counting from the last return, not from
  // the last look, makes Wait return once too often rather than miss news when the caller tests
  // before it makes progress.
  uint32_t seen_rings_ = 0;
  bool has_own_event_ = false;

  // Atomic so that another thread may read the statistics; only the owner writes them. relaxed:
  // nothing is published through them.
  std::atomic<uint64_t> bytes_sent_{0};
  std::atomic<uint64_t> messages_sent_{0};

  // The last member: once a rank has an address, nothing in its endpoint can fail any more.
  const Address address_;
};

}  // namespace onebit::local
