// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs the calls of one thread on one or more communicators: a single call, or a group.
#pragma once

#include <span>

#include "exec/engine.h"

namespace onebit {

// One thread's calls on one communicator, which run together.
struct GroupMember {
  Engine* engine = nullptr;
  std::span<const CallRequest> requests;         // not empty
  Status status = {};                            // the result
  CallOutcome outcome = CallOutcome::kOnStream;  // of the first call, if the status is OK
  bool has_ended = false;
};

// Runs the calls until all have ended. Drives communicators in turn, because their ranks may share
// the thread and wait for each other. Enters the communicators unless the thread is inside them
// already. Nothing is sent unless every member can begin; after that, a communicator's failure
// leaves its compressors unchanged and does not affect the others. Returns the first failure.
Status RunCalls(std::span<GroupMember> members, bool are_entered = false);

// Runs a single call, as a group of one whose messages are those of a call outside of any group.
[[gnu::always_inline]] inline Result<CallOutcome> RunCall(Engine& engine,
                                                          const CallRequest& request) {
  GroupMember member{.engine = &engine, .requests = {&request, 1}};
  ONEBIT_TRY(RunCalls({&member, 1}));
  return member.outcome;
}

}  // namespace onebit
