// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// LocalFrameTransport: frames between threads of one process.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "plugins/common/frame_ring.h"
#include "plugins/common/frame_transport.h"
#include "plugins/transport_local/inbox.h"
#include "plugins/transport_local/local_context.h"

namespace onebit::local {

// A frame is copied into the receiver's inbox. Large payloads are offered and copied once, by their
// receiver.
class LocalFrameTransport final : public plugin::FrameTransport {
 public:
  // Throws std::bad_alloc.
  LocalFrameTransport(Context* context, const onebitTransportCommInfo& info);
  ~LocalFrameTransport();

  onebitResult_t GetAddress(void* address, size_t* bytes) const;
  // All ranks are in this process and have opened already, so there is nothing to wait for. Throws
  // std::bad_alloc.
  onebitResult_t Connect(const void* const* addresses, const size_t* address_bytes,
                         uint64_t timeout_ms);
  onebitResult_t Abort();

  plugin::Link* link(int rank) { return &peer(rank).link; }
  plugin::Sent Send(int rank, onebitFrameKind kind, std::span<const std::byte> header,
                    std::span<const std::byte> payload);
  bool Progress();
  void Sleep(uint64_t timeout_ns);

  void Offer(int rank, int index, const void* payload, size_t bytes);
  onebitResult_t Pull(int rank, int index, void* target, size_t bytes);
  void Recall(int rank, int index);

 private:
  struct Peer {
    Peer(std::shared_ptr<Inbox> its_inbox, plugin::FrameRing to_it, plugin::FrameRing from_it)
        : inbox(std::move(its_inbox)), to(to_it), from(from_it) {}

    std::shared_ptr<Inbox> inbox;
    plugin::FrameRing to;    // in its inbox
    plugin::FrameRing from;  // in this rank's inbox
    plugin::Link link;
  };

  Peer& peer(int rank) { return *peers_[static_cast<size_t>(rank)]; }
  bool Receive(int rank);
  void FindDepartures();

  Context* const context_;
  const std::shared_ptr<Inbox> inbox_;
  std::vector<std::unique_ptr<Peer>> peers_;  // empty until connected, then fixed
  std::unique_ptr<std::byte[]> scratch_;      // for payloads that wrap around
  uint32_t seen_departures_ = 0;
  // The doorbell's count when Progress last began: a frame that it has not seen has rung since.
  uint32_t seen_rings_ = 0;
  // The last member: once a rank has an address, nothing in its endpoint can fail any more.
  const Address address_;
};

}  // namespace onebit::local
