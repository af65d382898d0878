// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/record_comparer.h"

#include <algorithm>
#include <new>
#include <utility>

namespace onebit {
namespace {

// No rank is more at fault than another, so all of them get the same text.
Failure FailureOfGroup(uint32_t rank, Status cause) {
  return {.rank = static_cast<int>(rank),
          .is_loss = false,
          .is_of_group = true,
          .cause = std::move(cause)};
}

}  // namespace

std::optional<Failure> RecordComparer::Add(uint32_t rank, const RecordBatch& calls) {
  uint64_t skipped = calls.skipped;
  for (const CallRecord& record : calls.records) {
    const uint64_t due = next_[rank];
    const bool is_due = record.sequence >= skipped && record.sequence - skipped == due;
    if (!is_due || record.sequence == UINT64_MAX) {
      return FailureOfGroup(
          rank, Error(Code::kCorrupt,
                      "rank {} reports call {} after {} unreported ones when call {} was "
                      "due",
                      rank, record.sequence, skipped, due));
    }
    not_compared_ += std::exchange(skipped, 0);
    if (record.sequence != due) Advance(rank, record.sequence);
    if (auto failure = Compare(rank, record)) return failure;
    Advance(rank, record.sequence + 1);
  }
  return std::nullopt;
}

std::optional<Failure> RecordComparer::Compare(uint32_t rank, const CallRecord& record) {
  if (record.sequence - oldest_ >= kMostUnmatched) {
    ++not_compared_;
    return std::nullopt;
  }
  const auto found = first_records_.find(record.sequence);
  if (found == first_records_.end()) {
    try {
      first_records_.emplace(record.sequence, FirstRecord{.rank = rank,
                                                          .digest = record.digest,
                                                          .text = std::string(ShortText(record))});
    } catch (const std::bad_alloc&) {
      ++not_compared_;  // a call that is not compared need not end a communicator
    }
    return std::nullopt;
  }
  const FirstRecord& first = found->second;
  if (first.digest == record.digest) return std::nullopt;
  // Texts name the properties that people use to identify a call; digests cover all of them.
  if (first.text == ShortText(record)) {
    return FailureOfGroup(
        rank, Error(Code::kMismatch,
                    "the ranks' calls differ: call {} is {} on ranks {} and {}, but with different "
                    "settings (digests {:08x} and {:08x})",
                    record.sequence, first.text, first.rank, rank, first.digest, record.digest));
  }
  return FailureOfGroup(
      rank,
      Error(Code::kMismatch, "the ranks' calls differ: call {} is {} on rank {} and {} on rank {}",
            record.sequence, first.text, first.rank, ShortText(record), rank));
}

void RecordComparer::Advance(uint32_t rank, uint64_t next) {
  const bool was_oldest = next_[rank] == oldest_;
  next_[rank] = next;
  if (!was_oldest || --at_oldest_ > 0) return;
  // Every rank has advanced since the last scan, so its cost per call is small.
  oldest_ = *std::min_element(next_.begin(), next_.end());
  at_oldest_ = static_cast<size_t>(std::count(next_.begin(), next_.end(), oldest_));
  first_records_.erase(first_records_.begin(), first_records_.lower_bound(oldest_));
}

}  // namespace onebit
