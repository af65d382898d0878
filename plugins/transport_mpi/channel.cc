// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sends and receives frames by MPI_Isend, MPI_Issend and MPI_Irecv.
#include "plugins/transport_mpi/channel.h"

#include <algorithm>
#include <cstring>

#include "plugins/transport_mpi/mpi_process.h"
#include "plugins/transport_mpi/tags.h"

namespace onebit::mpi {
namespace {

using plugin::Sent;

// Staging slots per link. A link whose slots are all in flight is blocked anyway.
constexpr uint32_t kMostShortInFlight = 40;
constexpr uint32_t kMostPiecesInFlight = 4;
constexpr size_t kSlotsPerLink = kMostShortInFlight + kMostPiecesInFlight;

constexpr size_t kHeaderBytes = ONEBIT_TRANSPORT_FRAME_HEADER_BYTES;
constexpr size_t kMostPieceBytes = 65536;
constexpr size_t kLeastPieceBytes = 8192;
// Limit for the receive buffers of one communicator.
constexpr size_t kMostReceiveMemory = 64u << 20;

// Starts each frame. The payload follows the header.
struct FrameHead {
  uint32_t header_bytes;
  uint32_t unused;
};

}  // namespace

Channel::Shape Channel::ShapeOf(int ranks, const Options& options) {
  return {.ranks = ranks,
          .short_bytes = kHeaderBytes + options.eager_bytes,
          .piece_bytes = std::clamp(kMostReceiveMemory / kReceives / static_cast<size_t>(ranks),
                                    kLeastPieceBytes, kMostPieceBytes)};
}

Channel::Channel(MPI_Comm comm, const Shape& shape)
    : comm_(comm),
      ranks_(static_cast<size_t>(shape.ranks)),
      frame_bytes_(sizeof(FrameHead) +
                   std::max(shape.short_bytes, kHeaderBytes + shape.piece_bytes)),
      links_(ranks_),
      losses_(ranks_),
      short_slots_(kMostShortInFlight * ranks_, sizeof(FrameHead) + shape.short_bytes),
      piece_slots_(kMostPiecesInFlight * ranks_,
                   sizeof(FrameHead) + kHeaderBytes + shape.piece_bytes),
      receive_memory_(
          std::make_unique_for_overwrite<std::byte[]>(ranks_ * kReceives * frame_bytes_)),
      heads_(ranks_, MPI_REQUEST_NULL),
      head_indices_(ranks_, 0),
      receives_(ranks_ * kReceives, MPI_REQUEST_NULL),
      indices_(ranks_ * kSlotsPerLink),
      statuses_(ranks_ * kSlotsPerLink),
      has_last_(ranks_, false),
      last_messages_(ranks_, MPI_REQUEST_NULL) {
  sends_.reserve(ranks_ * kSlotsPerLink);
  sendings_.reserve(ranks_ * kSlotsPerLink);
  for (plugin::Link& link : links_) link.pieceBytes = shape.piece_bytes;
}

int Channel::Start() {
  for (size_t rank = 0; rank < ranks_; ++rank) {
    for (size_t index = 0; index < kReceives; ++index) {
      MPI_Request* const request =
          index == 0 ? &heads_[rank] : &receives_[rank * kReceives + index];
      if (const int code = Post(rank, index, request); code != MPI_SUCCESS) return code;
    }
  }
  return MPI_SUCCESS;
}

int Channel::Post(size_t rank, size_t index, MPI_Request* request) {
  const int code = MPI_Irecv(Buffer(rank, index), static_cast<int>(frame_bytes_), MPI_BYTE,
                             static_cast<int>(rank), MPI_ANY_TAG, comm_, request);
  if (code != MPI_SUCCESS) *request = MPI_REQUEST_NULL;
  return code;
}

Sent Channel::Send(int rank, onebitFrameKind kind, std::span<const std::byte> header,
                   std::span<const std::byte> payload) {
  plugin::Link& link = *this->link(rank);
  if (link.is_lost() || is_ending_) return Sent::kFailed;
  const bool is_piece = kind == onebitFrameLong;
  if (link.in_flight() >= (is_piece ? kMostPiecesInFlight : kMostShortInFlight)) {
    return Sent::kNoRoom;
  }
  plugin::SlotPool& pool = is_piece ? piece_slots_ : short_slots_;
  Slot* const slot = pool.Take();
  if (slot == nullptr) return Sent::kNoRoom;
  const FrameHead head{.header_bytes = static_cast<uint32_t>(header.size()), .unused = 0};
  std::byte* const bytes = slot->bytes();
  std::memcpy(bytes, &head, sizeof head);
  std::memcpy(bytes + sizeof head, header.data(), header.size());
  if (!payload.empty()) {
    std::memcpy(bytes + sizeof head + header.size(), payload.data(), payload.size());
  }
  const int count = static_cast<int>(sizeof head + header.size() + payload.size());
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = is_piece ? MPI_Issend(bytes, count, MPI_BYTE, rank, kFrameTag, comm_, &request)
                            : MPI_Isend(bytes, count, MPI_BYTE, rank, kFrameTag, comm_, &request);
  if (code != MPI_SUCCESS) {
    pool.Return(slot);
    Lose(static_cast<size_t>(rank), code);
    return Sent::kFailed;
  }
  int is_sent = 0;
  if (!is_piece) {
    if (const int error = MPI_Test(&request, &is_sent, MPI_STATUS_IGNORE); error != MPI_SUCCESS) {
      Lose(static_cast<size_t>(rank), error);  // the slot stays out of the pool: MPI may read it
      return Sent::kFailed;
    }
  }
  if (is_sent != 0) {
    pool.Return(slot);
    return Sent::kYes;
  }
  slot->sent = &link.sent;
  ++link.taken;
  sends_.push_back(request);
  sendings_.push_back({slot, rank});
  return Sent::kYes;
}

bool Channel::Progress(const plugin::FrameSink* sink) {
  bool has_moved = ProgressSends();
  has_moved |= ProgressReceives(sink);
  if (native_.Progress()) {
    has_moved = true;
    if (sink != nullptr) sink->OnEvent();
  }
  return has_moved;
}

bool Channel::ProgressSends() {
  if (sends_.empty()) return false;
  int count = 0;
  const int code = MPI_Testsome(static_cast<int>(sends_.size()), sends_.data(), &count,
                                indices_.data(), statuses_.data());
  if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) {
    LoseAll(code);
    return true;
  }
  if (count == MPI_UNDEFINED || count == 0) return false;
  for (int i = 0; i < count; ++i) {
    const Sending& sent = sendings_[static_cast<size_t>(indices_[static_cast<size_t>(i)])];
    if (const int error = statuses_[static_cast<size_t>(i)].MPI_ERROR;
        code == MPI_ERR_IN_STATUS && error != MPI_SUCCESS && error != MPI_ERR_PENDING) {
      Lose(static_cast<size_t>(sent.rank), error);
    }
    ++*sent.slot->sent;
    sent.slot->pool->Return(sent.slot);
  }
  size_t kept = 0;
  for (size_t i = 0; i < sends_.size(); ++i) {
    if (sends_[i] == MPI_REQUEST_NULL) continue;
    sends_[kept] = sends_[i];
    sendings_[kept++] = sendings_[i];
  }
  sends_.resize(kept);
  sendings_.resize(kept);
  return true;
}

bool Channel::ProgressReceives(const plugin::FrameSink* sink) {
  int count = 0;
  const int code = MPI_Testsome(static_cast<int>(ranks_), heads_.data(), &count, indices_.data(),
                                statuses_.data());
  if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) {
    LoseAll(code);
    return true;
  }
  if (count == MPI_UNDEFINED || count == 0) return false;
  for (int i = 0; i < count; ++i) {
    const auto rank = static_cast<size_t>(indices_[static_cast<size_t>(i)]);
    MPI_Status status = statuses_[static_cast<size_t>(i)];
    if (code == MPI_ERR_IN_STATUS && status.MPI_ERROR != MPI_SUCCESS) {
      Lose(rank, status.MPI_ERROR);
      continue;
    }
    Receive(rank, status, sink);
    // More frames from this rank may have arrived.
    for (size_t more = 1; more < kReceives && heads_[rank] != MPI_REQUEST_NULL; ++more) {
      int is_here = 0;
      if (const int error = MPI_Test(&heads_[rank], &is_here, &status); error != MPI_SUCCESS) {
        Lose(rank, error);
        break;
      }
      if (is_here == 0) break;
      Receive(rank, status, sink);
    }
  }
  return true;
}

// Delivers the frame in a rank's oldest buffer, posts the buffer again, and advances to the next
// one.
void Channel::Receive(size_t rank, const MPI_Status& status, const plugin::FrameSink* sink) {
  const size_t index = head_indices_[rank];
  if (status.MPI_TAG == kLastTag) {
    has_last_[rank] = true;
    CancelReceives(rank);
    return;
  }
  if (sink != nullptr) {
    int received = 0;
    const bool is_counted =
        MPI_Get_count(&status, MPI_BYTE, &received) == MPI_SUCCESS && received != MPI_UNDEFINED;
    const std::byte* const bytes = Buffer(rank, index);
    // 0: not a frame, and logged as such
    const auto count = static_cast<size_t>(is_counted ? received : 0);
    FrameHead head{};
    if (count >= sizeof head) std::memcpy(&head, bytes, sizeof head);
    if (count < sizeof head || head.header_bytes > count - sizeof head) {
      sink->OnFrame(static_cast<int>(rank), bytes, 0, nullptr, 0);
    } else {
      const std::byte* const header = bytes + sizeof head;
      sink->OnFrame(static_cast<int>(rank), header, head.header_bytes, header + head.header_bytes,
                    count - sizeof head - head.header_bytes);
    }
  }
  if (const int code = Post(rank, index, &receives_[rank * kReceives + index]);
      code != MPI_SUCCESS) {
    Lose(rank, code);
    return;
  }
  head_indices_[rank] = (index + 1) % kReceives;
  heads_[rank] = std::exchange(receives_[rank * kReceives + head_indices_[rank]], MPI_REQUEST_NULL);
}

void Channel::Lose(size_t rank, int code) {
  if (links_[rank].is_lost()) return;
  losses_[rank] = ErrorText(code);
  links_[rank].loss = losses_[rank].c_str();
  has_losses_ = true;
  MpiProcess::Get().SetBroken();
}

void Channel::LoseAll(int code) {
  for (size_t rank = 0; rank < ranks_; ++rank) Lose(rank, code);
}

}  // namespace onebit::mpi
