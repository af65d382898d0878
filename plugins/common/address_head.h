// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// AddressHead: the part of an endpoint's address that all frame transports share.
#pragma once

#include <onebit/transport.h>

#include <cstddef>
#include <cstdint>

#include "plugins/common/base_context.h"

namespace onebit::plugin {

// The first member of every address, which must have no padding. Has the same layout on all hosts,
// because only little-endian hosts are joined.
struct AddressHead {
  uint64_t magic;     // of the transport and its version; set by SealAddress
  uint64_t checksum;  // covers everything after this member; set by SealAddress
  uint64_t comm_id;
  uint64_t machine;  // the kernel that runs the process
  uint32_t rank;
  uint32_t nranks;
  uint32_t eager_bytes;
  uint32_t early_bytes;
  char host_name[64];  // for error texts; NUL-terminated
};

// Adds the name of this host.
AddressHead WithHostName(AddressHead head);

// Completes the head of an address of `bytes` bytes.
void SealAddress(uint64_t magic, void* address, size_t bytes);
// Returns null, or what is wrong with an address of at least a head's size.
const char* ProblemOf(uint64_t magic, const void* address, size_t bytes);

// The address that a rank gave: its length, what is wrong with it (or null) and its head.
struct GivenAddress {
  int rank;
  size_t bytes;
  const char* problem;
  const AddressHead& head;
};
// Checks that it is usable, of this communicator, and from a rank with the same settings. Logs the
// cause of an error.
onebitResult_t CheckAddress(const BaseContext& context, const AddressHead& own,
                            const GivenAddress& given);

// The settings of which the head tells. `name` is the setting's.
constexpr onebitTransportSetting EagerBytesSetting(const char* name, const char* default_value,
                                                   uint64_t maximum, size_t offset) {
  return {.name = name,
          .kind = onebitSettingInteger,
          .values = "bytes",
          .maximum = maximum,
          .defaultValue = default_value,
          .help =
              "Payloads up to this size travel with their header; 32 times this is reserved "
              "per peer; equal on all ranks.",
          .offset = offset};
}
// The library lowers the effective value as the number of ranks grows.
constexpr onebitTransportSetting EarlyBytesSetting(const char* name, size_t offset) {
  return {.name = name,
          .kind = onebitSettingInteger,
          .values = "bytes",
          .maximum = 1'048'576,
          .defaultValue = "1048576",
          .help =
              "Payloads up to this size, and up to 2 MiB divided by the number of ranks, or 64 KiB "
              "over shared memory, are sent before their receiver asks for them; 32 times this is "
              "reserved per peer; equal on all ranks.",
          .offset = offset};
}

}  // namespace onebit::plugin
