// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs the calls of one thread on one or more communicators: a single call, or a group.
#pragma once

#include <span>

#include "exec/call_runner.h"
#include "exec/engine.h"

namespace onebit {

// Runs the calls until all have ended, or are enqueued. Enters the communicators unless the thread
// is inside them already. Nothing is sent unless every member can begin. Returns the first failure.
Status RunCalls(std::span<GroupMember> members, bool are_entered = false);

// Runs a single call, as a group of one whose messages are those of a call outside of any group.
[[gnu::always_inline]] inline Result<CallOutcome> RunCall(Engine& engine,
                                                          const CallRequest& request) {
  GroupMember member{.engine = &engine, .requests = {&request, 1}};
  ONEBIT_TRY(RunCalls({&member, 1}));
  return member.outcome;
}

}  // namespace onebit
