// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The control channel of a communicator: how ranks learn of each other's failures, independent of
// the transport that moves data.
#pragma once

#include <optional>

#include "base/status.h"

namespace onebit {

// A rank's way to hear that another one failed. Called from the failing rank's thread.
class FailureListener {
 public:
  virtual void OnRemoteFailure() = 0;

 protected:
  ~FailureListener() = default;
};

struct Failure {
  int rank = 0;  // who saw it first
  Status cause;
};

// One rank's end. Thread-safe. The first failure of the group is the one that everybody sees.
class Control {
 public:
  virtual ~Control() = default;
  // Tells the group that this rank failed; only the first report of the group counts.
  virtual void Report(const Status& cause) = 0;
  virtual std::optional<Failure> first_failure() const = 0;
};

}  // namespace onebit
