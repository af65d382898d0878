// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/transport_local/local_frame_transport.h"

#include <cstring>
#include <utility>

namespace onebit::local {
namespace {

using plugin::FrameRing;
using plugin::Sent;

// Frames delivered from one ring before the others are served.
constexpr int kFramesPerTurn = 16;

}  // namespace

LocalFrameTransport::LocalFrameTransport(Context* context, const onebitTransportCommInfo& info)
    : FrameTransport(info),
      context_(context),
      inbox_(std::make_shared<Inbox>(
          Inbox::Identity{.rank = info.rank, .nranks = info.nranks, .comm_id = info.commId},
          context->options().eager_bytes)),
      scratch_(std::make_unique_for_overwrite<std::byte[]>(
          FrameRing::PieceBytes(inbox_->ring_capacity()))),
      address_(context->Register(inbox_)) {}

LocalFrameTransport::~LocalFrameTransport() {
  inbox_->is_closed().store(true, std::memory_order_release);
  for (const std::unique_ptr<Peer>& to : peers_) {
    // release: pairs with FindDepartures.
    to->inbox->departures().fetch_add(1, std::memory_order_release);
    to->inbox->doorbell().Ring();
  }
  context_->Unregister(address_);
}

onebitResult_t LocalFrameTransport::GetAddress(void* address, size_t* bytes) const {
  std::memcpy(address, &address_, sizeof address_);
  *bytes = sizeof address_;
  return onebitSuccess;
}

onebitResult_t LocalFrameTransport::Connect(const void* const* addresses,
                                            const size_t* address_bytes, uint64_t /*timeout_ms*/) {
  std::vector<std::unique_ptr<Peer>> peers;
  for (int rank = 0; rank < nranks_; ++rank) {
    if (address_bytes[rank] != sizeof(Address)) {
      context_->Warn("the address of rank %d has %zu bytes, not %zu", rank, address_bytes[rank],
                     sizeof(Address));
      return onebitInvalidArgument;
    }
    Address address;
    std::memcpy(&address, addresses[rank], sizeof address);
    std::shared_ptr<Inbox> inbox;
    const onebitResult_t result =
        context_->Find(address, {.rank = rank, .nranks = nranks_, .comm_id = comm_id_}, &inbox);
    if (result != onebitSuccess) return result;
    const FrameRing to = inbox->ring(rank_);
    auto& one =
        *peers.emplace_back(std::make_unique<Peer>(std::move(inbox), to, inbox_->ring(rank)));
    one.link.pieceBytes = FrameRing::PieceBytes(inbox_->ring_capacity());
    one.link.isHere = 1;
    one.link.canPull = 1;
    one.link.isReached = 1;
    one.link.SetHost("this process");
    one.link.SetRoute("memory of this process");
  }
  peers_ = std::move(peers);
  return is_aborted() ? onebitAborted : onebitSuccess;
}

onebitResult_t LocalFrameTransport::Abort() {
  MarkAborted();
  inbox_->doorbell().Ring();
  return onebitSuccess;
}

Sent LocalFrameTransport::Send(int rank, onebitFrameKind kind, std::span<const std::byte> header,
                               std::span<const std::byte> payload) {
  Peer& to = peer(rank);
  if (to.link.is_lost()) return Sent::kFailed;
  if (to.to.Write(kind, header, payload) != FrameRing::Result::kDone) return Sent::kNoRoom;
  to.inbox->doorbell().Ring();
  return Sent::kYes;
}

bool LocalFrameTransport::Receive(int rank) {
  Peer& from = peer(rank);
  return plugin::Deliver(&from.from, kFramesPerTurn, scratch_.get(), rank, sink_,
                         [&from] { from.inbox->doorbell().Ring(); }) == FrameRing::Result::kDone;
}

bool LocalFrameTransport::Progress() {
  seen_rings_ = inbox_->doorbell().count();
  bool has_moved = false;
  for (int rank = 0; rank < nranks_; ++rank) {
    has_moved |= Receive(rank);
    if (lacks_room_ && peer(rank).to.TakeRoom()) ReportRoom();
  }
  if (!has_moved) FindDepartures();
  return has_moved || has_losses_;
}

// Called when all rings are empty.
void LocalFrameTransport::FindDepartures() {
  // acquire: a reader of the announcement also sees the state that it is about.
  const uint32_t departures = inbox_->departures().load(std::memory_order_acquire);
  if (departures == seen_departures_) return;
  seen_departures_ = departures;
  for (int rank = 0; rank < nranks_; ++rank) {
    Peer& gone = peer(rank);
    if (gone.link.is_lost() || !gone.inbox->is_closed().load(std::memory_order_acquire)) continue;
    // Frames may have come since its ring was empty.
    while (Receive(rank)) {
    }
    gone.link.loss = "its endpoint was closed";
    has_losses_ = true;
  }
}

void LocalFrameTransport::Sleep(uint64_t timeout_ns) {
  if (is_aborted()) return;
  inbox_->doorbell().Wait(seen_rings_, timeout_ns, 0, context_->host().nowNs);
}

void LocalFrameTransport::Offer(int rank, int index, const void* payload, size_t bytes) {
  peer(rank).inbox->offer(rank_, index).Set(payload, bytes);
}

onebitResult_t LocalFrameTransport::Pull(int rank, int index, void* target, size_t bytes) {
  switch (inbox_->offer(rank, index).Pull(target, bytes)) {
    case Offer::Pulled::kAll:
      return onebitSuccess;
    case Offer::Pulled::kRecalledWhileReading:
      peer(rank).inbox->doorbell().Ring();
      break;
    case Offer::Pulled::kRecalled:
      break;
  }
  return onebitRemoteError;
}

// The receiver runs in this process and stops after the piece that it copies.
void LocalFrameTransport::Recall(int rank, int index) {
  constexpr uint64_t kLookAgainNs = 1'000'000;
  while (true) {
    const uint32_t count = inbox_->doorbell().count();
    if (peer(rank).inbox->offer(rank_, index).Recall()) return;
    inbox_->doorbell().Wait(count, kLookAgainNs, 0, context_->host().nowNs);
  }
}

}  // namespace onebit::local
