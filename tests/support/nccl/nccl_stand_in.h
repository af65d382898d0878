// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A stand-in for NCCL (libnccl.so.2), with functions that let tests inspect it and make it fail.
//
// It runs NCCL code on machines without a GPU. Ranks are threads of one process or of several, each
// with a device of the stand-in for CUDA. The process that makes a unique id runs what the ranks of
// its communicator do together: once it has ended, the others hang until they abort. It behaves
// like NCCL in order, groups, errors, non-blocking communicators, first messages that wait for
// their peer, first collectives that wait for all ranks, and graph capture. It is strict where NCCL
// is undefined: uses of a handle after its end, or by two threads at once, are counted; sizes that
// do not match are an asynchronous error; a group that mixes blocking and non-blocking
// communicators is refused.
//
// A test links onebit_nccl_stand_in and calls NCCL through this header, which declares what tests
// need under NCCL's names. The folder ONEBIT_NCCL_STAND_INS contains libnccl-2.10.so and
// libnccl-2.9.so, which lack later functions.
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

typedef enum {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt64 = 4,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9
} ncclDataType_t;

typedef enum { ncclSum = 0, ncclMax = 2, ncclMin = 3, ncclAvg = 4 } ncclRedOp_t;

// The fields that the stand-in reads. A caller's structure may be longer, or shorter from `unused`
// on.
typedef struct {
  size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
  int cgaClusterSize;
} ncclConfig_t;

// NCCL 2.32 has it, and the calls that take it; so does the newest stand-in.
typedef struct ncclConfigExt {
  struct ncclConfigExt* next;
  struct {
    int vendorId;
    int optionId;
  } key;
  union {
    int i;
    const char* s;
    void* raw;
  } val;
} ncclConfigExt_t;
typedef struct {
  size_t size;
  unsigned magic;
  unsigned version;
  ncclConfigExt_t* ext;
  int minCTAs;
  int maxCTAs;
  int nvlsCTAs;
  int cgaClusterSize;
  const char* algSelection;
  int forceAlgSelection;
  int CTAPolicy;
  uint64_t userProfilerTag;
  void* launchCompletionEvent;
} ncclCollConfig_t;

ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                           ncclConfig_t* config);
ncclResult_t ncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                            ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags);
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
ncclResult_t ncclReduceScatter(const void* send, void* recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, ncclTestStream_t stream);
ncclResult_t ncclAllReduceConfig(const void* send, void* recv, size_t count, ncclDataType_t type,
                                 ncclRedOp_t op, ncclComm_t comm, ncclTestStream_t stream,
                                 const ncclCollConfig_t* config);
ncclResult_t ncclReduceScatterConfig(const void* send, void* recv, size_t count,
                                     ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                     ncclTestStream_t stream, const ncclCollConfig_t* config);
ncclResult_t ncclAllGather(const void* send, void* recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, ncclTestStream_t stream);
ncclResult_t ncclAllGatherConfig(const void* send, void* recv, size_t count, ncclDataType_t type,
                                 ncclComm_t comm, ncclTestStream_t stream,
                                 const ncclCollConfig_t* config);
ncclResult_t ncclAlltoAll(const void* send, void* recv, size_t count, ncclDataType_t type,
                          ncclComm_t comm, ncclTestStream_t stream);
ncclResult_t ncclBroadcast(const void* send, void* recv, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, ncclTestStream_t stream);

// Lets the next `times` calls of `function` ("ncclGroupEnd") return `result` without doing
// anything. One rule per function; times 0 removes it.
void onebitTestNcclFail(const char* function, unsigned times, ncclResult_t result);
// Gives every live communicator of a device an asynchronous error, as NCCL's own threads do.
void onebitTestNcclBreak(int device, ncclResult_t error, const char* text);
// Changes a byte at the end of the message that communicators of a device receive after `skip`
// others. Its receiver continues only when all other ranks are as far, so the consequences of the
// damage are deterministic. All ranks must be in this process.
void onebitTestNcclDamage(int device, unsigned skip);
// If 1, every ncclCommRevoke waits before it does anything, until this is called with 0.
void onebitTestNcclHoldRevoke(int is_held);
// Ends every wait for ranks in ncclCommInitRank with ncclSystemError.
void onebitTestNcclEndInits(void);

// Frees communicators that were revoked and not ended, as the end of a process does. Returns their
// number.
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
  uint64_t all_to_alls;     // calls of ncclAlltoAll
  uint64_t configured;      // calls with a configuration, which are counted as plain ones as well
  uint64_t after_end;       // uses of a handle after its end
  uint64_t at_a_time;       // uses of a handle while another thread is in a call with it
  uint64_t freed_in_call;   // aborts of a communicator while another thread is in a call with it
  uint64_t freed_in_graph;  // ends of a revoked communicator with calls in a graph
};
void onebitTestNcclGetCounts(onebitTestNcclCounts* counts);
// Bytes that the ranks of this process have sent to others: the payload of messages, and what
// collectives send as rings (a broadcast: what its root sends).
uint64_t onebitTestNcclWireBytes(void);
// Calls of ncclAllReduce, for programs that include NCCL's own header.
uint64_t onebitTestNcclAllReduces(void);
// Depth of the calling thread's groups.
int onebitTestNcclGroupDepth(void);

}  // extern "C"
