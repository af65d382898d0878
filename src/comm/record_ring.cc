// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/record_ring.h"

#include <utility>

#include "comm/control_message.h"

namespace onebit {

std::optional<RecordBatch> RecordRing::Take() {
  const uint32_t posted = posted_.load(std::memory_order_acquire);
  uint32_t taken = taken_.load(std::memory_order_relaxed);
  if (taken == posted) return std::nullopt;
  RecordBatch calls;
  uint64_t next = calls_[taken % kCapacity].sequence;
  calls.skipped = next - next_sequence_;
  size_t bytes = 0;
  for (; taken != posted && calls_[taken % kCapacity].sequence == next; ++taken, ++next) {
    const CallDescriptor& call = calls_[taken % kCapacity];
    CallRecord record = {
        .sequence = call.sequence, .digest = DigestOf(call, 0), .text = Describe(call)};
    bytes += EncodedBytes(record);
    if (bytes > kMaxContentBytes) break;
    calls.records.push_back(std::move(record));
  }
  next_sequence_ = next;
  taken_.store(taken, std::memory_order_release);
  return calls;
}

}  // namespace onebit
