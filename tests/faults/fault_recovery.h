// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Recovery after a fault: survivors shrink, rebind and continue. Checks the rules that must hold
// then.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "onebit/onebit.hpp"
#include "tests/faults/fault_group.h"

namespace onebit::testing {

// Violated rules, one line each.
using Violations = std::vector<std::string>;

class Recovery {
 public:
  // For the ranks `members` of a group whose communicator has failed. `group` and `reference` must
  // outlive the recovery.
  Recovery(FaultGroup* group, const Reference* reference, std::vector<int> members);

  // Creates a communicator of the members from that of the group, or from the last one created
  // here. If `is_told`, the other ranks are named; otherwise the library must know who is lost.
  Violations Shrink(bool is_told);
  // Rebinds every compressor to that communicator. Returns a violation for each rank on which it
  // failed.
  Violations Rebind();
  // After Rebind: all members have the highest epoch, and the residuals are those of the run
  // without a fault, except for the server residual of ranks that are not members.
  Violations CheckState() const;
  // Makes calls with new inputs and expects equal bytes and epochs. If all ranks are members, also
  // expects the telescoping identity over the whole history.
  Violations CallAndCheck();

 private:
  // Calls `call` for every member on its own thread.
  Violations OnAll(const char* what, const std::function<onebitResult_t(size_t member)>& call);
  onebitComm_t comm(size_t member) const {
    return comms_.empty() ? group_.comm(members_[member]) : comms_[member].get();
  }
  onebitCompressor_t compressor(size_t member) const { return group_.compressor(members_[member]); }
  bool has_server_residual() const { return group_.kind().mode == onebitModeEf; }
  // The served parts one after the other; with one exchange the first member's residual.
  std::vector<float> ServerResidual() const;
  std::vector<float> ExpectedServerResidual() const;
  Violations CheckIdentity(const std::vector<std::vector<float>>& outputs) const;

  FaultGroup& group_;
  const Reference& reference_;
  const std::vector<int> members_;
  uint64_t epoch_ = 0;  // highest epoch of the members at the failure
  std::vector<std::vector<onebit::UniqueComm>> older_comms_;
  std::vector<onebit::UniqueComm> comms_;  // by member; empty: those of the group
};

}  // namespace onebit::testing
