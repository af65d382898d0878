// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Settings and properties of the transport.
#pragma once

#include <onebit/transport.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace onebit::ucx {

// Upper bound of an address, which is a head and UCX's own (about 200 bytes, more with many network
// devices).
inline constexpr size_t kMostAddressBytes = 4096;

// The values that `init` receives; ucx_settings.cc declares the settings.
struct Options {
  uint64_t eager_bytes;
  uint64_t early_bytes;
  const char* tls;
  const char* net_devices;   // empty: UsableDevices of the host's interfaces
  uint64_t shares_memory;    // 0 or 1
  uint64_t uses_rendezvous;  // 0 or 1
};

// True if this list of UCX transports lets two processes of a host share memory.
bool AllowsSharedMemory(std::string_view tls);

// True if it lets hosts reach each other by connections of RDMA adapters.
bool AllowsAdapters(std::string_view tls);

onebitTransportProperties PropertiesWith(const Options& options);

}  // namespace onebit::ucx
