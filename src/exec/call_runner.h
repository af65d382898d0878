// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// CallRunner: how calls are run, on the calling thread or from a CUDA stream.
#pragma once

#include <span>

#include "base/status.h"
#include "exec/call_outcome.h"
#include "exec/call_request.h"

namespace onebit {

class Engine;

// One thread's calls on one communicator, which run together.
struct GroupMember {
  Engine* engine = nullptr;
  std::span<const CallRequest> requests;         // not empty
  Status status = {};                            // the result
  CallOutcome outcome = CallOutcome::kOnStream;  // of the first call, if the status is OK
  bool has_ended = false;
};

// Runs calls whose buffers are in one kind of memory. A communicator has one for each kind that its
// transport serves.
class CallRunner {
 public:
  virtual ~CallRunner() = default;
  CallRunner(const CallRunner&) = delete;
  CallRunner& operator=(const CallRunner&) = delete;

  // Runs calls on one or more communicators, which the thread has entered and whose runners are of
  // this one's class. Nothing is sent unless every member can begin. Returns the first failure.
  virtual Status Run(std::span<GroupMember> members) = 0;

 protected:
  CallRunner() = default;
};

}  // namespace onebit
