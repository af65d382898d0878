// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// SocketFrameTransport: frames over shared memory to ranks of this host, over TCP to others.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plugins/common/frame_ring.h"
#include "plugins/common/frame_transport.h"
#include "plugins/transport_socket/mesh.h"
#include "plugins/transport_socket/socket_context.h"
#include "plugins/transport_socket/tcp_link.h"

namespace onebit::sockets {

class SocketFrameTransport final : public plugin::FrameTransport {
 public:
  static onebitResult_t Create(Context* context, const onebitTransportCommInfo& info,
                               std::unique_ptr<SocketFrameTransport>* frames);
  ~SocketFrameTransport() { context_->RemoveEndpoint(); }

  onebitResult_t GetAddress(void* address, size_t* bytes);
  onebitResult_t Connect(const void* const* addresses, const size_t* address_bytes,
                         uint64_t timeout_ms);
  onebitResult_t Abort();
  plugin::Link* link(int rank) { return &peers_[static_cast<size_t>(rank)].link; }
  plugin::Sent Send(int rank, onebitFrameKind kind, std::span<const std::byte> header,
                    std::span<const std::byte> payload);
  bool Progress();
  void Sleep(uint64_t timeout_ns);
  void StopPlacing(int rank);
  bool is_flushed() const;
  // True if what was sent to the rank does not arrive.
  bool Describe(int rank, char* text, size_t capacity) const;

 private:
  struct Peer {
    plugin::Link link;
    // One of these: a connection, or rings in memory that is shared with the rank.
    std::unique_ptr<TcpLink> tcp;
    std::optional<plugin::FrameRing> to;
    std::optional<plugin::FrameRing> from;
    SharedSegment segment;
    PairMemory* memory = nullptr;  // null: the ring leads to this rank itself
    size_t own_end = 0;            // index of this rank's flag in `memory`
    Descriptor doorbell;           // the peer's
    Descriptor socket;             // closes when the peer ends
    bool awaits_room = false;      // of the socket, by epoll
  };

  SocketFrameTransport(Context* context, const onebitTransportCommInfo& info);

  onebitResult_t Start(const onebitTransportCommInfo& info);
  onebitResult_t ReadAddresses(const void* const* addresses, const size_t* address_bytes);
  onebitResult_t AddPeer(int rank, Connection connection);
  onebitResult_t AddSelf();
  void Lose(Peer* peer, const char* reason);
  void Ring(const Peer& peer) const;
  bool ReceiveShared(int rank);
  bool CheckSockets(int timeout_ms);
  void WatchRoom(Peer* peer, int rank);
  bool HasFrames() const;
  void ReadBroken();
  void MentionDetours() const;
  void SetSleeping(bool is_sleeping);

  Context* const context_;
  Descriptor doorbell_;  // an eventfd: a peer has something for this rank
  Descriptor abort_;     // an eventfd, readable once the endpoint was aborted
  Descriptor epoll_;
  std::unique_ptr<Mesh> mesh_;  // until Connect
  Address address_{};
  std::vector<Address> addresses_;
  std::vector<Peer> peers_;
  std::vector<int> shared_;  // ranks behind rings, this one included
  bool has_tcp_ = false;
  bool has_broken_ = false;  // some socket takes nothing any more, and may still have something
  std::unique_ptr<std::byte[]> own_ring_;  // memory of the ring to this rank itself
  std::unique_ptr<std::byte[]> scratch_;   // for payloads that wrap around
  uint32_t looks_ = 0;                     // since the last look at sockets
};

}  // namespace onebit::sockets
