// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls on host memory and on device memory, with all of their visible results, which must be equal
// to the bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "onebit/onebit.h"

namespace onebit::testing {

struct DeviceCase {
  onebitCollective_t collective = onebitCollectiveAllReduce;
  bool is_dense = false;
  onebitMode_t mode = onebitModeEf;
  onebitCodec_t codec = onebitCodecSign;
  onebitDataType_t type = onebitFloat32;
  onebitRedOp_t op = onebitAvg;
  onebitScaleRule_t rule = onebitScaleL2;
  int32_t block = 4096;
  onebitDataType_t residual = onebitFloat32;
  bool is_transactional = true;
  bool has_mask = false;
  size_t count = 1000;  // as in the call
  bool is_in_place = false;
  size_t shift_elements = 0;  // of the buffers, from an aligned address
  int calls = 3;
  int nonfinite_call = -1;  // the call in which the last rank has a NaN
  // So many successive ranks form a host, and calls must take two levels. 0: there is one host.
  int host_ranks = 0;
  int levels = 0;
};

std::string Describe(const DeviceCase& one);

// The results of a case's calls on one rank.
struct DeviceRecord {
  std::vector<std::vector<std::byte>> outputs;  // by call
  std::vector<std::byte> state;                 // onebitStateRank after them; empty if dense
  uint64_t epoch = 0;
  uint64_t nonfinite_calls = 0;
  uint64_t nonfinite_blocks =
      0;                    // with onebitModePlain only, where they are no other rank's affair
  uint64_t wire_bytes = 0;  // sent by the communicator
};
// Describes the differences, except in bytes sent, which include other calls; "" if there are none.
std::string DifferenceOf(const DeviceRecord& found, const DeviceRecord& expected);

enum class Where { kHost, kDevice, kGraph };

// Makes the calls of a case on one rank: on host memory, on memory of the current device with a
// stream of its own, or there as replays of a graph captured after the first call. Throws the
// library's error text.
DeviceRecord RunCase(const DeviceCase& one, onebitComm_t comm, Where where);

// Results of each of `ranks` ranks on host memory, as threads of this process.
std::vector<DeviceRecord> RunCaseOnHost(const DeviceCase& one, int ranks);

}  // namespace onebit::testing
