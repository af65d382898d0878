// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Settings and properties of the transport.
#pragma once

#include <onebit/transport.h>

#include <cstdint>

namespace onebit::mpi {

// The values that `init` receives; mpi_settings.cc declares the settings.
struct Options {
  uint64_t eager_bytes;
  uint64_t early_bytes;
  uint64_t native_dense;  // 0 or 1
};

onebitTransportProperties PropertiesWith(const Options& options);

}  // namespace onebit::mpi
