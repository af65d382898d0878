// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The transport ABI of a transport with faults around another one.
#pragma once

#include <atomic>
#include <optional>

#include "onebit/transport.h"
#include "tests/support/fault_switch.h"

namespace onebit::testing {

// What `init` makes, and the context of the transport: whoever knows that it is one with faults may
// look inside.
struct FaultyContext {
  FaultSwitch faults;
  // Where ranks are processes, whose communicators follow each other: which one the fault is for.
  std::optional<int> only_comm;
  FaultSwitch no_faults;  // of the others
  std::atomic<int> comms = 0;
  const onebitTransport* inner;
  void* inner_context = nullptr;
};

// Starts `inner` and wraps it; for the `init` of a table.
onebitResult_t StartFaulty(const onebitTransport* inner, const onebitTransportHost* host,
                           void** context);

// All functions but `init` and `getProperties`, which depend on what is inside.
extern const onebitTransport kFaultyFunctions;

}  // namespace onebit::testing
