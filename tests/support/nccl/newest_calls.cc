// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls that older versions lack: all-to-alls, which NCCL has since 2.28, and calls with a
// configuration, since 2.31. The latter are those without one.
#include <cstddef>

#include "tests/support/nccl/stand_in_comm.h"

extern "C" ncclResult_t pncclGroupStart(void);
extern "C" ncclResult_t pncclGroupEnd(void);
extern "C" ncclResult_t pncclCommCount(ncclComm_t comm, int* count);
extern "C" ncclResult_t pncclSend(const void* buffer, size_t count, ncclDataType_t type, int peer,
                                  ncclComm_t comm, ncclTestStream_t stream);
extern "C" ncclResult_t pncclRecv(void* buffer, size_t count, ncclDataType_t type, int peer,
                                  ncclComm_t comm, ncclTestStream_t stream);
extern "C" ncclResult_t pncclAllGather(const void* send, void* recv, size_t count,
                                       ncclDataType_t type, ncclComm_t comm,
                                       ncclTestStream_t stream);
extern "C" ncclResult_t pncclAllReduce(const void* send, void* recv, size_t count,
                                       ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                       ncclTestStream_t stream);
extern "C" ncclResult_t pncclReduceScatter(const void* send, void* recv, size_t count,
                                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                           ncclTestStream_t stream);

namespace onebit::testing::nccl {
namespace {

bool IsValid(const ncclCollConfig_t* config) {
  constexpr size_t kLeastSize = 64;  // of 2.31
  return config == nullptr || (config->size >= kLeastSize && config->magic == 0xcafebeef);
}

}  // namespace

ONEBIT_TEST_NCCL_FUNCTION(ncclResult_t, ncclAlltoAll, const void* send, void* recv, size_t count,
                          ncclDataType_t type, ncclComm_t comm, ncclTestStream_t stream) {
  int ranks = 0;
  ncclResult_t result = pncclCommCount(comm, &ranks);
  if (result != ncclSuccess) return result;
  ++counters.all_to_alls;
  const size_t bytes = count * BytesOf(type);
  result = pncclGroupStart();
  for (int peer = 0; peer < ranks && result == ncclSuccess; ++peer) {
    const size_t at = static_cast<size_t>(peer) * bytes;
    result =
        pncclSend(static_cast<const std::byte*>(send) + at, bytes, ncclInt8, peer, comm, stream);
    if (result != ncclSuccess) break;
    result = pncclRecv(static_cast<std::byte*>(recv) + at, bytes, ncclInt8, peer, comm, stream);
  }
  const ncclResult_t end = pncclGroupEnd();
  return result == ncclSuccess ? end : result;
}

ONEBIT_TEST_NCCL_FUNCTION(ncclResult_t, ncclAllReduceConfig, const void* send, void* recv,
                          size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                          ncclTestStream_t stream, const ncclCollConfig_t* config) {
  if (!IsValid(config)) return ncclInvalidArgument;
  ++counters.configured;
  return pncclAllReduce(send, recv, count, type, op, comm, stream);
}

ONEBIT_TEST_NCCL_FUNCTION(ncclResult_t, ncclReduceScatterConfig, const void* send, void* recv,
                          size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                          ncclTestStream_t stream, const ncclCollConfig_t* config) {
  if (!IsValid(config)) return ncclInvalidArgument;
  ++counters.configured;
  return pncclReduceScatter(send, recv, count, type, op, comm, stream);
}

ONEBIT_TEST_NCCL_FUNCTION(ncclResult_t, ncclAllGatherConfig, const void* send, void* recv,
                          size_t count, ncclDataType_t type, ncclComm_t comm,
                          ncclTestStream_t stream, const ncclCollConfig_t* config) {
  if (!IsValid(config)) return ncclInvalidArgument;
  ++counters.configured;
  return pncclAllGather(send, recv, count, type, comm, stream);
}

}  // namespace onebit::testing::nccl
