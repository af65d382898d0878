// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs calls on one communicator or on several of the same thread: a call alone, or a group.
#pragma once

#include <span>

#include "collectives/engine.h"

namespace onebit {

// The calls that a thread makes at once on one communicator.
struct CommCalls {
  Engine* engine = nullptr;
  std::span<const CallRequest> requests;  // not empty
  Status status = {};                     // how they ended
  bool has_ended = false;
};

// Runs the calls until all have ended, in turns, because ranks of one communicator that share the
// thread wait for each other. Enters the communicators unless the thread is inside them already.
// Nothing is sent unless every member can begin. From then on a failure is that of one
// communicator, whose compressors keep what they had. Returns the first one.
Status RunCalls(std::span<CommCalls> members, bool are_entered = false);

// A call alone is a group of one, and sends the messages that it has outside of any group.
inline Status RunCall(Engine& engine, const CallRequest& request) {
  CommCalls call{.engine = &engine, .requests = {&request, 1}};
  return RunCalls({&call, 1});
}

}  // namespace onebit
