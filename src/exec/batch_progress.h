// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Describes how far a call has come, for the text of the error that ended it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "plan/plan.h"

namespace onebit {

// The message of a send or receive step.
enum class MessageState : uint8_t { kPending, kArrived, kDone };

struct BatchProgress {
  const Plan& plan;
  std::span<const MessageState> states;  // by step
  double seconds = 0;                    // since the call began
};

// "0.5 s into the call, in exchange 1 of 2, 4096 of 8192 bytes received, 0 of 8192 sent; waiting
// for rank 2 (3 of 4 messages missing, tcp over eth0)". `path_of` tells how a peer is reached.
std::string Describe(const BatchProgress& progress,
                     const std::function<std::string(uint32_t peer)>& path_of);

}  // namespace onebit
