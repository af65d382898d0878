// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Compares the calls of all ranks at the hub of a control channel and finds the first difference,
// however far apart in time the ranks make them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/control.h"

namespace onebit {

// Used by one thread at a time. The first record of a call is kept until every rank has sent its
// own, so memory grows with the distance between ranks. Records more than kMostUnmatched calls
// ahead of the slowest rank are not compared, which bounds it.
class RecordComparer {
 public:
  static constexpr uint64_t kMostUnmatched = 4096;

  explicit RecordComparer(size_t ranks) : next_(ranks), at_oldest_(ranks) {}

  // Takes the next calls of a rank. Returns the group's failure if one of them differs from an
  // earlier rank's record of it, or if they are not the next ones; nothing is compared after that.
  std::optional<Failure> Add(uint32_t rank, const RecordBatch& calls);

  // Calls that wait for the records of other ranks.
  size_t unmatched() const { return first_records_.size(); }
  // Records that were not compared: skipped by the sender, too far ahead, or out of memory here.
  uint64_t not_compared() const { return not_compared_; }

 private:
  struct FirstRecord {
    uint32_t rank = 0;
    uint32_t digest = 0;
    std::string text;
  };

  std::optional<Failure> Compare(uint32_t rank, const CallRecord& record);
  // No more records of calls before `next` will come from the rank.
  void Advance(uint32_t rank, uint64_t next);

  std::vector<uint64_t> next_;                     // expected sequence number, by rank
  uint64_t oldest_ = 0;                            // the least of next_
  size_t at_oldest_;                               // ranks whose next_ that is
  std::map<uint64_t, FirstRecord> first_records_;  // by sequence number, from oldest_ on
  uint64_t not_compared_ = 0;
};

}  // namespace onebit
