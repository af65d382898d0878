// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The comparison of estimates in an all-gather, or a send and its receive, with error feedback.
#pragma once

#include "comm/comm.h"
#include "steps/batch.h"

namespace onebit {

// A verdict carries the checksum of the sender's own estimate. This rank must hold the same, or
// its outputs are wrong from some call on: fails and takes the communicator out of use if it does
// not. Does nothing for a call that compares no estimates. `held`: checksums of what this rank
// holds, by chunk; null: they are computed here.
Status CheckHeld(Comm* comm, const Call& call, const kernels::Checksum* held);

}  // namespace onebit
