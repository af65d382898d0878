// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Makes a call where its buffers are.
#pragma once

#include "api/device_lane.h"
#include "api/stream.h"

namespace onebit {

// At once, or in its turn on the stream of the host or of the device. `body` returns a Status and
// is copied. is_taken, if not null, tells whether `body` has run or will: an error may come after
// that, too.
template <typename Body>
Status MakeCall(const CallTarget& target, Body body, bool* is_taken = nullptr) {
  if (!target.place.is_device()) return MakeHostCall(target, body, is_taken);
  if (target.comm->engine.is_stream_ordered()) {  // it enqueues, and returns
    if (is_taken != nullptr) *is_taken = true;
    return body();
  }
  ONEBIT_ASSIGN_OR_RETURN(DeviceLane* const lane, LaneOf(target.comm, target.place));
  return lane->Enqueue(target, body, is_taken);
}

}  // namespace onebit
