// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Settings and properties of the transport.
#pragma once

#include <onebit/transport.h>

#include <cstdint>

namespace onebit::nccl {

// The values that `init` receives; nccl_settings.cc declares the settings.
struct Options {
  const char* library;    // empty: search for it
  uint64_t native_dense;  // 0 or 1
  uint64_t is_blocking;   // 0 or 1
  uint64_t close_ms;
  const char* rules;  // of the interposer, as its file is
  const char* stats;
};

onebitTransportProperties PropertiesWith(const Options& options);

}  // namespace onebit::nccl
