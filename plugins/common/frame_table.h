// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The frame face of a transport's table of C functions.
#pragma once

#include <onebit/transport.h>

#include <cstddef>
#include <span>

#include "plugins/common/frame_transport.h"
#include "plugins/common/transport_table.h"

namespace onebit::plugin {

// Frames is derived from FrameTransport. It has the members of TransportTable's Endpoint, of which
// Abort calls MarkAborted, and these, which are called after a Connect that succeeded:
//   Link* link(int rank);
//   Sent Send(int rank, onebitFrameKind, std::span<const std::byte> header,
//             std::span<const std::byte> payload);
//   bool Progress();   // false: there was nothing to do
//   void Sleep(uint64_t timeout_ns);
template <typename Context, typename Frames>
struct FrameTable : TransportTable<Context, Frames> {
  using Table = TransportTable<Context, Frames>;
  using Table::AsEndpoint;

  static bool IsUsable(void* comm) { return comm != nullptr && AsEndpoint(comm)->is_connected(); }
  static bool HasRank(void* comm, int peer) {
    return IsUsable(comm) && peer >= 0 && peer < AsEndpoint(comm)->ranks();
  }

  static onebitResult_t Connect(void* comm, const void* const* addresses,
                                const size_t* address_bytes, uint64_t timeout_ms) {
    if (comm != nullptr && AsEndpoint(comm)->is_connected()) return onebitInvalidUsage;
    const onebitResult_t result = Table::Connect(comm, addresses, address_bytes, timeout_ms);
    if (result == onebitSuccess) AsEndpoint(comm)->set_connected();
    return result;
  }

  static onebitResult_t GetLink(void* comm, int peer, const onebitTransportLink** link) {
    if (!HasRank(comm, peer) || link == nullptr) return onebitInvalidArgument;
    *link = AsEndpoint(comm)->link(peer);
    return onebitSuccess;
  }

  static onebitResult_t SendFrame(void* comm, int peer, int kind, const void* header,
                                  size_t header_bytes, const void* payload, size_t payload_bytes) {
    if (!HasRank(comm, peer)) return onebitInvalidArgument;
    Frames* const frames = AsEndpoint(comm);
    const Sent sent = frames->Send(peer, static_cast<onebitFrameKind>(kind),
                                   {static_cast<const std::byte*>(header), header_bytes},
                                   {static_cast<const std::byte*>(payload), payload_bytes});
    frames->ReportLosses();
    if (sent == Sent::kYes) return onebitSuccess;
    if (sent == Sent::kNoRoom && kind == onebitFrameShort) frames->set_lacks_room();
    return sent == Sent::kNoRoom ? onebitInProgress : onebitPeerLost;
  }

  static onebitResult_t Progress(void* comm, int* has_moved) {
    if (!IsUsable(comm) || has_moved == nullptr) return onebitInvalidArgument;
    *has_moved = AsEndpoint(comm)->Progress() ? 1 : 0;
    if (*has_moved != 0) AsEndpoint(comm)->ReportRoom();
    AsEndpoint(comm)->ReportLosses();
    return onebitSuccess;
  }

  static onebitResult_t Sleep(void* comm, uint64_t timeout_ns) {
    if (!IsUsable(comm)) return onebitInvalidArgument;
    AsEndpoint(comm)->Sleep(timeout_ns);
    AsEndpoint(comm)->ReportRoom();  // some transports make progress in there
    AsEndpoint(comm)->ReportLosses();
    return onebitSuccess;
  }

  static constexpr onebitTransport Functions() {
    onebitTransport functions = Table::kFunctions;
    functions.connect = Connect;
    functions.getLink = GetLink;
    functions.sendFrame = SendFrame;
    functions.progress = Progress;
    functions.sleep = Sleep;
    return functions;
  }
};

}  // namespace onebit::plugin
