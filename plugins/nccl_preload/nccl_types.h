// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// NCCL's C ABI, as far as this library reads it. It is declared here instead of in nccl.h, so that
// one build serves every version.
#pragma once

#include <cstddef>
#include <cstdint>

struct ncclComm;
struct CUstream_st;

namespace onebit::preload {

// Values of ncclResult_t.
using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kSystemError = 2;
inline constexpr Result kInternalError = 3;
inline constexpr Result kInvalidUsage = 5;
inline constexpr Result kInProgress = 7;

using Comm = ::ncclComm*;
using Stream = ::CUstream_st*;

struct UniqueId {
  char bytes[128];
};

// The beginning of ncclConfig_t, up to its communicator's name. A caller's structure ends after
// `size` bytes.
struct Config {
  size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
  int cga_cluster_size;
  int min_ctas;
  int max_ctas;
  const char* net_name;
  int split_share;
  int traffic_class;
  const char* comm_name;  // since 2.27
};
inline constexpr unsigned kFirstVersionWithBlocking = 21400;
inline constexpr unsigned kFirstVersionWithName = 22700;

}  // namespace onebit::preload
