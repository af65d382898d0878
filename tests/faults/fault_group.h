// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of this process that have joined like processes, over a faulty transport.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "onebit/onebit.h"
#include "onebit/onebit.hpp"
#include "tests/faults/fault_case.h"
#include "tests/support/fault_switch.h"
#include "tests/support/residuals.h"

namespace onebit::testing {

// A rank's calls up to the first failure.
struct CallsOfRank {
  std::vector<std::vector<float>> outputs;  // of the calls that succeeded
  onebitResult_t result = onebitSuccess;    // of the last call
  std::string text;                         // its error
  std::chrono::steady_clock::time_point end;
};

class FaultGroup {
 public:
  // ONEBIT_PLUGIN_PATH must contain the faulty plugins.
  FaultGroup(const std::string& transport, const CallKind& kind, size_t count, uint64_t timeout_ms);

  FaultSwitch& faults() { return *faults_; }
  const CallKind& kind() const { return kind_; }
  size_t count() const { return count_; }
  // Makes the next calls on every rank. Inputs depend only on the rank and the number of the call.
  std::vector<CallsOfRank> Call(int calls);

  onebitComm_t comm(int rank) const { return comms_[static_cast<size_t>(rank)].get(); }
  onebitCompressor_t compressor(int rank) const {
    return kind_.mode ? compressors_[static_cast<size_t>(rank)].get() : nullptr;
  }
  uint64_t epoch(int rank) const;

  static std::vector<float> InputOf(int rank, int call, size_t count);

 private:
  void Join(const std::string& transport, uint64_t timeout_ms);

  const CallKind kind_;
  const size_t count_;
  FaultSwitch* faults_;
  std::vector<onebit::UniqueCompressor> compressors_;  // may outlive the communicators
  std::vector<onebit::UniqueComm> comms_;
  int calls_ = 0;
};

// Results and residuals without a fault.
struct Reference {
  std::vector<std::vector<float>> outputs;        // by call
  std::vector<std::vector<Residuals>> residuals;  // by epoch and rank
};
const Reference& ReferenceOf(const CallKind& kind, MessageSize size);

}  // namespace onebit::testing
