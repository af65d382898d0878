// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Settings of the transport, and its properties.
#pragma once

#include <onebit/transport.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace onebit::ucx {

// Upper bound of an address: UCX's own (about 200 bytes, more with many network devices) and a
// head.
inline constexpr size_t kMostAddressBytes = 4096;

// What `init` receives; the rows are in ucx_settings.cc.
struct Options {
  uint64_t eager_bytes;
  uint64_t early_bytes;
  const char* tls;
  const char* net_devices;  // empty: UsableDevices of the host's interfaces
  uint64_t shares_memory;   // 0 or 1
};

// True if this list of UCX transports lets two processes of a host share memory.
bool AllowsSharedMemory(std::string_view tls);

onebitTransportProperties PropertiesWith(const Options& options);

}  // namespace onebit::ucx
