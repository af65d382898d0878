// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Checks that ranks on devices make together over a stream-ordered transport. Each rank calls the
// same function, as a thread or a process; it throws if it finds something wrong.
#pragma once

#include <cstddef>

#include "onebit/onebit.h"
#include "tests/cuda/device_case.h"

namespace onebit::testing {

struct DeviceRank {
  onebitComm_t comm;  // its device is current in the thread
  int rank;
  int ranks;
};

// The calls of a case give the same results as on host memory.
void CheckAgainstHost(const DeviceRank& self, const DeviceCase& one, Where where);

// The last rank makes another call than the others, which messages do not show: all ranks get
// onebitMismatch within seconds, with a text that names it. Needs two ranks; ends the communicator.
void CheckMismatchOfTypesIsTold(const DeviceRank& self);
// The same with another count, so that messages do not fit: all ranks get an error, and their
// streams continue.
void CheckMismatchOfCountsIsTold(const DeviceRank& self);

// Rank 0 makes a call that no other rank makes, and aborts: its stream continues, and the others
// are told. Needs two ranks; ends the communicator.
void CheckAbortReleasesTheStream(const DeviceRank& self);

// Dense fp32 allreduces by the transport itself are right up to rounding, and not counted.
void CheckNativeDense(const DeviceRank& self);

// Replays a captured allreduce of `count` elements this many times with different values. The sum
// of outputs and residuals must equal that of the mean inputs within 1e-5. Needs two ranks.
void CheckReplaysLoseNothing(const DeviceRank& self, size_t count, int replays);

}  // namespace onebit::testing
