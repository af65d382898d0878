// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Reductions with a configuration, which NCCL has since 2.31. They are those without one.
#include "tests/support/nccl/stand_in_comm.h"

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

}  // namespace onebit::testing::nccl
