// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A call that meets a fault on the wire, and what each rank holds afterwards.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "onebit/onebit.h"
#include "tests/support/comm_group.h"
#include "tests/support/faulty_transport.h"
#include "tests/support/residuals.h"

namespace onebit::testing {

// The kind of call that meets the fault.
struct FaultSubject {
  const char* name;
  std::optional<onebitMode_t> mode;  // none: dense
  size_t count = 500;
  uint64_t one_exchange_elements = 0;
  uint64_t segment_elements = 262'144;
  bool is_transactional = true;
  int group_calls = 0;  // so many small dense ones are made with it in one group; 0: it is alone
  uint64_t group_elements = 1'048'576;
  onebitCollective_t collective = onebitCollectiveAllReduce;
  onebitCodec_t codec = onebitCodecSign;
  int hops = ONEBIT_UNDEF_INT;  // of sparse codecs
  bool has_two_levels = false;  // ranks 0 and 1 share a host, and its only rail is rank 0's

  // Messages at the end of a rank's call that have no payload.
  uint64_t verdicts() const;
};
std::ostream& operator<<(std::ostream& out, const FaultSubject& subject);

inline constexpr int kFaultRanks = 3;
inline uint64_t FaultSubject::verdicts() const {
  return mode && collective != onebitCollectiveAllReduce ? kFaultRanks - 1 : 0;
}

// A group on a transport of its own, one tensor, and inputs that depend on rank and call only. The
// constructor makes the first call, without faults; the second is the one that tests look at.
class FaultRun {
 public:
  explicit FaultRun(const FaultSubject& subject, uint64_t timeout_ms = 20'000);

  void Arm(const Fault& fault) { transport_.Arm(fault); }
  const FaultyTransport& transport() const { return transport_; }
  // The next call on every rank, or the next ones, up to the first that fails on the rank.
  std::vector<Outcome> Call(int calls = 1);

  // Compressed subjects only.
  Residuals residuals(int rank) const { return ResidualsOf(compressor(rank)); }
  onebitCompressorStats_t stats(int rank) const { return StatsOf(compressor(rank)); }

  CommGroup& group() { return group_; }

 private:
  onebitResult_t CallOnce(int rank, int call);
  onebitCompressor_t compressor(int rank) const {
    return compressors_[static_cast<size_t>(rank)].get();
  }

  const FaultSubject subject_;
  FaultyTransport transport_;
  std::vector<UniqueCompressor> compressors_;  // may outlive the group
  CommGroup group_;
  int calls_ = 0;
};

// Residuals after the first three calls, by call and rank, as they are without a fault.
using Generations = std::vector<std::vector<Residuals>>;
Generations GenerationsOf(const FaultSubject& subject);

}  // namespace onebit::testing
