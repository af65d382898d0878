// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A stand-in for NCCL (libnccl.so.2), and how tests look into it and make it fail.
//
// It exists so that code for NCCL runs where no GPU is. Ranks are threads of one process, each with
// a device of the stand-in for CUDA. It does what NCCL does as far as order, groups, errors,
// communicators that do not block, first messages that wait for their peer and first collectives
// that wait for all, and graph capture go. It is strict where NCCL is undefined: a handle that is
// used after its end, or by two threads at a time, is counted; sizes that do not match are an
// asynchronous error; communicators that block and others in one group are refused.
//
// A test links onebit_nccl_stand_in and calls NCCL by this header, which declares what it needs by
// NCCL's names. ONEBIT_NCCL_STAND_INS is the folder of libnccl-2.10.so and libnccl-2.9.so, the same
// without what came later.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

typedef struct ncclComm* ncclComm_t;
typedef struct CUstream_st* ncclTestStream_t;  // NCCL's cudaStream_t

typedef struct {
  char internal[128];
} ncclUniqueId;

typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7
} ncclResult_t;

typedef enum { ncclInt8 = 0, ncclFloat16 = 6, ncclFloat32 = 7, ncclBfloat16 = 9 } ncclDataType_t;

typedef enum { ncclSum = 0, ncclAvg = 4 } ncclRedOp_t;

// The fields that the stand-in looks at; a caller's may be longer or, from `unused` on, shorter.
typedef struct {
  size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
  int cgaClusterSize;
} ncclConfig_t;

ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error);
ncclResult_t ncclCommCount(ncclComm_t comm, int* count);
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank);
ncclResult_t ncclCommCuDevice(ncclComm_t comm, int* device);
const char* ncclGetErrorString(ncclResult_t result);
const char* ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclSend(const void* buffer, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, ncclTestStream_t stream);
ncclResult_t ncclRecv(void* buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      ncclTestStream_t stream);
ncclResult_t ncclAllReduce(const void* send, void* recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, ncclTestStream_t stream);
ncclResult_t ncclBroadcast(const void* send, void* recv, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, ncclTestStream_t stream);

// Lets the next `times` calls of `function` ("ncclGroupEnd") return `result` after doing nothing.
// One rule per function; times 0 removes it.
void onebitTestNcclFail(const char* function, unsigned times, ncclResult_t result);
// Gives every live communicator of a device an asynchronous error, as NCCL's own threads do.
void onebitTestNcclBreak(int device, ncclResult_t error, const char* text);
// Changes a byte at the end of the message that communicators of a device receive after `skip`
// others. Its receiver goes on when all other ranks are as far: what follows from the damage is no
// matter of luck.
void onebitTestNcclDamage(int device, unsigned skip);
// 1: every ncclCommRevoke waits, before it does anything, until this is called with 0.
void onebitTestNcclHoldRevoke(int is_held);
// Ends every wait for ranks in ncclCommInitRank, with ncclSystemError.
void onebitTestNcclEndInits(void);

// Frees what was revoked and not ended, as the end of a process does. Returns how many that were.
unsigned onebitTestNcclFreeRevoked(void);

struct onebitTestNcclCounts {
  uint64_t live_comms;      // created and neither destroyed nor aborted
  uint64_t created;         // communicators
  uint64_t destroyed;       // by ncclCommDestroy
  uint64_t finalized;       // by ncclCommFinalize
  uint64_t aborted;         // by ncclCommAbort
  uint64_t revoked;         // by ncclCommRevoke
  uint64_t sends;           // calls of ncclSend
  uint64_t all_reduces;     // calls of ncclAllReduce
  uint64_t after_end;       // uses of a handle after its end
  uint64_t at_a_time;       // uses of a handle while another thread is in a call with it
  uint64_t freed_in_call;   // aborts of one that another thread is in a call with
  uint64_t freed_in_graph;  // ends of one that was revoked, and in calls of which a graph was made
};
void onebitTestNcclGetCounts(onebitTestNcclCounts* counts);
// Depth of the calling thread's groups.
int onebitTestNcclGroupDepth(void);

}  // extern "C"
