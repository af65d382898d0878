// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The transport's function table.
#include "plugins/transport_local/local_transport.h"

#include "plugins/common/frame_table.h"
#include "plugins/transport_local/local_context.h"
#include "plugins/transport_local/local_frame_transport.h"

namespace onebit::local {
namespace {

using Table = plugin::FrameTable<Context, LocalFrameTransport>;

bool IsOffer(void* comm, int peer, int index) {
  return Table::HasRank(comm, peer) && index >= 0 && index < ONEBIT_TRANSPORT_OFFERS;
}

onebitResult_t OfferPayload(void* comm, int peer, int index, const void* payload, size_t bytes) {
  if (!IsOffer(comm, peer, index) || payload == nullptr) return onebitInvalidArgument;
  Table::AsEndpoint(comm)->Offer(peer, index, payload, bytes);
  return onebitSuccess;
}

onebitResult_t Pull(void* comm, int peer, int index, void* target, size_t bytes) {
  if (!IsOffer(comm, peer, index) || target == nullptr) return onebitInvalidArgument;
  return Table::AsEndpoint(comm)->Pull(peer, index, target, bytes);
}

onebitResult_t Recall(void* comm, int peer, int index) {
  if (!IsOffer(comm, peer, index)) return onebitInvalidArgument;
  Table::AsEndpoint(comm)->Recall(peer, index);
  return onebitSuccess;
}

constexpr onebitTransport MakeTable() {
  onebitTransport functions = Table::Functions();
  functions.offer = OfferPayload;
  functions.pull = Pull;
  functions.recall = Recall;
  return functions;
}

constexpr onebitTransport kFunctions = MakeTable();

}  // namespace

const onebitTransport* Functions() { return &kFunctions; }

}  // namespace onebit::local
