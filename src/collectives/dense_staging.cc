// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/dense_staging.h"

#include <algorithm>

namespace onebit {
namespace {

constexpr auto IsStaged = Engine::IsStaged;

// In an all-to-all-v: up to where a buffer reaches.
size_t Extent(const size_t* counts, const size_t* begins, size_t ranks) {
  size_t extent = 0;
  for (size_t rank = 0; rank < ranks; ++rank) {
    if (counts[rank] != 0) extent = std::max(extent, begins[rank] + counts[rank]);
  }
  return extent;
}

size_t StagedBytes(std::span<const Engine::Request> requests, int rank, int ranks) {
  size_t bytes = 0;
  for (const Engine::Request& request : requests) {
    if (!IsStaged(request)) continue;
    const BufferBytes needed = BytesOf(request, rank, ranks);
    bytes += RoundUp(needed.input, kCacheLine) + RoundUp(needed.output, kCacheLine);
  }
  return bytes;
}

}  // namespace

BufferBytes BytesOf(const Engine::Request& request, int rank, int rank_count) {
  const size_t element_bytes = kernels::BytesOf(request.buffers.type);
  const auto ranks = static_cast<size_t>(rank_count);
  const size_t part = request.buffers.count * element_bytes;
  switch (request.key.collective) {
    case Collective::kBarrier:
    case Collective::kGroup:
      return {};
    case Collective::kBroadcast:
      return {.input = request.key.root == static_cast<uint32_t>(rank) ? part : 0, .output = part};
    case Collective::kAllReduce:
      return {part, part};
    case Collective::kReduceScatter:
      return {part * ranks, part};
    case Collective::kAllGather:
      return {part, part * ranks};
    case Collective::kAllToAll:
      return {part * ranks, part * ranks};
    case Collective::kAllToAllv:
      return {Extent(request.pairs.send_counts, request.pairs.send_begins, ranks) * element_bytes,
              Extent(request.pairs.receive_counts, request.pairs.receive_begins, ranks) *
                  element_bytes};
  }
  return {};
}

Status DenseStaging::Reserve(std::span<const Engine::Request> requests, int rank, int ranks) {
  return memory_.Reserve(StagedBytes(requests, rank, ranks),
                         [this](size_t bytes) { return NewMemory(bytes); });
}

Status DenseStaging::Prepare(std::span<const Engine::Request> requests, int rank, int ranks) {
  return memory_.Prepare(StagedBytes(requests, rank, ranks),
                         [this](size_t bytes) { return NewMemory(bytes); });
}

Result<Memory> DenseStaging::NewMemory(size_t bytes) const {
  return Memory::CreatePinned(device_.devices(), device_.device(), bytes,
                              "the way of dense calls through the host");
}

Status DenseStaging::BringIn(std::span<Engine::Request> requests, int rank, int ranks) {
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope,
                          DeviceScope::Enter(device_.devices(), device_.device()));
  std::byte* location = memory_.data();
  for (Engine::Request& request : requests) {
    if (!IsStaged(request)) continue;
    const BufferBytes bytes = BytesOf(request, rank, ranks);
    std::byte* const input = location;
    std::byte* const output = input + RoundUp(bytes.input, kCacheLine);
    location = output + RoundUp(bytes.output, kCacheLine);
    const auto& devices = device_.devices();
    ONEBIT_TRY(devices.Copy(input, request.buffers.input, bytes.input, device_.stream()));
    if (request.key.collective == Collective::kAllToAllv) {  // it leaves gaps as they are
      ONEBIT_TRY(devices.Copy(output, request.buffers.output, bytes.output, device_.stream()));
    }
    request.buffers.input = bytes.input == 0 ? nullptr : input;
    request.buffers.output = output;
    request.buffers.location = {};
  }
  return device_.Synchronize();
}

Status DenseStaging::BringOut(std::span<const Engine::Request> originals,
                              std::span<const Engine::Request> staged, int rank, int ranks) {
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope,
                          DeviceScope::Enter(device_.devices(), device_.device()));
  for (size_t i = 0; i < originals.size(); ++i) {
    if (!IsStaged(originals[i])) continue;
    ONEBIT_TRY(device_.devices().Copy(originals[i].buffers.output, staged[i].buffers.output,
                                      BytesOf(originals[i], rank, ranks).output, device_.stream()));
  }
  return device_.Synchronize();
}

}  // namespace onebit
