// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// NcclApi: the functions of NCCL, found by name in the library that the process uses.
//
// Their declarations follow NCCL's C ABI since 2.10 instead of nccl.h. So the plugin is built
// without NCCL, and one build serves every version.
#pragma once

#include <onebit/transport.h>

#include <climits>
#include <cstddef>
#include <memory>
#include <string>

#include "plugins/common/base_context.h"

namespace onebit::nccl {

// Values of ncclResult_t. Those from 0 to 8 have the numbers of onebitResult_t.
constexpr int kSuccess = 0;
constexpr int kUnhandledCudaError = 1;
constexpr int kSystemError = 2;
constexpr int kInvalidArgument = 4;
constexpr int kInProgress = 7;

constexpr int kInt8 = 0;  // ncclInt8; the types of onebitDataType_t have NCCL's numbers

using CommHandle = struct ncclComm*;

struct UniqueId {
  char bytes[128];
};

// ncclConfig_t as in its first version, 2.14. NCCL reads it by `size` and `version`, and uses the
// default for every later field.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = INT_MIN;
  int unused = INT_MIN;  // a field since 2.17: this means undefined there
};

struct NcclApi {
  int (*GetVersion)(int* version) = nullptr;
  int (*GetUniqueId)(UniqueId* id) = nullptr;
  int (*CommInitRank)(CommHandle* comm, int ranks, UniqueId id, int rank) = nullptr;
  int (*CommCount)(CommHandle comm, int* ranks) = nullptr;
  int (*CommUserRank)(CommHandle comm, int* rank) = nullptr;
  int (*CommCuDevice)(CommHandle comm, int* device) = nullptr;
  int (*CommDestroy)(CommHandle comm) = nullptr;
  int (*CommAbort)(CommHandle comm) = nullptr;
  int (*CommGetAsyncError)(CommHandle comm, int* result) = nullptr;
  const char* (*GetErrorString)(int result) = nullptr;
  int (*GroupStart)() = nullptr;
  int (*GroupEnd)() = nullptr;
  int (*Send)(const void* buffer, size_t count, int type, int peer, CommHandle comm,
              onebitStream_t stream) = nullptr;
  int (*Recv)(void* buffer, size_t count, int type, int peer, CommHandle comm,
              onebitStream_t stream) = nullptr;
  int (*AllReduce)(const void* send, void* recv, size_t count, int type, int op, CommHandle comm,
                   onebitStream_t stream) = nullptr;
  int (*ReduceScatter)(const void* send, void* recv, size_t recv_count, int type, int op,
                       CommHandle comm, onebitStream_t stream) = nullptr;
  int (*AllGather)(const void* send, void* recv, size_t send_count, int type, CommHandle comm,
                   onebitStream_t stream) = nullptr;
  int (*Broadcast)(const void* send, void* recv, size_t count, int type, int root, CommHandle comm,
                   onebitStream_t stream) = nullptr;

  // Null if this NCCL is too old for them.
  const char* (*GetLastError)(CommHandle comm) = nullptr;  // 2.13
  int (*CommInitRankConfig)(CommHandle* comm, int ranks, UniqueId id, int rank,
                            Config* config) = nullptr;      // 2.14
  int (*CommFinalize)(CommHandle comm) = nullptr;           // 2.14
  int (*CommRevoke)(CommHandle comm, int flags) = nullptr;  // 2.28.7

  int version = 0;      // as NCCL_VERSION_CODE
  std::string release;  // "2.28.9"
  std::string file;     // path of the library
  // True if the process had loaded it before: otherwise it made no communicator of the application.
  bool was_loaded = true;

  // NCCL's text for an error: "unhandled system error (...)".
  std::string Explain(int result) const;
};

// Finds NCCL, in this order: the file of ONEBIT_NCCL_LIB; a libnccl.so.2 that the process has
// loaded; NCCL linked into the program; a libnccl.so.2 that the system's loader finds. Logs the
// cause of an error. `path` may be null.
onebitResult_t FindNccl(const plugin::BaseContext& context, const char* path,
                        std::shared_ptr<const NcclApi>* api);

// Translates a result of NCCL.
onebitResult_t ResultOf(int result);

}  // namespace onebit::nccl
