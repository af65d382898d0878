// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The message functions of a transport that adds faults to another one.
#pragma once

#include <atomic>
#include <optional>

#include "channel/message_functions.h"
#include "tests/support/fault_switch.h"
#include "transport/transport.h"

namespace onebit::testing {

// The context of the functions. Code that knows the transport is a faulty one may access it.
struct FaultyContext {
  FaultSwitch faults;
  // If ranks are processes, which create one communicator after another: the one that the fault is
  // for.
  std::optional<int> only_comm;
  FaultSwitch no_faults;  // for all other communicators
  std::atomic<int> comms = 0;
  Transport inner;
};

extern const MessageFunctions kFaultyFunctions;

}  // namespace onebit::testing
