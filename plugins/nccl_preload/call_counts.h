// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Counts calls and bytes by what became of them, for ONEBIT_NCCL_STATS.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "plugins/nccl_preload/call_facts.h"
#include "plugins/nccl_preload/call_policy.h"

namespace onebit::preload {

// Thread-safe.
class CallCounts {
 public:
  void Count(const CommFacts& comm, const CallFacts& call, Reason reason);

  // A table, a line for each communicator's name, operation, type and reason. Empty if nothing was
  // counted.
  std::string Report() const;

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
};

}  // namespace onebit::preload
