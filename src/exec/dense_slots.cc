// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "exec/dense_slots.h"

#include <algorithm>

namespace onebit {
namespace {

// Pieces begin at multiples of this, as chunks of a whole tensor do.
constexpr size_t kPieceAlignment = 64;

std::byte* At(void* buffer, size_t element, size_t element_bytes) {
  return static_cast<std::byte*>(buffer) + element * element_bytes;
}
const std::byte* At(const void* buffer, size_t element, size_t element_bytes) {
  return static_cast<const std::byte*>(buffer) + element * element_bytes;
}

// The elements of a message that are in a piece.
size_t CountIn(DensePiece piece, size_t message) {
  return std::min(message - std::min(message, piece.begin), piece.count);
}

}  // namespace

size_t DenseSlots::PiecedCount(const CallRequest& request) const {
  if (request.collective != Collective::kAllToAllv) return request.count;
  const auto longest = [&](const size_t* counts) {
    return *std::max_element(counts, counts + ranks());
  };
  return std::max(longest(request.pairs->send_counts), longest(request.pairs->receive_counts));
}

size_t DenseSlots::InputParts(const CallRequest& request) const {
  switch (request.collective) {
    case Collective::kBarrier:
    case Collective::kGroup:
    case Collective::kAllToAllv:  // has ranges of its own
      return 0;
    case Collective::kSendRecv:
      return BytesOf(request, comm_).input == 0 ? 0 : 1;
    case Collective::kBroadcast:
      return request.root == static_cast<uint32_t>(comm_.rank()) ? 1 : 0;
    case Collective::kAllReduce:
    case Collective::kAllGather:
      return 1;
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return ranks();
  }
  return 0;
}

size_t DenseSlots::OutputParts(const CallRequest& request) const {
  switch (request.collective) {
    case Collective::kBarrier:
    case Collective::kGroup:
    case Collective::kAllToAllv:
      return 0;
    case Collective::kSendRecv:
      return request.is_receive ? 1 : 0;
    case Collective::kBroadcast:
    case Collective::kAllReduce:
    case Collective::kReduceScatter:
      return 1;
    case Collective::kAllGather:
    case Collective::kAllToAll:
      return ranks();
  }
  return 0;
}

size_t DenseSlots::BytesFor(const CallRequest& request, size_t count) const {
  if (request.collective == Collective::kAllToAllv) {
    return 2 * ranks() * count * kernels::BytesOf(request.type);
  }
  const PlanKey key = {.collective = request.collective, .type = request.type, .count = count};
  return RoundUp(BufferBytesOf(key, ranks()), kCacheLine);
}

size_t DenseSlots::PieceCount(const CallRequest& request) const {
  if (request.collective == Collective::kSendRecv) return 0;
  if (request.collective == Collective::kAllToAllv) {
    const size_t count = kSlotBytes / BytesFor(request, 1);
    return count < kPieceAlignment ? count : count - count % kPieceAlignment;
  }
  if (BytesFor(request, request.count) <= kSlotBytes) return 0;
  const size_t per_unit = BytesFor(request, kPieceAlignment);
  return kPieceAlignment * std::max<size_t>(kSlotBytes / per_unit, 1);
}

Status DenseSlots::Reserve(size_t bytes) {
  const size_t needed = std::max(bytes, kSlots * kSlotBytes);
  if (needed <= memory_.size()) return OkStatus();
  return memory_.Reserve(needed, [&](size_t) {
    return Memory::CreatePinned(devices_, device_, needed, "dense calls on their way");
  });
}

CallRequest DenseSlots::Staged(const CallRequest& request, DensePiece piece,
                               std::byte* memory) const {
  const size_t element_bytes = kernels::BytesOf(request.type);
  CallRequest staged = request;
  staged.location = {};
  staged.whole_count = request.count;
  staged.count = piece.count;
  if (request.collective == Collective::kAllToAllv) {
    staged.sendbuff = memory;
    staged.recvbuff = memory + ranks() * piece.count * element_bytes;
    return staged;
  }
  const size_t own_part = static_cast<size_t>(comm_.rank()) * piece.count * element_bytes;
  const size_t inputs = InputParts(request);
  const size_t outputs = OutputParts(request);
  std::byte* const input = memory + (outputs > inputs && inputs != 0 ? own_part : 0);
  std::byte* output = memory + (inputs > outputs ? own_part : 0);
  if (request.collective == Collective::kAllToAll) {
    output = memory + inputs * piece.count * element_bytes;
  }
  staged.sendbuff = inputs == 0 ? nullptr : input;
  staged.recvbuff = output;
  return staged;
}

Status DenseSlots::CopyIn(const CallRequest& request, DensePiece piece, const CallRequest& staged,
                          onebitStream_t stream) const {
  const size_t element_bytes = kernels::BytesOf(request.type);
  const PairCounts& pairs = *request.pairs;
  if (request.collective == Collective::kAllToAllv) {
    for (size_t peer = 0; peer < ranks(); ++peer) {
      const size_t count = CountIn(piece, pairs.send_counts[peer]);
      if (count == 0) continue;
      ONEBIT_TRY(devices_.Copy(
          const_cast<std::byte*>(At(staged.sendbuff, peer * piece.count, element_bytes)),
          At(request.sendbuff, pairs.send_begins[peer] + piece.begin, element_bytes),
          count * element_bytes, stream));
    }
    return OkStatus();
  }
  for (size_t part = 0; part < InputParts(request); ++part) {
    ONEBIT_TRY(devices_.Copy(
        const_cast<std::byte*>(At(staged.sendbuff, part * piece.count, element_bytes)),
        At(request.sendbuff, part * request.count + piece.begin, element_bytes),
        piece.count * element_bytes, stream));
  }
  return OkStatus();
}

Status DenseSlots::CopyOut(const CallRequest& request, DensePiece piece, const CallRequest& staged,
                           onebitStream_t stream) const {
  const size_t element_bytes = kernels::BytesOf(request.type);
  const PairCounts& pairs = *request.pairs;
  if (request.collective == Collective::kAllToAllv) {
    for (size_t peer = 0; peer < ranks(); ++peer) {
      const size_t count = CountIn(piece, pairs.receive_counts[peer]);
      if (count == 0) continue;
      ONEBIT_TRY(devices_.Copy(
          At(request.recvbuff, pairs.receive_begins[peer] + piece.begin, element_bytes),
          At(staged.recvbuff, peer * piece.count, element_bytes), count * element_bytes, stream));
    }
    return OkStatus();
  }
  for (size_t part = 0; part < OutputParts(request); ++part) {
    ONEBIT_TRY(
        devices_.Copy(At(request.recvbuff, part * request.count + piece.begin, element_bytes),
                      At(staged.recvbuff, part * piece.count, element_bytes),
                      piece.count * element_bytes, stream));
  }
  return OkStatus();
}

}  // namespace onebit
