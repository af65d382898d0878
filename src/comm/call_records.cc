// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/call_records.h"

#include <algorithm>
#include <new>
#include <utility>

namespace onebit {
namespace {

// No rank is more at fault than another: all of them are told the same.
Failure Verdict(uint32_t rank, Status cause) {
  return {.rank = static_cast<int>(rank),
          .is_loss = false,
          .is_verdict = true,
          .cause = std::move(cause)};
}

}  // namespace

std::optional<Failure> CallRecords::Tell(uint32_t rank, uint64_t untold,
                                         std::span<const CallRecord> records) {
  for (const CallRecord& record : records) {
    const uint64_t due = next_[rank];
    const bool is_due = record.sequence >= untold && record.sequence - untold == due;
    if (!is_due || record.sequence == UINT64_MAX) {
      return Verdict(rank, Error(Code::kCorrupt,
                                 "rank {} tells of call {} after {} untold ones when call {} was "
                                 "due",
                                 rank, record.sequence, untold, due));
    }
    not_compared_ += std::exchange(untold, 0);
    if (record.sequence != due) Advance(rank, record.sequence);
    if (auto failure = Compare(rank, record)) return failure;
    Advance(rank, record.sequence + 1);
  }
  return std::nullopt;
}

std::optional<Failure> CallRecords::Compare(uint32_t rank, const CallRecord& record) {
  if (record.sequence - oldest_ >= kMostUnmatched) {
    ++not_compared_;
    return std::nullopt;
  }
  const auto found = first_told_.find(record.sequence);
  if (found == first_told_.end()) {
    try {
      first_told_.emplace(
          record.sequence,
          FirstTold{.rank = rank, .digest = record.digest, .text = std::string(ShortText(record))});
    } catch (const std::bad_alloc&) {
      ++not_compared_;  // no reason to end a communicator
    }
    return std::nullopt;
  }
  const FirstTold& first = found->second;
  if (first.digest == record.digest) return std::nullopt;
  // Texts say what people think of when they name a call, digests cover all of it.
  if (first.text == ShortText(record)) {
    return Verdict(
        rank, Error(Code::kMismatch,
                    "the ranks' calls differ: call {} is {} on ranks {} and {}, but not "
                    "with the same settings (digests {:08x} and {:08x})",
                    record.sequence, first.text, first.rank, rank, first.digest, record.digest));
  }
  return Verdict(rank, Error(Code::kMismatch,
                             "the ranks' calls differ: call {} is {} on rank {} and {} on rank {}",
                             record.sequence, first.text, first.rank, ShortText(record), rank));
}

void CallRecords::Advance(uint32_t rank, uint64_t next) {
  const bool was_oldest = next_[rank] == oldest_;
  next_[rank] = next;
  if (!was_oldest || --at_oldest_ > 0) return;
  // Every rank has moved since the last time, so that looking at all of them costs little per call.
  oldest_ = *std::min_element(next_.begin(), next_.end());
  at_oldest_ = static_cast<size_t>(std::count(next_.begin(), next_.end(), oldest_));
  first_told_.erase(first_told_.begin(), first_told_.lower_bound(oldest_));
}

}  // namespace onebit
