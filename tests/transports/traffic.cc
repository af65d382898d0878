// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Traffic between all ranks with checked contents.
#include "tests/transports/traffic.h"

#include <algorithm>
#include <cstring>

namespace onebit::conformance {
namespace {

constexpr std::byte kGuard{0xa5};

template <typename Visitor>
bool ForEachWord(uint64_t seed, size_t count, Visitor visit) {
  Random random(seed);
  for (size_t i = 0; i < count; i += sizeof(uint64_t)) {
    const uint64_t word = random.Next();
    if (!visit(i, word, std::min(sizeof word, count - i))) return false;
  }
  return true;
}

}  // namespace

void FillContent(uint64_t seed, std::byte* bytes, size_t count) {
  ForEachWord(seed, count, [bytes](size_t at, uint64_t word, size_t size) {
    std::memcpy(bytes + at, &word, size);
    return true;
  });
}

bool HasContent(uint64_t seed, const std::byte* bytes, size_t count) {
  return ForEachWord(seed, count, [bytes](size_t at, uint64_t word, size_t size) {
    return std::memcmp(bytes + at, &word, size) == 0;
  });
}

Traffic::Traffic(Endpoint* endpoint, TrafficPlan plan)
    : endpoint_(*endpoint),
      plan_(std::move(plan)),
      rank_(endpoint->rank()),
      nranks_(endpoint->nranks()),
      sends_(static_cast<size_t>(nranks_)),
      receives_(static_cast<size_t>(nranks_)),
      open_(2 * plan_.messages_per_pair * static_cast<size_t>(nranks_)) {
  size_t most = plan_.most_payload_bytes;
  for (const size_t bytes : plan_.payload_bytes) most = std::max(most, bytes);
  for (std::vector<Direction>* directions : {&sends_, &receives_}) {
    for (Direction& direction : *directions) {
      for (Operation& operation : direction.operations) {
        operation.memory.resize(most + 2 * kGuardBytes);
      }
    }
  }
  for (int peer = 0; peer < nranks_; ++peer) {
    for (size_t index = 0; index < plan_.messages_per_pair; ++index) {
      const Shape shape = ShapeOf(rank_, peer, index);
      bytes_ += shape.header_bytes + shape.payload_bytes;
    }
  }
}

Traffic::Shape Traffic::ShapeOf(int from, int to, size_t index) const {
  Random random(plan_.seed ^ (static_cast<uint64_t>(from) << 48) ^
                (static_cast<uint64_t>(to) << 32) ^ index);
  Shape shape;
  shape.content_seed = random.Next();
  shape.header_bytes = 1 + random.Next() % kMessageHeaderBytes;
  if (!plan_.payload_bytes.empty()) {
    shape.payload_bytes = plan_.payload_bytes[index % plan_.payload_bytes.size()];
  } else {
    // Prefers small sizes.
    const uint64_t limit = (plan_.most_payload_bytes >> random.Next() % 16) + 1;
    shape.payload_bytes = random.Next() % limit;
  }
  return shape;
}

void Traffic::FillHeader(const Shape& shape, std::byte* header) const {
  FillContent(~shape.content_seed, header, shape.header_bytes);
}

void Traffic::Run() {
  const Clock::time_point start = Clock::now();
  while (!is_over()) {
    if (Step()) continue;
    Expect(Clock::now() - start < kTestTimeout, "rank ", rank_, ": ", open_,
           " messages did not end");
    endpoint_.Check(endpoint_.channel().Wait(1000), "Wait");
  }
}

bool Traffic::Step() {
  endpoint_.Check(endpoint_.channel().Progress(), "Progress");
  bool has_changed = false;
  for (int i = 0; i < nranks_; ++i) {
    const int peer = (rank_ + i) % nranks_;
    has_changed |= StepSends(peer);
    has_changed |= StepReceives(peer);
  }
  return has_changed;
}

bool Traffic::StepSends(int peer) {
  Direction& direction = sends_[static_cast<size_t>(peer)];
  bool has_changed = false;
  for (Operation& operation : direction.operations) {
    if (operation.request != nullptr && endpoint_.Test(operation.request) == TransferState::kDone) {
      operation.request = nullptr;
      // The buffer is ours again. A transport that still reads it sends wrong bytes.
      std::memset(operation.payload().data(), 0xee, operation.payload_bytes);
      ++direction.finished;
      --open_;
      has_changed = true;
    }
    if (operation.request != nullptr || direction.begun == plan_.messages_per_pair) continue;
    operation.index = direction.begun;
    const Shape shape = ShapeOf(rank_, peer, operation.index);
    operation.payload_bytes = shape.payload_bytes;
    FillHeader(shape, operation.header);
    FillContent(shape.content_seed, operation.payload().data(), shape.payload_bytes);
    const onebitResult_t result = endpoint_.channel().Send(
        peer, {operation.header, shape.header_bytes}, operation.payload(), &operation.request);
    if (result == onebitInProgress) {
      operation.request = nullptr;
      return has_changed;
    }
    endpoint_.Check(result, "Send");
    std::memset(operation.header, 0xee, sizeof operation.header);  // it was copied
    ++direction.begun;
    has_changed = true;
  }
  return has_changed;
}

bool Traffic::StepReceives(int peer) {
  Direction& direction = receives_[static_cast<size_t>(peer)];
  bool has_changed = false;
  for (Operation& operation : direction.operations) {
    if (operation.request == nullptr) {
      if (direction.has_posted || direction.begun == plan_.messages_per_pair) continue;
      operation.index = direction.begun++;
      operation.is_accepted = false;
      std::memset(operation.memory.data(), static_cast<int>(kGuard),
                  GuardedBytes(ShapeOf(peer, rank_, operation.index)));
      operation.request = endpoint_.StartReceive(peer, operation.header);
      direction.has_posted = true;
      has_changed = true;
    }
    switch (endpoint_.Test(operation.request)) {
      case TransferState::kPending:
        break;
      case TransferState::kHeader:
        if (operation.is_accepted) break;
        Verify(peer, operation);
        endpoint_.Check(endpoint_.channel().Accept(operation.request, operation.payload()),
                        "Accept");
        operation.is_accepted = true;
        direction.has_posted = false;
        has_changed = true;
        break;
      case TransferState::kDone:
        Verify(peer, operation);
        operation.request = nullptr;
        ++direction.finished;
        --open_;
        has_changed = true;
        break;
    }
  }
  return has_changed;
}

// Checks the header and sizes of a message, its payload once accepted, and that no other byte of
// the memory was written.
void Traffic::Verify(int peer, Operation& operation) {
  const Shape shape = ShapeOf(peer, rank_, operation.index);
  const auto fail = [&](const char* what) {
    throw Failure(Text("rank ", rank_, ": message ", operation.index, " from rank ", peer, ": ",
                       what, " (", shape.payload_bytes, " bytes)"));
  };
  if (!operation.is_accepted) {
    size_t header_bytes = 0;
    endpoint_.Check(
        endpoint_.channel().Probe(*operation.request, &header_bytes, &operation.payload_bytes),
        "Probe");
    if (header_bytes != shape.header_bytes) fail("wrong header size");
    if (operation.payload_bytes != shape.payload_bytes) fail("wrong payload size");
    if (!HasContent(~shape.content_seed, operation.header, shape.header_bytes)) {
      fail("wrong header, or out of order");
    }
  } else if (!HasContent(shape.content_seed, operation.payload().data(), shape.payload_bytes)) {
    fail("wrong payload");
  }
  const auto is_guard = [](std::byte byte) { return byte == kGuard; };
  const std::byte* begin = operation.memory.data();
  const std::byte* payload = operation.payload().data();
  const std::byte* end = begin + GuardedBytes(shape);
  const size_t written = operation.is_accepted ? shape.payload_bytes : 0;
  if (!std::all_of(begin, payload, is_guard) || !std::all_of(payload + written, end, is_guard)) {
    fail("memory outside the payload was written");
  }
}

}  // namespace onebit::conformance
