// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The transport ABI of a transport with faults around another one.
#pragma once

#include "onebit/transport.h"
#include "tests/support/fault_switch.h"

namespace onebit::testing {

// What `init` makes, and the context of the transport: whoever knows that it is one with faults may
// look inside.
struct FaultyContext {
  FaultSwitch faults;
  // Of one process with several communicators, one after the other: the fault strikes the first.
  bool is_for_first_comm = false;
  FaultSwitch no_faults;  // of the others
  bool has_opened = false;
  const onebitTransport* inner;
  void* inner_context = nullptr;
};

// Starts `inner` and wraps it; for the `init` of a table.
onebitResult_t StartFaulty(const onebitTransport* inner, const onebitTransportHost* host,
                           void** context);

// All functions but `init` and `getProperties`, which depend on what is inside.
extern const onebitTransport kFaultyFunctions;

}  // namespace onebit::testing
