// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Settings of the transport, and what is known before init.
#pragma once

#include <onebit/transport.h>

#include <cstddef>

#include "plugins/common/base_context.h"

namespace onebit::mpi {

struct Options {
  // Open MPI sends up to 4096 bytes at once over shared memory.
  size_t eager_bytes = 2048;
  // In effect what plugin::EarlyBytes allows for the number of ranks.
  size_t early_bytes = 1u << 20;
  bool native_dense = false;
};

// Reads the settings by the host. onebitInvalidUsage, and a line in the log, if one does not parse.
onebitResult_t ReadOptions(const plugin::BaseContext& context, Options* options);

onebitTransportProperties PropertiesWith(const Options& options);

}  // namespace onebit::mpi
