// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Traffic: every rank sends a number of messages to every rank, itself included, and checks each
// byte that arrives. Sizes and contents follow from a seed, so sender and receiver agree without
// talking.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/transports/test_endpoint.h"

namespace onebit::conformance {

// A small generator with good bits (splitmix64).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

 private:
  uint64_t state_;
};

struct TrafficPlan {
  uint64_t seed = 1;
  size_t messages_per_pair = 1;
  // Payload sizes to use in turn; empty: random ones up to most_payload_bytes.
  std::vector<size_t> payload_bytes = {};
  size_t most_payload_bytes = 0;
};

// Allocates in its constructor only.
class Traffic {
 public:
  Traffic(Endpoint* endpoint, TrafficPlan plan);

  // Sends and receives everything.
  void Run();
  // Does what is possible now; false if that was nothing.
  bool Step();
  bool is_over() const { return open_ == 0; }
  // Bytes and messages this rank sends in all.
  uint64_t bytes() const { return bytes_; }
  uint64_t messages() const { return plan_.messages_per_pair * static_cast<uint64_t>(nranks_); }

 private:
  static constexpr size_t kWindow = 3;       // sends, and receives, under way per peer
  static constexpr size_t kGuardBytes = 16;  // before and after a payload, alignment included

  struct Operation {
    MessageRequest request = nullptr;
    size_t index = 0;
    size_t payload_bytes = 0;
    bool is_accepted = false;
    std::byte header[kMessageHeaderBytes];
    std::vector<std::byte> memory;
    std::span<std::byte> payload() {  // mostly misaligned
      return std::span(memory).subspan(1 + index % 7, payload_bytes);
    }
  };

  struct Direction {
    size_t begun = 0;  // messages that were started
    size_t finished = 0;
    bool has_posted = false;  // receive: one waits for its header
    Operation operations[kWindow];
  };

  struct Shape {
    size_t header_bytes;
    size_t payload_bytes;
    uint64_t content_seed;
  };

  // Bytes of an operation's memory that a message may touch, and a margin.
  static size_t GuardedBytes(const Shape& shape) { return shape.payload_bytes + 2 * kGuardBytes; }
  Shape ShapeOf(int from, int to, size_t index) const;
  bool StepSends(int peer);
  bool StepReceives(int peer);
  void Verify(int peer, Operation& operation);
  void FillHeader(const Shape& shape, std::byte* header) const;

  Endpoint& endpoint_;
  const TrafficPlan plan_;
  const int rank_;
  const int nranks_;
  std::vector<Direction> sends_;
  std::vector<Direction> receives_;
  size_t open_;  // messages not finished yet, both directions
  uint64_t bytes_ = 0;
};

// Fill bytes from a seed, and check that they still have these values.
void FillContent(uint64_t seed, std::byte* bytes, size_t count);
bool HasContent(uint64_t seed, const std::byte* bytes, size_t count);

}  // namespace onebit::conformance
