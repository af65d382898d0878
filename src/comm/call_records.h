// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Compares what ranks tell of their calls, in the middle of a control channel: whether all make the
// same ones, however late.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/control.h"

namespace onebit {

// Used by one thread at a time. Of a call the first record stays until every rank has told its own,
// so that memory grows with how far ranks are apart; from kMostUnmatched calls on it does not: what
// a rank tells that is further ahead of the last one is not compared.
class CallRecords {
 public:
  static constexpr uint64_t kMostUnmatched = 4096;

  explicit CallRecords(size_t ranks) : next_(ranks), at_oldest_(ranks) {}

  // The next calls of a rank, after `untold` of which it says nothing. The group's failure if one
  // of them is another call than that of a rank which told of it before, or if they are not the
  // next ones; then there is nothing more to compare.
  std::optional<Failure> Tell(uint32_t rank, uint64_t untold, std::span<const CallRecord> records);

  // Calls of which a record is kept.
  size_t unmatched() const { return first_told_.size(); }
  // Calls of ranks that were not compared: untold, too far ahead, or there was no memory.
  uint64_t not_compared() const { return not_compared_; }

 private:
  struct FirstTold {
    uint32_t rank = 0;
    uint32_t digest = 0;
    std::string text;
  };

  std::optional<Failure> Compare(uint32_t rank, const CallRecord& record);
  // The rank has told of all calls before this one, or will not tell of them any more.
  void Advance(uint32_t rank, uint64_t next);

  std::vector<uint64_t> next_;                // call of each rank
  uint64_t oldest_ = 0;                       // the least of them
  size_t at_oldest_;                          // ranks of which it is the next
  std::map<uint64_t, FirstTold> first_told_;  // by number of the call, from oldest_ on
  uint64_t not_compared_ = 0;
};

}  // namespace onebit
