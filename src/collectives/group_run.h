// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs the calls of a group, on one communicator or on several of the same thread.
#pragma once

#include <span>

#include "collectives/engine.h"
#include "comm/comm.h"

namespace onebit {

// What a group does on one communicator.
struct GroupMember {
  Comm* comm = nullptr;
  Engine* engine = nullptr;
  std::span<const Engine::Request> requests;  // not empty
  Status status = {};                         // how it ended
  bool has_ended = false;
};

// Enters the communicators, and moves all of them on in turns: those of several ranks of one group
// wait for each other. Nothing is sent unless every member can begin. From then on a failure is
// that of one communicator, whose compressors keep what they had; the first one is returned.
Status RunGroup(std::span<GroupMember> members);

}  // namespace onebit
