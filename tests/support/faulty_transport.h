// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A transport with one fault at a chosen message: of this process's own, or by a name.
#pragma once

#include <string>

#include "onebit/transport.h"
#include "tests/support/faulty_frames.h"
#include "transport/transport.h"

namespace onebit::testing {

// Transport `local` for a CommGroup. Owns a started transport; groups that use it must be destroyed
// first.
class FaultyTransport {
 public:
  FaultyTransport();
  // Expects that all endpoints were closed.
  ~FaultyTransport();
  FaultyTransport(const FaultyTransport&) = delete;
  FaultyTransport& operator=(const FaultyTransport&) = delete;

  const Transport& transport() const { return transport_; }

  // Counts messages from now on, and strikes once. No call may be running.
  void Arm(const Fault& fault) { faults().Arm(fault); }
  bool has_struck() const { return faults().has_struck(); }
  // The receiver of the struck message; -1 if none was struck yet.
  int struck_peer() const { return faults().struck_peer(); }

 private:
  FaultSwitch& faults() const { return static_cast<FaultyContext*>(transport_.context())->faults; }

  Transport transport_;
};

// Makes transports "faultylocal", "faultysocket" and "faultyucx" known to this process. The setting
// ONEBIT_FAULTY<INNER>_FAULT describes the fault (ParseFault). Their context is a FaultyContext.
void RegisterFaultyTransports();

}  // namespace onebit::testing
