// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/faulty_frames.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

#include "plugins/common/frame_table.h"

namespace onebit::testing {
namespace {

using channel::WireHeader;
using channel::WireType;

constexpr size_t kVersionOffset = 4;  // FORMAT.md, section 3
// Neither a loss that is to be reported nor the end of a delay wakes anybody, so endpoints that may
// have one look often.
constexpr uint64_t kLookNs = 2'000'000;
// A large payload, which the peer fetches or asks for, keeps its call open, so that nothing can
// overtake the last message of a call: it comes after this time, late and in order.
constexpr std::chrono::milliseconds kLongestHold(20);
// Small messages of the tests have up to 2000 bytes, large ones 12,500 and more.
constexpr size_t kLeastLarge = 8192;

// Prints when the fault struck, by the monotonic clock, for whoever watches the process.
void SayStruck() {
  const std::chrono::duration<double> now = FaultSwitch::Clock::now().time_since_epoch();
  dprintf(STDOUT_FILENO, "struck %.6f\n", now.count());
}

void FlipBit(std::byte* bytes, size_t bit) { bytes[bit / 8] ^= std::byte{1} << (bit % 8); }

// Numbers of frames of these types are those of messages that the frame's sender sends.
bool HasOwnNumber(WireType type) {
  return type == WireType::kMessage || type == WireType::kData || type == WireType::kWithdraw ||
         type == WireType::kBye;
}

}  // namespace

uint64_t Renumbering::ForPeer(int peer, uint64_t number) const {
  if (peer != peer_ || number < number_) return number;
  switch (kind_) {
    case Kind::kNone:
      return number;
    case Kind::kLost:
      return number == number_ ? number : number - 1;
    case Kind::kTwice:
      return number == number_ ? number : number + 1;
    case Kind::kSwapped:
      return number == number_ ? number + 1 : number == number_ + 1 ? number_ : number;
  }
  return number;
}

std::optional<uint64_t> Renumbering::FromPeer(int peer, uint64_t number) const {
  if (peer != peer_ || number < number_) return number;
  switch (kind_) {
    case Kind::kNone:
      return number;
    case Kind::kLost:
      return number + 1;
    case Kind::kTwice:
      if (number == number_ + 1) return std::nullopt;
      return number == number_ ? number : number - 1;
    case Kind::kSwapped:
      return ForPeer(peer, number);
  }
  return number;
}

uint64_t Renumbering::ReleasedBy(int peer, uint64_t released) const {
  if (peer != peer_ || released < number_) return released;
  switch (kind_) {
    case Kind::kNone:
      return released;
    case Kind::kLost:  // the peer wants no more of it
      return released + 1;
    case Kind::kTwice:
      return released <= number_ + 1 ? released : released - 1;
    case Kind::kSwapped:  // the second one alone does not count
      return released == number_ + 1 ? number_ : released;
  }
  return released;
}

FaultyFrames::FaultyFrames(FaultSwitch* faults, const Transport& inner,
                           const onebitTransportCommInfo& info)
    : FrameTransport(info),
      faults_(*faults),
      inner_(inner.functions(), inner.context()),
      links_(static_cast<size_t>(info.nranks)),
      released_(static_cast<size_t>(info.nranks)),
      offers_(static_cast<size_t>(info.nranks)) {
  for (auto& offers : offers_) offers.fill(-1);
}

onebitResult_t FaultyFrames::Open(onebitTransportCommInfo info) {
  info.placeFrame = [](void* self, int peer, const void* header, size_t header_bytes,
                       size_t payload_bytes) -> void* {
    auto* const frames = static_cast<FaultyFrames*>(self);
    if (frames->is_silent()) return nullptr;
    return frames->sink_.Place(peer, header, header_bytes, payload_bytes);
  };
  info.onFrame = [](void* self, int peer, const void* header, size_t header_bytes,
                    const void* payload, size_t payload_bytes) {
    static_cast<FaultyFrames*>(self)->OnFrame(peer, header, header_bytes, payload, payload_bytes);
  };
  info.onLoss = [](void* self) {
    static_cast<FaultyFrames*>(self)->RefreshLinks();
    static_cast<FaultyFrames*>(self)->sink_.OnLoss();
  };
  info.onEvent = [](void* self) { static_cast<FaultyFrames*>(self)->sink_.OnEvent(); };
  info.argument = this;
  return inner_.Open(info);
}

onebitResult_t FaultyFrames::Connect(const void* const* addresses, const size_t* bytes,
                                     uint64_t timeout_ms) {
  const onebitResult_t result = inner_.Connect(addresses, bytes, timeout_ms);
  for (int rank = 0; rank < nranks_ && result == onebitSuccess; ++rank) {
    links_[static_cast<size_t>(rank)] = *inner_.link(rank);
  }
  return result;
}

onebitResult_t FaultyFrames::Abort() {
  MarkAborted();
  inner_.Abort();
  return onebitSuccess;
}

// The rest of a link never changes, and any thread may read it.
void FaultyFrames::RefreshLinks() {
  for (int rank = 0; rank < nranks_; ++rank) {
    const onebitTransportLink& inner = *inner_.link(rank);
    onebitTransportLink& link = links_[static_cast<size_t>(rank)];
    link.taken = inner.taken;
    link.sent = inner.sent;
    if (inner.loss != nullptr) link.loss = inner.loss;
  }
}

onebitResult_t FaultyFrames::Send(int rank, onebitFrameKind kind, std::span<const std::byte> header,
                                  std::span<const std::byte> payload) {
  if (is_silent()) return onebitSuccess;
  Frame frame{.rank = rank, .kind = kind, .wire = {}, .header = {}, .payload = payload};
  std::memcpy(&frame.wire, header.data(), sizeof frame.wire);
  std::ranges::copy(header.subspan(sizeof frame.wire), frame.header.begin());
  if (frame.wire.type != WireType::kMessage) {
    if (!HasOwnNumber(frame.wire.type)) return Forward(frame);
    const uint64_t number = frame.wire.number;
    if (frame.wire.type != WireType::kBye && renumbering_.Loses(rank, number)) return onebitSuccess;
    const bool is_held = std::ranges::any_of(late_, [&](const LateFrame& late) {
      return late.frame.rank == rank &&
             late.frame.wire.number == renumbering_.ForPeer(rank, number);
    });
    if (!is_held || frame.wire.type != WireType::kData) return Forward(frame);
    Delay(frame);
    return onebitSuccess;
  }
  if (!faults_.Counts(rank_, frame.header.data(), frame.wire.value)) return SendMessage(frame);
  const bool is_struck = faults_.is_due();
  if (is_struck && faults_.fault().is_after) {
    const onebitResult_t result = SendMessage(frame);
    if (result != onebitSuccess) return result;
    faults_.Count();
    return Strike(frame);
  }
  const onebitResult_t result = is_struck ? Strike(frame) : SendMessage(frame);
  if (result == onebitSuccess) faults_.Count();
  if (result == onebitSuccess && is_struck) faults_.Strike(rank);
  return result;
}

onebitResult_t FaultyFrames::SendMessage(Frame frame) {
  // A copy takes a slot of the peer's that the channel counts on.
  if (!HasSlot(frame.rank, renumbering_.ForPeer(frame.rank, frame.wire.number))) {
    return onebitInProgress;
  }
  if (const onebitResult_t offered = SendOffer(frame); offered != onebitSuccess) return offered;
  const onebitResult_t result = Forward(frame);
  if (result == onebitSuccess && !late_.empty() && late_.front().frame.rank == frame.rank) {
    is_overtaken_ = true;
    SendLateFrames();
  }
  return result;
}

onebitResult_t FaultyFrames::Strike(Frame frame) {
  const Fault& fault = faults_.fault();
  const int peer = frame.rank;
  const uint64_t number = frame.wire.number;
  switch (fault.kind) {
    case Fault::Kind::kNone:
      break;
    case Fault::Kind::kFlipHeader:
      FlipBit(frame.header.data(), fault.bit % (frame.wire.header_bytes * 8));
      break;
    case Fault::Kind::kSetVersion:
      frame.header[kVersionOffset] = static_cast<std::byte>(fault.bit);
      break;
    case Fault::Kind::kFlipPayload:
    case Fault::Kind::kCutPayload:
      damage_ = Damage{.rank = peer,
                       .number = number,
                       .payload_bytes = frame.wire.value,
                       .is_cut = fault.kind == Fault::Kind::kCutPayload,
                       .bit = fault.bit % (frame.wire.value * 8)};
      break;
    case Fault::Kind::kDuplicate: {
      const onebitResult_t result = SendMessage(frame);
      if (result != onebitSuccess) return result;
      renumbering_ = {Renumbering::Kind::kTwice, peer, number};
      Delay(frame);
      late_.back().frame.wire.number = number + 1;  // which no message of the channel has
      is_overtaken_ = true;
      SendLateFrames();
      return onebitSuccess;
    }
    case Fault::Kind::kReorder: {
      renumbering_ = {Renumbering::Kind::kSwapped, peer, number};
      const std::optional<LateFrame> offer = offer_;
      const onebitResult_t result = SendOffer(frame);
      if (result == onebitSuccess) Delay(frame);
      if (offer && !offer_) lent_ = offer->frame.payload;
      if (frame.wire.value >= kLeastLarge) {
        held_until_ = FaultSwitch::Clock::now() + kLongestHold;
      }
      return result;
    }
    case Fault::Kind::kDrop:
      renumbering_ = {Renumbering::Kind::kLost, peer, number};
      offer_.reset();
      return onebitSuccess;
    case Fault::Kind::kDisconnect:
    case Fault::Kind::kPeerError:
      offer_.reset();
      return onebitSuccess;
    case Fault::Kind::kDelay:
      if (delayed_until_ == FaultSwitch::Clock::time_point{}) {
        delayed_until_ = FaultSwitch::Clock::now() + std::chrono::milliseconds(fault.delay_ms);
      }
      if (FaultSwitch::Clock::now() < delayed_until_) return onebitInProgress;
      break;
    case Fault::Kind::kRefuse:
      faults_.Strike(peer);
      return onebitSystemError;
    case Fault::Kind::kKill:
      SayStruck();
      return static_cast<onebitResult_t>(std::raise(SIGKILL));
    case Fault::Kind::kStop:
      faults_.Strike(peer);
      SayStruck();
      std::raise(SIGSTOP);
      if (fault.is_after) return onebitSuccess;
      break;
  }
  return SendMessage(frame);
}

// Sends a frame, whose number is that of this rank's channel.
onebitResult_t FaultyFrames::Forward(Frame frame) {
  if (!DamagePayload(&frame)) return onebitSuccess;
  if (HasOwnNumber(frame.wire.type)) {
    frame.wire.number = renumbering_.ForPeer(frame.rank, frame.wire.number);
  }
  return Put(frame);
}

// Sends a frame, whose number is the peer's.
onebitResult_t FaultyFrames::Put(const Frame& frame) {
  std::byte header[sizeof frame.wire + kMessageHeaderBytes];
  std::memcpy(header, &frame.wire, sizeof frame.wire);
  std::memcpy(header + sizeof frame.wire, frame.header.data(), frame.wire.header_bytes);
  const onebitResult_t result = inner_.Send(
      frame.rank, frame.kind, {header, sizeof frame.wire + frame.wire.header_bytes}, frame.payload);
  RefreshLinks();
  return result;
}

// Damages the frame's part of the payload that was struck. False if nothing of the frame is left.
bool FaultyFrames::DamagePayload(Frame* frame) {
  if (!damage_ || frame->rank != damage_->rank || frame->wire.number != damage_->number) {
    return true;
  }
  const bool is_message = frame->wire.type == WireType::kMessage;
  if (!is_message && frame->wire.type != WireType::kData) return true;
  const size_t begin = is_message ? 0 : frame->wire.value;
  if (damage_->is_cut) {
    const size_t end = damage_->payload_bytes - 1;
    frame->payload = frame->payload.first(std::min(frame->payload.size(), end - begin));
    if (is_message) frame->wire.value = end;
    return is_message || !frame->payload.empty();
  }
  if (damage_->bit / 8 < begin || damage_->bit / 8 >= begin + frame->payload.size()) return true;
  copy_.assign(frame->payload.begin(), frame->payload.end());
  FlipBit(copy_.data(), damage_->bit - begin * 8);
  frame->payload = copy_;
  return true;
}

// Keeps a copy of a frame that comes after others.
void FaultyFrames::Delay(const Frame& frame) {
  late_.push_back({frame, {frame.payload.begin(), frame.payload.end()}});
  Frame& copy = late_.back().frame;
  copy.payload = late_.back().payload;
  copy.wire.number = renumbering_.ForPeer(frame.rank, frame.wire.number);
}

// Sends them as far as there is room; the numbers are the peer's already.
void FaultyFrames::SendLateFrames() {
  while (is_overtaken_ && !late_.empty()) {
    const Frame& frame = late_.front().frame;
    if (!HasSlot(frame.rank, frame.wire.number)) return;
    if (Put(frame) != onebitSuccess) return;
    late_.pop_front();
  }
}

// Lets a message that nothing overtakes come as it would have without the fault.
void FaultyFrames::EndHold() {
  if (!has_hold() || FaultSwitch::Clock::now() < held_until_) return;
  for (LateFrame& late : late_) late.frame.wire.number = renumbering_.number();
  renumbering_ = {};
  const Frame& frame = late_.front().frame;
  if (lent_) {
    const int index = static_cast<int>(frame.wire.number % ONEBIT_TRANSPORT_OFFERS);
    Recall(frame.rank, index);
    Offer(frame.rank, index, *lent_);
    if (SendOffer(frame) != onebitSuccess) return;
  }
  is_overtaken_ = true;
}

bool FaultyFrames::Progress() {
  EndHold();
  SendLateFrames();
  ReportLoss();
  const bool has_moved = inner_.Progress();
  RefreshLinks();
  return has_moved;
}

void FaultyFrames::Sleep(uint64_t timeout_ns) {
  const Fault::Kind kind = faults_.fault().kind;
  const bool is_due = kind == Fault::Kind::kPeerError || kind == Fault::Kind::kDelay || has_hold();
  inner_.Sleep(is_due ? std::min(timeout_ns, kLookNs) : timeout_ns);
  RefreshLinks();
  const bool is_delayed = delayed_until_ != FaultSwitch::Clock::time_point{};
  if (is_delayed && FaultSwitch::Clock::now() >= delayed_until_) sink_.OnEvent();
  if (has_hold() && FaultSwitch::Clock::now() >= held_until_) sink_.OnEvent();
}

// Tells this rank's channel of the rank whose connection was cut.
void FaultyFrames::ReportLoss() {
  const int lost = faults_.silent_rank();
  if (lost < 0 || lost == rank_ || faults_.fault().kind != Fault::Kind::kPeerError) return;
  if (std::exchange(has_reported_loss_, true)) return;
  links_[static_cast<size_t>(lost)].loss = "its connection was cut";
  has_losses_ = true;
}

void FaultyFrames::OnFrame(int peer, const void* header, size_t header_bytes, const void* payload,
                           size_t payload_bytes) {
  if (is_silent()) return;
  RefreshLinks();
  std::byte copy[ONEBIT_TRANSPORT_FRAME_HEADER_BYTES];
  WireHeader wire;
  if (header_bytes < sizeof wire || header_bytes > sizeof copy) return;
  std::memcpy(copy, header, header_bytes);
  std::memcpy(&wire, copy, sizeof wire);
  const int source = static_cast<int>(wire.source);
  if (source >= 0 && source < nranks_) {
    uint64_t& released = released_[static_cast<size_t>(source)];
    released = std::max(released, wire.released);
  }
  wire.released = renumbering_.ReleasedBy(source, wire.released);
  if (wire.type == WireType::kAccept || wire.type == WireType::kDrop) {
    if (const auto number = renumbering_.FromPeer(source, wire.number)) {
      wire.number = *number;
    } else {
      wire.type = WireType::kRelease;  // the rest of the header counts all the same
    }
  }
  std::memcpy(copy, &wire, sizeof wire);
  sink_.OnFrame(peer, copy, header_bytes, payload, payload_bytes);
}

void FaultyFrames::Offer(int rank, int index, std::span<const std::byte> payload) {
  LateFrame offer{.frame = {}, .payload = {}};
  offer.frame.rank = rank;
  offer.frame.wire.number = static_cast<uint64_t>(index);
  offer.frame.payload = payload;
  offer_ = std::move(offer);
}

// Offers the payload of a message that is about to be sent, if the channel has asked for that.
onebitResult_t FaultyFrames::SendOffer(const Frame& frame) {
  const uint64_t index = frame.wire.number % ONEBIT_TRANSPORT_OFFERS;
  if (!offer_ || offer_->frame.rank != frame.rank || offer_->frame.wire.number != index) {
    return onebitSuccess;
  }
  std::span<const std::byte> payload = offer_->frame.payload;
  offer_.reset();
  if (damage_ && damage_->rank == frame.rank && damage_->number == frame.wire.number) {
    if (damage_->is_cut) {
      payload = payload.first(payload.size() - 1);
    } else {
      offered_copy_.assign(payload.begin(), payload.end());
      FlipBit(offered_copy_.data(), damage_->bit);
      payload = offered_copy_;
    }
  }
  const uint64_t number = renumbering_.ForPeer(frame.rank, frame.wire.number);
  offers_[static_cast<size_t>(frame.rank)][index] =
      static_cast<int>(number % ONEBIT_TRANSPORT_OFFERS);
  return inner_.Offer(frame.rank, number, payload) ? onebitSuccess : onebitInternalError;
}

void FaultyFrames::Recall(int rank, int index) {
  if (offer_ && offer_->frame.rank == rank) offer_.reset();
  int& offered = offers_[static_cast<size_t>(rank)][static_cast<size_t>(index)];
  if (offered >= 0) inner_.Recall(rank, static_cast<uint64_t>(std::exchange(offered, -1)));
}

onebitResult_t FaultyContext::Open(const onebitTransportCommInfo& info,
                                   std::unique_ptr<FaultyFrames>* made) {
  const int comm_number = comms++;
  const bool is_spared = only_comm && *only_comm != comm_number;
  auto created = std::make_unique<FaultyFrames>(is_spared ? &no_faults : &faults, inner, info);
  const onebitResult_t result = created->Open(info);
  if (result == onebitSuccess) *made = std::move(created);
  return result;
}

namespace {

using Table = plugin::FrameTable<FaultyContext, FaultyFrames>;

FaultyFrames& AsFrames(void* comm) { return *static_cast<FaultyFrames*>(comm); }

}  // namespace

constinit const onebitTransport kFaultyFrameFunctions{
    .structSize = sizeof(onebitTransport),
    .abiVersion = ONEBIT_TRANSPORT_ABI_VERSION,
    .open = Table::Open,
    .getAddress = Table::GetAddress,
    .connect = Table::Connect,
    .abort = Table::Abort,
    .close = Table::Close,
    .getLink = Table::GetLink,
    .sendFrame =
        [](void* comm, int peer, int kind, const void* header, size_t header_bytes,
           const void* payload, size_t payload_bytes) {
          const onebitResult_t result = plugin::WithoutExceptions([&] {
            return AsFrames(comm).Send(peer, static_cast<onebitFrameKind>(kind),
                                       {static_cast<const std::byte*>(header), header_bytes},
                                       {static_cast<const std::byte*>(payload), payload_bytes});
          });
          AsFrames(comm).ReportLosses();
          return result;
        },
    .progress = Table::Progress,
    .sleep = Table::Sleep,
    .stopPlacing =
        [](void* comm, int peer) {
          AsFrames(comm).inner().StopPlacing(peer);
          return onebitSuccess;
        },
    .offer =
        [](void* comm, int peer, int index, const void* payload, size_t bytes) {
          AsFrames(comm).Offer(peer, index, {static_cast<const std::byte*>(payload), bytes});
          return onebitSuccess;
        },
    .pull =
        [](void* comm, int peer, int index, void* target, size_t bytes) {
          return AsFrames(comm).inner().Pull(peer, static_cast<uint64_t>(index),
                                             {static_cast<std::byte*>(target), bytes})
                     ? onebitSuccess
                     : onebitRemoteError;
        },
    .recall =
        [](void* comm, int peer, int index) {
          AsFrames(comm).Recall(peer, index);
          return onebitSuccess;
        },
    .startFlush =
        [](void* comm) {
          AsFrames(comm).inner().StartFlush();
          return onebitSuccess;
        },
    .isFlushed =
        [](void* comm, int* flushed) {
          *flushed = AsFrames(comm).inner().is_flushed() ? 1 : 0;
          return onebitSuccess;
        },
    .checkThread = [](void* comm) { return AsFrames(comm).inner().CheckThread(); },
    .canSendFromAnyThread =
        [](void* comm, int* can) {
          *can = AsFrames(comm).inner().CanSendFromAnyThread() ? 1 : 0;
          return onebitSuccess;
        },
    .describePeer =
        [](void* comm, int peer, char* text, size_t capacity) {
          return AsFrames(comm).inner().DescribeTrouble(peer, text, capacity) ? onebitTimeout
                                                                              : onebitInvalidUsage;
        },
};

}  // namespace onebit::testing
