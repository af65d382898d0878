// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What ranks on devices check together over a transport in stream order. Each rank calls the same
// function, as a thread or as a process of its own; it throws what it finds wrong.
#pragma once

#include <cstddef>

#include "onebit/onebit.h"
#include "tests/cuda/device_case.h"

namespace onebit::testing {

struct DeviceRank {
  onebitComm_t comm;  // whose device is the current one of the thread
  int rank;
  int ranks;
};

// The calls of a case come to what they come to on host memory.
void CheckAgainstHost(const DeviceRank& self, const DeviceCase& one, Where where);

// The last rank makes another call than the others, which no message tells: all ranks get
// onebitMismatch within seconds, with a text that says so. Needs two ranks; ends the communicator.
void CheckMismatchOfTypesIsTold(const DeviceRank& self);
// Likewise with another count, so that messages do not fit: all ranks get an error, and their
// streams go on.
void CheckMismatchOfCountsIsTold(const DeviceRank& self);

// Rank 0 makes a call that no other makes and aborts: its stream goes on, and the others are told.
// Needs two ranks; ends the communicator.
void CheckAbortReleasesTheStream(const DeviceRank& self);

// Dense allreduces of fp32 by the transport itself: right but for rounding, and not counted.
void CheckNativeDense(const DeviceRank& self);

// So many replays of a captured allreduce of `count` elements, each of other values. What comes out
// and what is still owed is what went in: the sum of outputs and residuals equals that of the
// means, within 1e-5. Needs two ranks.
void CheckReplaysLoseNothing(const DeviceRank& self, size_t count, int replays);

}  // namespace onebit::testing
