// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Settings of the transport, and its properties.
#pragma once

#include <onebit/transport.h>

#include <cstdint>

namespace onebit::nccl {

// What `init` receives; the rows are in nccl_settings.cc.
struct Options {
  const char* library;    // empty: looked for
  uint64_t native_dense;  // 0 or 1
  uint64_t is_blocking;   // 0 or 1
  uint64_t close_ms;
};

onebitTransportProperties PropertiesWith(const Options& options);

}  // namespace onebit::nccl
