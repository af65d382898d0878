// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What survivors do after a fault: they shrink, rebind and go on; and what must hold then.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "onebit/onebit.hpp"
#include "tests/faults/fault_group.h"

namespace onebit::testing {

// What is not as it must be, a line each.
using Violations = std::vector<std::string>;

class Recovery {
 public:
  // Of the ranks `members` of a group whose communicator has failed. Both outlive the recovery.
  Recovery(FaultGroup* group, const Reference* reference, std::vector<int> members);

  // A communicator of the members, made of that of the group, or of the last one that was made
  // here. With `is_told` the others are named; else the library must know who is lost.
  Violations Shrink(bool is_told);
  // Every compressor to that communicator. A violation per rank on which it failed.
  Violations Rebind();
  // After a Rebind: all have the highest epoch, worker residuals are those of the run without a
  // fault, and so is the server residual but for the part of ranks that are no members.
  Violations CheckState() const;
  // Calls with new inputs: equal bytes and epochs, and nothing got lost: the telescoping identity
  // over the whole history, if all ranks are members.
  Violations CallAndCheck();

 private:
  // Calls `call` for every member, each on a thread of its own.
  Violations OnAll(const char* what, const std::function<onebitResult_t(size_t member)>& call);
  onebitComm_t comm(size_t member) const {
    return comms_.empty() ? group_.comm(members_[member]) : comms_[member].get();
  }
  onebitCompressor_t compressor(size_t member) const { return group_.compressor(members_[member]); }
  bool has_server_residual() const { return group_.kind().mode == onebitModeEf; }
  // The served parts one after the other; of one exchange, that of the first member.
  std::vector<float> ServerResidual() const;
  std::vector<float> ExpectedServerResidual() const;
  Violations CheckIdentity(const std::vector<std::vector<float>>& outputs) const;

  FaultGroup& group_;
  const Reference& reference_;
  const std::vector<int> members_;
  uint64_t epoch_ = 0;  // the highest of the members when it failed
  std::vector<std::vector<onebit::UniqueComm>> older_comms_;
  std::vector<onebit::UniqueComm> comms_;  // by member; empty: those of the group
};

}  // namespace onebit::testing
