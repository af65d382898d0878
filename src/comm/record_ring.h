// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Hands the calls that a rank enqueues on CUDA streams to the thread that compares them with those
// of the other ranks.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/message_header.h"

namespace onebit {

// One rank's record of a call it made. Calls are the same on all ranks when their digests are; the
// text is for people and is cut after kMaxCallTextBytes.
struct CallRecord {
  uint64_t sequence = 0;  // calls on this communicator before this one
  uint32_t digest = 0;
  std::string text;
};
inline constexpr size_t kMaxCallTextBytes = 200;
inline std::string_view ShortText(const CallRecord& record) {
  return std::string_view(record.text).substr(0, kMaxCallTextBytes);
}

// One message of records.
struct RecordBatch {
  uint64_t skipped = 0;             // calls just before these that were not recorded
  std::vector<CallRecord> records;  // one or more, of consecutive calls
};

// Lock-free with one producer and one consumer. The producer copies a descriptor and neither waits
// nor allocates; the consumer turns descriptors into texts and digests.
class RecordRing {
 public:
  static constexpr uint32_t kCapacity = 4096;  // 0.1 s of calls that take 25 microseconds each

  // Drops the call if the ring is full. False the first time that happens.
  [[nodiscard]] bool Post(const CallDescriptor& call) {
    const uint32_t posted = posted_.load(std::memory_order_relaxed);
    if (posted - taken_.load(std::memory_order_acquire) == kCapacity) {
      return std::exchange(has_overflowed_, true);
    }
    calls_[posted % kCapacity] = call;
    posted_.store(posted + 1, std::memory_order_release);
    return true;
  }

  // The next calls, as many as one message holds; nothing if there are none. A gap in their
  // sequence numbers, which an overflow leaves, ends a message and is counted in the next one.
  std::optional<RecordBatch> Take();
  // Drops what was posted so far.
  void Clear() { taken_.store(posted_.load(std::memory_order_acquire), std::memory_order_release); }
  bool is_empty() const {
    return taken_.load(std::memory_order_relaxed) == posted_.load(std::memory_order_acquire);
  }

 private:
  std::array<CallDescriptor, kCapacity> calls_;
  bool has_overflowed_ = false;  // the producer's
  uint64_t next_sequence_ = 0;   // the consumer's: follows the last call taken
  std::atomic<uint32_t> posted_{0};
  std::atomic<uint32_t> taken_{0};
};

}  // namespace onebit
