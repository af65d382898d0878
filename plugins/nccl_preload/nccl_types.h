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
inline constexpr Result kUnhandledCudaError = 1;
inline constexpr Result kSystemError = 2;
inline constexpr Result kInternalError = 3;
inline constexpr Result kInvalidArgument = 4;
inline constexpr Result kInvalidUsage = 5;
inline constexpr Result kRemoteError = 6;
inline constexpr Result kInProgress = 7;

using Comm = ::ncclComm*;
using Stream = ::CUstream_st*;

struct UniqueId {
  char bytes[128];
};

// `magic` of every structure with a configuration.
inline constexpr unsigned kConfigMagic = 0xcafebeef;

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

// A member of the list of options for libraries other than NCCL: ncclConfigExt_t.
struct ConfigOption {
  const ConfigOption* next;
  int vendor;
  int id;
  union {
    int number;
    const char* text;
    void* pointer;
  } value;
};

// ncclCollConfig_t of 2.32. A caller's structure ends after `size` bytes; that of 2.31 lacks the
// last field.
struct CollConfig {
  size_t size;
  unsigned magic;
  unsigned version;
  const ConfigOption* options;
  int min_ctas;
  int max_ctas;
  int nvls_ctas;
  int cga_cluster_size;
  const char* algorithms;
  int must_have_algorithm;
  int cta_policy;
  uint64_t profiler_tag;
  void* launch_completion_event;
};
inline constexpr size_t kLeastCollConfigBytes = offsetof(CollConfig, launch_completion_event);

}  // namespace onebit::preload
