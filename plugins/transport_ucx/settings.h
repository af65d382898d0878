// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Settings of the transport, and what is known before init.
#pragma once

#include <onebit/transport.h>

#include <cstddef>
#include <string>

namespace onebit::ucx {

// Upper bound of an address: UCX's own (about 200 bytes, more with many network devices) and a
// head.
inline constexpr size_t kMostAddressBytes = 4096;

struct Options {
  // With headers a whole window of such payloads is about 40 KiB, which the systems of both ends
  // take at once: then no message that counts as sent stays with UCX until its sender calls again.
  size_t eager_bytes = 1152;
  // In effect what plugin::EarlyBytes allows for the number of ranks.
  size_t early_bytes = 1u << 20;
  std::string tls = "all";
  std::string net_devices;  // empty: UsableDevices of `interfaces`
  std::string interfaces;   // as the library was told; empty: any
  bool shared_memory = true;
};

// Reads the settings by the host. onebitInvalidUsage, and a line in the log, if one does not parse.
onebitResult_t ReadOptions(const onebitTransportHost& host, Options* options);

// Whether this list of UCX transports lets two processes of a host share memory.
bool AllowsSharedMemory(const std::string& tls);

// Properties with the defaults of all settings.
onebitTransportProperties DefaultProperties();

}  // namespace onebit::ucx
