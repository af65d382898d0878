// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The function table of a transport that adds faults to another one.
#pragma once

#include <atomic>
#include <optional>

#include "onebit/transport.h"
#include "tests/support/fault_switch.h"

namespace onebit::testing {

// Created by `init` and used as the transport's context. Code that knows the transport is a faulty
// one may access it.
struct FaultyContext {
  FaultSwitch faults;
  // If ranks are processes, which create one communicator after another: the one that the fault is
  // for.
  std::optional<int> only_comm;
  FaultSwitch no_faults;  // for all other communicators
  std::atomic<int> comms = 0;
  const onebitTransport* inner;
  void* inner_context = nullptr;
};

// Starts `inner` and wraps it; for the `init` of a table.
onebitResult_t StartFaulty(const onebitTransport* inner, const onebitTransportHost* host,
                           void** context);

// All functions but `init` and `getProperties`, which depend on the transport inside.
extern const onebitTransport kFaultyFunctions;

}  // namespace onebit::testing
