// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Counts calls and bytes by what became of them, for ONEBIT_NCCL_STATS.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "plugins/nccl_preload/call_compressors.h"
#include "plugins/nccl_preload/call_facts.h"
#include "plugins/nccl_preload/call_policy.h"

namespace onebit::preload {

// The bytes of compressed calls of a communicator, and how they fared.
struct Traffic {
  uint64_t calls = 0;
  uint64_t nonfinite_calls = 0;  // those that met a NaN or infinity, whose results are NaN
  uint64_t sent_bytes = 0;       // by this rank
  uint64_t ring_bytes = 0;       // that NCCL's ring would have sent for the same calls
  double host_seconds = 0;
  Residuals residuals;

  Traffic& operator+=(const Traffic& other);
};

// Bytes that a rank sends for a call, in a ring where all ranks take part.
uint64_t RingBytes(const CommFacts& comm, const CallFacts& call);

// Thread-safe.
class CallCounts {
 public:
  void Count(const CommFacts& comm, const CallFacts& call, Reason reason);

  // Adds what a communicator that has ended has sent.
  void Add(const CommFacts& comm, const Traffic& traffic);

  // A table, a line for each communicator's name, operation, type and reason; then a line for each
  // name with compressed calls, to which `live` contributes. Empty if nothing was counted.
  using TrafficByName = std::map<std::string, Traffic>;
  std::string Report(const TrafficByName& live) const;

 private:
  struct Row {
    std::string comm;
    int ranks;
    Operation operation;
    DataType type;
    Reason reason;
    friend auto operator<=>(const Row&, const Row&) = default;
  };
  struct Sum {
    uint64_t calls = 0;
    uint64_t bytes = 0;
  };

  mutable std::mutex mutex_;
  std::map<Row, Sum> sums_;
  TrafficByName ended_;
};

}  // namespace onebit::preload
