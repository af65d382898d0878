// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Settings of the transport, and its properties.
#pragma once

#include <onebit/transport.h>

#include <cstdint>

namespace onebit::mpi {

// What `init` receives; the rows are in mpi_settings.cc.
struct Options {
  uint64_t eager_bytes;
  uint64_t early_bytes;
  uint64_t native_dense;  // 0 or 1
};

onebitTransportProperties PropertiesWith(const Options& options);

}  // namespace onebit::mpi
