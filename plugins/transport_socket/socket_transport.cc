// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The transport's function table.
#include "plugins/transport_socket/socket_transport.h"

#include "plugins/common/frame_table.h"
#include "plugins/transport_socket/socket_context.h"
#include "plugins/transport_socket/socket_frame_transport.h"

namespace onebit::sockets {
namespace {

using Table = plugin::FrameTable<Context, SocketFrameTransport>;

onebitResult_t StopPlacing(void* comm, int peer) {
  if (!Table::HasRank(comm, peer)) return onebitInvalidArgument;
  Table::AsEndpoint(comm)->StopPlacing(peer);
  return onebitSuccess;
}

onebitResult_t IsFlushed(void* comm, int* flushed) {
  if (!Table::IsUsable(comm) || flushed == nullptr) return onebitInvalidArgument;
  *flushed = Table::AsEndpoint(comm)->is_flushed() ? 1 : 0;
  return onebitSuccess;
}

onebitResult_t DescribePeer(void* comm, int peer, char* text, size_t capacity) {
  if (!Table::HasRank(comm, peer) || text == nullptr) return onebitInvalidArgument;
  return Table::AsEndpoint(comm)->Describe(peer, text, capacity) ? onebitTimeout : onebitSuccess;
}

constexpr onebitTransport MakeTable() {
  onebitTransport functions = Table::Functions();
  functions.stopPlacing = StopPlacing;
  functions.isFlushed = IsFlushed;
  functions.describePeer = DescribePeer;
  return functions;
}

constexpr onebitTransport kFunctions = MakeTable();

}  // namespace

const onebitTransport* Functions() { return &kFunctions; }

}  // namespace onebit::sockets
