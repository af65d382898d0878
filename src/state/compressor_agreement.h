// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Lets all ranks learn, before they exchange anything else, whether each of them can take part in a
// collective operation on a compressor and has the same one.
#pragma once

#include <string_view>

#include "comm/agreement.h"
#include "comm/comm.h"
#include "plan/planned_compressor.h"

namespace onebit {

// For how many ranks a worker residual stands: with two levels for those of its host.
inline float RanksOfResidual(const Comm& comm, const Compressor& compressor) {
  if (!compressor.config().has_two_levels) return 1;
  const HostMap& hosts = comm.hosts();
  return static_cast<float>(hosts.RanksOn(hosts.HostOf(static_cast<uint32_t>(comm.rank()))).size());
}

// Values that must be equal on all ranks, under the names that users know: the configuration of a
// compressor, and how far it has come.
AgreedValues ConfigurationOf(const Compressor& compressor);
AgreedValues AgreedValuesOf(const PlannedCompressor& compressor);

// Returns `obstacle`, which is this rank's own error, kRemoteError if another rank has one, or
// kMismatch if ranks differ in `values`. Every rank decides alike, so the communicator
// stays healthy. `what` is the operation, as in "exporting the state of a compressor".
Status AgreeOnCompressor(Comm& comm, std::string_view what, const Status& obstacle,
                         const AgreedValues& values);

}  // namespace onebit
