/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * onebit: collectives at about one bit per element, with error feedback.
 *
 * The shape is NCCL's: every rank calls the same function with the same counts in the same order.
 * What is new is one argument, the compressor, which says how a tensor is compressed and keeps what
 * compression has lost so far, to send it later.
 *
 *   onebitComm_t comms[4];
 *   onebitCommInitAll(comms, 4, NULL);                  // four ranks in this process
 *   // then, on the thread of each rank r:
 *   onebitCompressor_t compressor;
 *   onebitCompressorCreate(&compressor, comms[r], count, onebitFloat32, NULL);
 *   onebitAllReduce(gradients, gradients, count, onebitFloat32, onebitAvg, compressor, comms[r],
 *                   NULL);
 *
 * Sections: results, versions and log - communicators - compressors - collectives. This file
 * includes group.h, many collectives in few messages; memory.h, buffers in the memory of CUDA
 * devices; parts.h, collectives with a part for every rank; setting.h, the settings there are;
 * state.h, what compressors remember, saved and loaded; stream.h, calls that go on while the caller
 * computes; and sync.h, steps that send nothing.
 *
 * Ranks that are processes, on one host or several, join by what their launcher told them:
 *
 *   onebitComm_t comm;
 *   onebitCommInitEnv(&comm, NULL);                     // onebit_run -n 4 ./program, torchrun, ...
 *
 * Facts that hold everywhere
 *   - Element types: onebitFloat32, onebitFloat16, onebitBfloat16. Sums and residuals are fp32.
 *   - `count` is in elements and may be 0. Buffers need the alignment of their element type, no
 *     other.
 *   - After an allreduce, an all-gather or a broadcast every rank holds the same bytes in its
 *     output.
 *   - Nothing waits for ever: a collective that makes no progress fails after the communicator's
 *     time-out. After an error the communicator refuses work and must be destroyed. Compressors
 *     keep their residuals, and the content of the output buffer is undefined.
 *   - A handle is used by one thread at a time, except where a function says otherwise. A second
 *     thread inside a call on the same handle gets onebitInvalidUsage.
 *   - A child that a process forks has nothing to do with its parent's communicators: it may
 * destroy its copies, which has no effect on the parent, and nothing else.
 *   - Config and stats structures begin with their size, so that they can grow; a config also with
 *     the version of its header, and one that is newer than the library by a major version is
 *     refused.
 */
#ifndef ONEBIT_H_
#define ONEBIT_H_

#include <stddef.h>
#include <stdint.h>

#define ONEBIT_MAJOR 0
#define ONEBIT_MINOR 1
#define ONEBIT_PATCH 0
/* One number to compare: 10000 * major + 100 * minor + patch. */
#define ONEBIT_VERSION_CODE (10000 * ONEBIT_MAJOR + 100 * ONEBIT_MINOR + ONEBIT_PATCH)

#if defined(__GNUC__)
#define ONEBIT_API __attribute__((visibility("default")))
#else
#define ONEBIT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ results, versions and log */

/** What a call returns. 0 to 8 are NCCL's values; onebit's own begin at 100. */
typedef enum {
  onebitSuccess = 0,
  onebitUnhandledCudaError = 1, /* a CUDA call failed */
  onebitSystemError = 2,        /* the operating system refused something; the text has errno */
  onebitInternalError = 3,      /* a bug in onebit or memory corruption */
  onebitInvalidArgument = 4,    /* an argument is wrong whatever the state */
  onebitInvalidUsage = 5,       /* the call is wrong in this state, or by this thread */
  onebitRemoteError = 6,        /* another rank failed; the text names it and its cause */
  onebitInProgress = 7,
  onebitTimeout = 8,    /* the communicator's deadline passed; the text names who was late */
  onebitMismatch = 100, /* ranks made different calls, or a saved state is of something else; the
                           text shows both sides */
  onebitCorrupt = 101,  /* a packet, or a saved state, was damaged: its checksum or form is wrong */
  onebitPeerLost = 102, /* a peer's process or host is gone */
  onebitNotAuthenticated = 103, /* the other side does not know the job's secret, or we do not */
  onebitDetached = 104,         /* the compressor's communicator was destroyed: rebind it */
  onebitAborted = 105,          /* onebitCommAbort was called on this communicator */
  onebitOutOfMemory = 106       /* an allocation failed; nothing was changed */
} onebitResult_t;

/** Element types, with NCCL's values. */
typedef enum { onebitFloat16 = 6, onebitFloat32 = 7, onebitBfloat16 = 9 } onebitDataType_t;

/** Reductions, with NCCL's values. */
typedef enum { onebitSum = 0, onebitAvg = 4 } onebitRedOp_t;

typedef struct onebitComm_s* onebitComm_t;
typedef struct onebitCompressor_s* onebitCompressor_t;
/**
 * Orders calls: one of onebitStreamCreate, with buffers in memory of a CUDA device a cudaStream_t
 * (memory.h), or NULL, which makes a call block.
 */
typedef struct CUstream_st* onebitStream_t;

/** "Take the default" for integer members of config structures. */
#define ONEBIT_UNDEF_INT INT32_MIN

/**
 * Name of a result, e.g. "remote error". Never NULL; static storage.
 * Thread safety: any thread.
 */
ONEBIT_API const char* onebitGetErrorString(onebitResult_t result);

/**
 * Text of the last error: rank, peer, cause, and what to do.
 *
 * @param comm NULL: of the last call of this thread that failed. Otherwise: of the error that put
 *             this communicator out of use, "" if there is none.
 * @return a text that stays valid until the next onebit call of this thread. Never NULL.
 *
 * Thread safety: any thread.
 */
ONEBIT_API const char* onebitGetLastError(onebitComm_t comm);

/**
 * Version of the library in use, as ONEBIT_VERSION_CODE.
 * @param version receives the number; must not be NULL.
 * @return onebitInvalidArgument  `version` is NULL.
 *
 * Thread safety: any thread.
 */
ONEBIT_API onebitResult_t onebitGetVersion(int* version);

/** Severity of a log line, NCCL's levels (ONEBIT_DEBUG=VERSION, WARN, INFO or TRACE). */
typedef enum {
  onebitLogNone = 0,
  onebitLogVersion = 1,
  onebitLogWarn = 2,
  onebitLogInfo = 3,
  onebitLogTrace = 4
} onebitLogLevel_t;

/** Receives one line of the log, without newline. Called from any thread, by one at a time; must
 * not call onebit. */
typedef void (*onebitLogCallback_t)(onebitLogLevel_t level, const char* text, void* argument);

/**
 * Sends the log to `callback` instead of stderr (or ONEBIT_DEBUG_FILE). The level still filters.
 *
 * @param callback NULL restores the default.
 * @param argument handed to every call of `callback`; not owned.
 *
 * Thread safety: any thread; when it returns, the former callback is not running any more.
 */
ONEBIT_API onebitResult_t onebitSetLogCallback(onebitLogCallback_t callback, void* argument);

/* ------------------------------------------------------------------------------ communicators */

/** Where the ranks of a new communicator meet, and the secret that lets them in. Keep it as you
 * would keep a password: who has it can join. */
typedef struct {
  char internal[128];
} onebitUniqueId;

/**
 * Parameters of a communicator of processes. Start from ONEBIT_CONFIG_INIT and set what differs;
 * members left at NULL or ONEBIT_UNDEF_INT take the default given here. As in NCCL the environment
 * wins: where the variable named is set, the member is not looked at.
 */
typedef struct {
  size_t size;              /* sizeof(onebitConfig_t) */
  uint32_t magic;           /* ONEBIT_CONFIG_MAGIC */
  uint32_t version;         /* ONEBIT_VERSION_CODE */
  const char* transport;    /* ONEBIT_TRANSPORT; default "ucx". Copied. Equal on all ranks */
  int32_t connectTimeoutMs; /* ONEBIT_CONNECT_TIMEOUT_MS; until all ranks must be there; default
                               60000 */
  int32_t heartbeatMs;   /* ONEBIT_HEARTBEAT_MS; between signs of life; default 1000. Equal on all
                            ranks */
  int32_t lossTimeoutMs; /* ONEBIT_LOSS_TIMEOUT_MS; of silence until a rank counts as lost, more
                            than heartbeatMs; default 15000. Equal on all ranks */
  int32_t collectiveTimeoutMs; /* ONEBIT_COLLECTIVE_TIMEOUT_MS; without progress until a collective
                                  fails; default 600000 */
} onebitConfig_t;

#define ONEBIT_CONFIG_INIT                                                                    \
  {                                                                                           \
    sizeof(onebitConfig_t), ONEBIT_CONFIG_MAGIC, ONEBIT_VERSION_CODE, NULL, ONEBIT_UNDEF_INT, \
        ONEBIT_UNDEF_INT, ONEBIT_UNDEF_INT, ONEBIT_UNDEF_INT                                  \
  }

/** What a communicator has done so far. */
typedef struct {
  size_t size;               /* sizeof(onebitCommStats_t) as the caller was compiled; in */
  uint64_t dense_calls;      /* collectives without a compressor that returned success */
  uint64_t compressed_calls; /* collectives with one that returned success */
  uint64_t nonfinite_calls;  /* of these, the ones that met a NaN or an infinity */
  uint64_t failed_calls;     /* collectives that began and failed; refused ones are not counted */
  uint64_t logical_bytes;    /* elements * element size of the larger buffer over all successful
                                collectives */
  uint64_t bytes_sent;       /* headers and payloads handed to the transport, counted there */
  uint64_t messages_sent;
  uint64_t codec_ns;        /* the callers' time inside compression, reduction and decoding */
  uint64_t call_ns;         /* time inside collectives, waiting included */
  uint64_t compute_threads; /* threads that compute beside the caller, so far */
} onebitCommStats_t;

/**
 * Makes `n` communicators that form one group inside this process (transport `local`).
 *
 * Each is to be driven by a thread of its own: collectives block until all ranks have made them. A
 * thread that makes the call of one rank while no thread makes those of the others gets
 * onebitTimeout, or at once onebitInvalidUsage if the process has no other thread. Memory: about 10
 * KiB per pair of ranks.
 *
 * @param comms   receives n handles, comms[r] being rank r; not NULL. Written only on success.
 * @param n       ranks, 1 to 1024.
 * @param devices NULL, or n ordinals of CUDA devices: calls of rank r on device memory are on
 *                devices[r] (memory.h).
 * @return onebitInvalidArgument  NULL `comms`, `n` out of range, or no such device.
 * @return onebitInvalidUsage     `devices` without CUDA, a setting (ONEBIT_*) is unknown or does
 *                                not parse, or the log file ONEBIT_DEBUG_FILE cannot be opened; the
 *                                text names it.
 * @return onebitOutOfMemory      not enough memory.
 *
 * Thread safety: any thread. Mirrors ncclCommInitAll.
 */
ONEBIT_API onebitResult_t onebitCommInitAll(onebitComm_t* comms, int n, const int* devices);

/**
 * Makes an id for one communicator of processes: call it on one rank, hand the 128 bytes to the
 * others by a channel nobody else can read, and call onebitCommInitRank on all.
 *
 * This process opens a TCP port on the interface that ONEBIT_SOCKET_IFNAME selects and keeps it
 * open until all ranks have joined. While the communicator lives, every rank has a connection to
 * this process, over which ranks tell each other that they are alive; if this process ends before
 * the others are done, they get an error.
 *
 * @param id receives the id; not NULL. Good for one communicator.
 * @return onebitInvalidArgument  `id` is NULL.
 * @return onebitInvalidUsage     a setting is in error, or ONEBIT_SOCKET_IFNAME matches no
 *                                interface; the text lists the interfaces there are.
 * @return onebitSystemError      no port could be opened; the text has address and errno.
 *
 * Thread safety: any thread. Mirrors ncclGetUniqueId.
 */
ONEBIT_API onebitResult_t onebitGetUniqueId(onebitUniqueId* id);

/**
 * Joins a communicator of `nranks` processes. Collective: returns when all ranks have joined, or
 * with an error that names the ranks that did not come in time. Threads of one process may be
 * ranks, too.
 *
 * Every connection proves by a keyed challenge that it knows the secret of `id`; what is compared
 * between ranks at this point: library version, nranks, transport, and the settings that must be
 * equal. src/comm/SECURITY.md says what is protected and what is not.
 *
 * @param comm   receives the handle; not NULL. Written only on success.
 * @param nranks ranks, 1 to 65536; equal on all.
 * @param id     of onebitGetUniqueId; the same on all.
 * @param rank   0 to nranks - 1, each once.
 * @return onebitInvalidArgument  NULL `comm`, `rank` or `nranks` out of range, an `id` that is
 *                                none.
 * @return onebitInvalidUsage     a setting is in error.
 * @return onebitMismatch         ranks differ in nranks or in a setting, or two have the same rank;
 *                                the text names the setting, both ranks and values.
 * @return onebitTimeout          not all ranks joined within ONEBIT_CONNECT_TIMEOUT_MS; the text
 *                                names the missing ones, or the address that could not be reached.
 * @return onebitNotAuthenticated who listens at the address of `id` does not know its secret.
 * @return onebitRemoteError      another rank failed while it joined; the text has its cause.
 * @return onebitSystemError      the operating system refused something; the text has errno.
 * @return onebitOutOfMemory      not enough memory.
 *
 * Thread safety: any thread. Mirrors ncclCommInitRank.
 */
ONEBIT_API onebitResult_t onebitCommInitRank(onebitComm_t* comm, int nranks, onebitUniqueId id,
                                             int rank);

/**
 * onebitCommInitRank with parameters.
 *
 * @param config NULL: all defaults.
 * @return onebitInvalidArgument  also: a member of `config` is out of range; the text names it.
 *
 * Everything else as for onebitCommInitRank. Mirrors ncclCommInitRankConfig.
 */
ONEBIT_API onebitResult_t onebitCommInitRankConfig(onebitComm_t* comm, int nranks,
                                                   onebitUniqueId id, int rank,
                                                   const onebitConfig_t* config);

/**
 * Joins the communicator of all processes of this job, as the launcher's environment describes it.
 *
 * Rank and number of ranks: RANK and WORLD_SIZE (torchrun, onebit_run), OMPI_COMM_WORLD_RANK and
 * _SIZE (Open MPI), PMI_RANK and PMI_SIZE (MPICH), SLURM_PROCID and SLURM_NTASKS. Where they meet:
 * ONEBIT_RENDEZVOUS (host:port, or the path of a file all ranks see), else MASTER_ADDR with
 * MASTER_PORT + 1, else the first host of the Slurm job, else, if all ranks are on one host, a file
 * named by the job. The secret: ONEBIT_SECRET or ONEBIT_SECRET_FILE; a rendezvous file holds one of
 * its own. A start beyond this host without a secret works, with one warning. With transport `mpi`
 * and no ONEBIT_RENDEZVOUS the ranks are those of MPI_COMM_WORLD, and MPI tells them where to meet:
 * see onebitCommInitFrom.
 *
 * One communicator at a time: calling it again makes another one once all ranks have called it.
 *
 * @param comm   receives the handle; not NULL. Written only on success.
 * @param config NULL: all defaults.
 * @return onebitInvalidUsage  variables are missing or contradict each other; the text names them.
 *
 * Other errors and thread safety as for onebitCommInitRankConfig.
 */
ONEBIT_API onebitResult_t onebitCommInitEnv(onebitComm_t* comm, const onebitConfig_t* config);

/**
 * Makes a communicator of the ranks of one of another library, which carries the bytes, too.
 *
 * Collective on that communicator, in the order of its ranks. The library works on a duplicate, so
 * `native` stays the caller's. Its rank 0 opens a port as onebitGetUniqueId does and broadcasts the
 * 128 bytes over `native`, so no other meeting place is needed. With MPI use onebitCommInitMpi of
 * onebit/mpi.h and with NCCL onebitCommInitNccl of onebit/nccl.h, which know the types.
 *
 * @param comm        receives the handle; not NULL. Written only on success.
 * @param transport   that of the other library: "mpi" or "nccl".
 * @param native      points to the other library's handle, an MPI_Comm or an ncclComm_t, which is
 *                    read before the call returns. NULL, with "mpi" only: MPI_COMM_WORLD, and MPI
 *                    is started if it is not running.
 * @param nativeBytes size of that handle.
 * @param config      NULL: all defaults. Its transport does not count.
 * @return onebitInvalidArgument  NULL `comm` or `transport`, an unknown transport, or a `native`
 *                                that cannot be used; the text says why.
 * @return onebitInvalidUsage     the transport joins no communicator of another library, the other
 *                                library is not in a state for it (the text says which), or
 *                                ONEBIT_TRANSPORT names another transport.
 * @return onebitTimeout          not all ranks came within ONEBIT_CONNECT_TIMEOUT_MS.
 *
 * Other errors as for onebitCommInitRankConfig. Thread safety: any thread that may call the other
 * library.
 */
ONEBIT_API onebitResult_t onebitCommInitFrom(onebitComm_t* comm, const char* transport,
                                             const void* native, size_t nativeBytes,
                                             const onebitConfig_t* config);

/** `color` of a rank that takes part in a split and wants no communicator. NCCL's value. */
#define ONEBIT_SPLIT_NOCOLOR (-1)

/**
 * Makes new communicators of the ranks of `comm`: those with equal `color` form one, in the order
 * of their keys, equal keys in the order of their ranks. Collective over `comm`, which stays as it
 * is.
 *
 * @param comm    in order; of any kind. The new communicators use its transport.
 * @param color   0 or more; or ONEBIT_SPLIT_NOCOLOR: this rank becomes part of none.
 * @param key     any number.
 * @param newcomm receives the handle, NULL for ONEBIT_SPLIT_NOCOLOR; not NULL. Written only on
 *                success.
 * @param config  NULL: as `comm` was made. Otherwise, as for onebitCommInitRankConfig, the
 *                environment, then its members, then the defaults; `transport` may only be NULL or
 *                that of `comm`.
 * @return onebitInvalidArgument  NULL `comm` or `newcomm`, a member of `config` out of range, or
 *                                the color of some rank is below ONEBIT_SPLIT_NOCOLOR (told on all
 *                                ranks).
 * @return onebitMismatch         a rank rebinds a compressor meanwhile, or settings of the new
 *                                ranks differ.
 * @return onebitTimeout          a rank did not come within ONEBIT_CONNECT_TIMEOUT_MS, e.g. because
 *                                it is in a collective; `comm` is out of use then.
 *
 * Other errors are those of onebitCommInitRank and of a communicator that has failed. Thread
 * safety: one thread at a time per `comm`. Mirrors ncclCommSplit.
 */
ONEBIT_API onebitResult_t onebitCommSplit(onebitComm_t comm, int color, int key,
                                          onebitComm_t* newcomm, const onebitConfig_t* config);

/** `shrinkFlags`, with NCCL's values. */
#define ONEBIT_SHRINK_DEFAULT 0 /* no call is inside `comm` */
#define ONEBIT_SHRINK_ABORT 1   /* onebitCommAbort comes first */

/**
 * Makes a communicator of the ranks of `comm` that remain, also when `comm` has failed: how a job
 * goes on after it has lost a rank. Collective over the ranks that remain; new ranks are in the
 * order of the old ones.
 *
 *   if (onebitAllReduce(..., compressor, comm, NULL) == onebitPeerLost) {
 *     onebitCommShrink(comm, NULL, 0, &newcomm, NULL, ONEBIT_SHRINK_ABORT);
 *     onebitCompressorRebind(compressor, newcomm, &source);
 *     onebitBroadcast(parameters, parameters, ..., source, newcomm, NULL);
 *     onebitCommDestroy(comm);
 *   }
 *
 * Processes meet at a port that each of them has held open since `comm` was made, because the
 * control channel may be what was lost. If a rank that should remain does not come, call it again
 * with that rank in the list: an attempt that failed leaves nothing behind. One rank may get an
 * error where others succeed, if it is the last message that is lost; so keep `comm` until a first
 * collective on `newcomm` has succeeded, and otherwise shrink `comm` again.
 *
 * @param comm              must still be destroyed. One that had not failed stays in use, unless
 *                          ONEBIT_SHRINK_ABORT ends it.
 * @param excludeRanksList  ranks that do not take part, equal on all that do; any order. May be
 *                          NULL with a count of 0: then the rank is excluded whose loss put `comm`
 *                          out of use, if that is why it failed, else none. A rank that left by
 *                          onebitCommDestroy, and a second one that was lost, must be named.
 * @param excludeRanksCount entries of the list.
 * @param newcomm           receives the handle; not NULL. Written only on success.
 * @param config            as for onebitCommSplit.
 * @param shrinkFlags       ONEBIT_SHRINK_DEFAULT or ONEBIT_SHRINK_ABORT.
 * @return onebitInvalidArgument  a NULL argument, flags or a rank that cannot be.
 * @return onebitInvalidUsage     this rank is excluded, by the list or because the others have
 *                                given it up; another thread is inside a call on `comm`; or the
 *                                transport cannot go on without a rank (mpi).
 * @return onebitMismatch         ranks differ in what they exclude, and the time is over.
 * @return onebitAborted          another thread called onebitCommAbort meanwhile.
 * @return onebitTimeout          not all came within ONEBIT_CONNECT_TIMEOUT_MS; the text names who
 *                                is missing.
 *
 * Other errors are those of onebitCommInitRank. Thread safety: one thread at a time per `comm`;
 * with ONEBIT_SHRINK_ABORT another may be inside a collective, which returns onebitAborted. Mirrors
 * ncclCommShrink (NCCL 2.27).
 */
ONEBIT_API onebitResult_t onebitCommShrink(onebitComm_t comm, const int* excludeRanksList,
                                           int excludeRanksCount, onebitComm_t* newcomm,
                                           const onebitConfig_t* config, int shrinkFlags);

/**
 * Says that this rank is done with `comm` and waits for all ranks to say so. Afterwards only
 * Destroy and questions are left. Optional: Destroy alone is right, too, once no rank can be inside
 * a collective any more.
 *
 * @return onebitInvalidArgument  `comm` is NULL.
 * @return onebitInvalidUsage     another thread is inside a call on `comm`, or it was finalized
 *                                before.
 * @return onebitTimeout          a rank did not come within ONEBIT_COLLECTIVE_TIMEOUT_MS.
 * @return the error that put `comm` out of use, if it has failed before.
 * @return onebitRemoteError      another rank failed; the text has its cause.
 *
 * Thread safety: one thread at a time per `comm`. Mirrors ncclCommFinalize; blocks.
 */
ONEBIT_API onebitResult_t onebitCommFinalize(onebitComm_t comm);

/**
 * Frees a communicator. Local: waits for no other rank; a rank that is still in a collective with
 * this one gets onebitRemoteError. Once rank 0 has left, the others hear no more of each other's
 * ends before a deadline: where ranks do not end together, onebitCommFinalize first. Compressors of
 * it become detached and keep their residuals.
 *
 * @param comm NULL is allowed and does nothing.
 * @return onebitInvalidUsage  another thread is inside a call on `comm` (call Abort first).
 *
 * Thread safety: one thread; no other thread may use `comm` any more.
 */
ONEBIT_API onebitResult_t onebitCommDestroy(onebitComm_t comm);

/**
 * Stops a communicator: a call that is blocked in it, on any rank, returns an error within a
 * second. Afterwards buffers of interrupted calls are the caller's again, and only Shrink, Destroy,
 * GetAsyncError, GetStats, Count, UserRank and GetLastError make sense.
 *
 * Unlike ncclCommAbort the handle stays valid until onebitCommDestroy, so that a watchdog and the
 * trainer may both call it.
 *
 * @return onebitInvalidArgument  `comm` is NULL.
 *
 * Thread safety: any thread, any number of times, also while another thread is inside a call.
 */
ONEBIT_API onebitResult_t onebitCommAbort(onebitComm_t comm);

/**
 * The error that put `comm` out of use, onebitSuccess while there is none.
 *
 * @param result receives the error; not NULL.
 * @return onebitInvalidArgument  an argument is NULL.
 *
 * Thread safety: any thread.
 */
ONEBIT_API onebitResult_t onebitCommGetAsyncError(onebitComm_t comm, onebitResult_t* result);

/** Number of ranks. @return onebitInvalidArgument an argument is NULL. Thread safety: any thread.
 */
ONEBIT_API onebitResult_t onebitCommCount(onebitComm_t comm, int* count);

/** This rank. @return onebitInvalidArgument an argument is NULL. Thread safety: any thread. */
ONEBIT_API onebitResult_t onebitCommUserRank(onebitComm_t comm, int* rank);

/**
 * Counters since creation.
 *
 * @param stats `size` must be set; members beyond the library's own size are left alone.
 * @return onebitInvalidArgument  an argument is NULL, or `size` is too small to be one of ours.
 *
 * Thread safety: any thread; exact when no call is running.
 */
ONEBIT_API onebitResult_t onebitCommGetStats(onebitComm_t comm, onebitCommStats_t* stats);

/* -------------------------------------------------------------------------------- compressors */

/** How a tensor is compressed. */
typedef enum {
  onebitModeSign = 0, /* signs and scales, nothing remembered; does not converge in general */
  onebitModeEf = 1    /* with error feedback: what was lost is added to the next call's input */
} onebitMode_t;

/** The scale of a block z of N elements. */
typedef enum {
  onebitScaleL2 = 0, /* ||z||_2 / sqrt(N): 1-bit Adam (Tang et al. 2021, section 3) and DeepSpeed */
  onebitScaleL1 =
      1 /* ||z||_1 / N: EF-SignSGD (Karimireddy et al. 2019), 0/1 Adam (Lu et al. 2023) */
} onebitScaleRule_t;

/** Collective a compressor is for. Its `count` is what that collective's call takes. */
typedef enum {
  onebitCollectiveAllReduce = 0,
  onebitCollectiveReduceScatter = 1,
  onebitCollectiveAllGather = 2,
  onebitCollectiveAllToAll = 3,
  onebitCollectiveAllToAllv = 4
} onebitCollective_t;

/** `block` of a config: one scale per tensor and rank, as in the papers. */
#define ONEBIT_BLOCK_TENSOR 0

/**
 * Parameters of a compressor. Start from ONEBIT_COMPRESSOR_CONFIG_INIT and set what differs;
 * members left at ONEBIT_UNDEF_INT take the default given here. All members that change messages
 * must be equal on all ranks, and for a tensor with one exchange (onebitCompressorStats_t) all
 * members; a difference is reported by the first call, on every rank. With one exchange every rank
 * keeps the server residual of the whole tensor, so that a Reset on some of the ranks is reported,
 * too.
 */
typedef struct {
  size_t size;        /* sizeof(onebitCompressorConfig_t) */
  uint32_t magic;     /* ONEBIT_CONFIG_MAGIC */
  uint32_t version;   /* ONEBIT_VERSION_CODE */
  int32_t mode;       /* onebitMode_t; default onebitModeEf, which an all-to-all-v has not */
  int32_t collective; /* onebitCollective_t; default onebitCollectiveAllReduce */
  int32_t scaleRule;  /* onebitScaleRule_t; default onebitScaleL2 */
  int32_t block; /* elements per scale, a multiple of 64, or ONEBIT_BLOCK_TENSOR; default 4096 */
  int32_t residualType;   /* onebitFloat32 (default) or, but for an all-gather with
                             onebitModeEf, onebitBfloat16 */
  int32_t transactional;  /* 1 (default): two generations, an error or a NaN loses nothing. 0: one;
                             then such a call resets the residuals, which the stats count */
  int32_t chunkAlignment; /* each rank's share is a multiple of this many elements, itself a
                             multiple of 8; default 64. Of an allreduce only */
  int32_t serverResidual; /* 1 (default). 0: error feedback on the worker side only, for comparison
                             with systems that do so; does not satisfy the telescoping identity.
                             Of an allreduce only */
  int64_t tensorId;       /* tells tensors apart in messages, so no two live compressors of a
                             communicator may share it; default (negative): the number of
                             compressors created on this communicator before */
  const uint8_t* mask;    /* NULL: all elements take part. Otherwise one bit per element, element i
                             being bit i mod 8 of byte i / 8; a clear bit takes the element out: its
                             output is 0 and it is in no scale. Copied. Equal on all ranks. With
                             a part for every rank, the bits of part r follow those of part r - 1
                             at once: n * count bits, of sendbuff in a reduce-scatter and an
                             all-to-all, of recvbuff in an all-gather. NULL for an all-to-all-v */
  int32_t memory; /* onebitMemory_t: where residuals lie, and the buffers of all calls; default
                     onebitMemoryHost */
  int32_t device; /* CUDA device, of onebitMemoryDevice only; default: the current one */
} onebitCompressorConfig_t;

#define ONEBIT_CONFIG_MAGIC 0x0b17c0f6u
#define ONEBIT_COMPRESSOR_CONFIG_INIT                                                             \
  {                                                                                               \
    sizeof(onebitCompressorConfig_t), ONEBIT_CONFIG_MAGIC, ONEBIT_VERSION_CODE, ONEBIT_UNDEF_INT, \
        ONEBIT_UNDEF_INT, ONEBIT_UNDEF_INT, ONEBIT_UNDEF_INT, ONEBIT_UNDEF_INT, ONEBIT_UNDEF_INT, \
        ONEBIT_UNDEF_INT, ONEBIT_UNDEF_INT, -1, NULL, ONEBIT_UNDEF_INT, ONEBIT_UNDEF_INT          \
  }

/** What a compressor has done so far. */
typedef struct {
  size_t size;              /* sizeof(onebitCompressorStats_t) as the caller was compiled; in */
  uint64_t epoch;           /* calls that committed new residuals (sign mode: successful calls) */
  uint64_t nonfinite_calls; /* calls that met a NaN or an infinity and changed nothing */
  uint64_t residual_resets; /* residuals lost: non-transactional error or NaN, and Reset */
  uint64_t residual_bytes;  /* memory held for residuals */
  uint32_t exchanges;       /* exchanges per call: 1 (small tensors) or 2; but for an allreduce
                               the second one is headers alone */
  uint32_t segments;        /* pieces of a chunk that travel on their own */
  uint64_t wire_bytes;      /* bytes a call makes this rank send, headers included (exact; in an
                               all-gather with onebitModeEf about every 16th call sends 8 more to
                               each rank; of an all-to-all-v those of the last call) */
  uint64_t is_detached;     /* 1 while its communicator is destroyed and it is bound to no other */
  uint64_t lost_elements; /* of the server residual, whose rank was gone at a rebind: they are 0 */
} onebitCompressorStats_t;

/**
 * Makes a compressor for one tensor of `count` elements, with residuals of zero.
 *
 * Memory for onebitModeEf and n ranks, per element: 4 bytes of worker and 4/n of server residual
 * (4 for small tensors that use one exchange), all twice when transactional; half of it with bf16
 * residuals. Reduce-scatter, all-gather and all-to-all: 4 bytes for each of n * count elements, no
 * server residual. Local: sends nothing; but give all ranks their compressors in the same order, or
 * set tensorId.
 *
 * @param compressor receives the handle; not NULL. Written only on success.
 * @param comm       its ranks take part in every call.
 * @param count      elements, as the calls will count them: of the tensor, or of a reduce-scatter,
 *                   all-gather or all-to-all of each rank's part; may be 0, and is for an
 *                   all-to-all-v.
 * @param datatype   element type of the calls.
 * @param config     NULL: all defaults.
 * @return onebitInvalidArgument  NULL handle, unknown type, a config member out of range, or the
 *                                tensorId of another compressor; the text names the member and what
 *                                it may be.
 * @return onebitInvalidUsage     another thread is inside a call on `comm`.
 * @return onebitOutOfMemory      not enough memory for the residuals.
 *
 * Thread safety: one thread at a time per `comm`.
 */
ONEBIT_API onebitResult_t onebitCompressorCreate(onebitCompressor_t* compressor, onebitComm_t comm,
                                                 size_t count, onebitDataType_t datatype,
                                                 const onebitCompressorConfig_t* config);

/**
 * Frees a compressor and its residuals. Works before and after its communicator was destroyed.
 *
 * @param compressor NULL is allowed and does nothing.
 * @return onebitInvalidUsage  a call is using it.
 *
 * Thread safety: one thread; no other thread may use `compressor` any more.
 */
ONEBIT_API onebitResult_t onebitCompressorDestroy(onebitCompressor_t compressor);

/**
 * Sets all residuals to zero and forgets the op of earlier calls. Counts as a lost residual if any
 * call had committed. Do it on all ranks between the same two calls; with one exchange the next
 * call reports onebitMismatch if some ranks did not.
 *
 * @return onebitInvalidArgument  `compressor` is NULL.
 * @return onebitInvalidUsage     a call is using it.
 *
 * Thread safety: one thread at a time per compressor.
 */
ONEBIT_API onebitResult_t onebitCompressorReset(onebitCompressor_t compressor);

/**
 * Takes a compressor over to another communicator, made of ranks of its own (onebitCommShrink,
 * onebitCommSplit), with its residuals. Collective over `newcomm`: each rank calls it for its
 * compressor of the same tensor, whether or not the old communicator was destroyed.
 *
 * If the last call failed on some ranks and succeeded on others, the epochs of these differ by one:
 * all take the highest. Ranks that roll forward have no output of that call, so results of
 * `source` have to be given to them, e.g. by onebitBroadcast of the parameters. `source` and epoch
 * are those of this tensor: with several tensors a step may have ended behind one of them, and the
 * epochs say which calls are not to be made again. onebitOptimizerRebind (optim.h) does all of
 * that.
 *
 * Worker residuals stay with their ranks. The server residual is cut anew among the ranks; the
 * parts of ranks that are gone become 0 and are counted in lost_elements. (With one exchange every
 * rank has all of it, and nothing is lost. The worker residual of a rank that is gone is gone in
 * any case.) For onebitSum the server residual is multiplied by the old number of ranks over the
 * new one, so that as much is pending as was. It sends about what a dense allreduce of `count`
 * elements does, in calls that the stats of `newcomm` count, and needs up to 8 MiB of memory
 * besides the new server residual.
 *
 * @param compressor stays as it is after an error, and can be rebound again, to `newcomm` or, if
 *                   that has failed, to its successor.
 * @param newcomm    in order.
 * @param source     receives a rank of `newcomm` that has the results of the last call, the same on
 *                   every rank; -1: none has, because who had them was lost before it could
 *                   hand them on. Not NULL.
 * @return onebitInvalidArgument  a NULL argument, or another compressor of `newcomm` has its
 *                                tensorId.
 * @return onebitInvalidUsage     the compressor is not for an allreduce: residuals of parts belong
 *                                to the ranks there were; make a new one.
 * @return onebitMismatch         the ranks' compressors differ, are not of the same communicator,
 *                                or have committed or reset different calls; the text shows both
 *                                sides. `newcomm` stays usable.
 * @return onebitRemoteError      another rank could not take part, or failed; the text has its
 *                                cause.
 * @return onebitOutOfMemory      not enough memory; nothing was changed.
 * @return onebitTimeout          a rank did not come within ONEBIT_CONNECT_TIMEOUT_MS.
 *
 * Other errors are those of onebitAllReduce. Thread safety: one thread at a time per `newcomm` and
 * per `compressor`.
 */
ONEBIT_API onebitResult_t onebitCompressorRebind(onebitCompressor_t compressor,
                                                 onebitComm_t newcomm, int* source);

/**
 * Replaces the mask. Residuals of elements that leave are dropped at the next call.
 * Do it on all ranks between the same two calls, with equal masks.
 *
 * @param mask as in the config; copied; NULL: all elements take part.
 * @return onebitInvalidArgument  `compressor` is NULL.
 * @return onebitInvalidUsage     a call is using it, or it is for an all-to-all-v and `mask` is not
 *                                NULL.
 * @return onebitOutOfMemory      not enough memory for the copy (a bit per element).
 *
 * Thread safety: one thread at a time per compressor.
 */
ONEBIT_API onebitResult_t onebitCompressorSetMask(onebitCompressor_t compressor,
                                                  const uint8_t* mask);

/**
 * Counters and facts. @return onebitInvalidArgument an argument is NULL or `size` too small.
 * Thread safety: one thread at a time per compressor.
 */
ONEBIT_API onebitResult_t onebitCompressorGetStats(onebitCompressor_t compressor,
                                                   onebitCompressorStats_t* stats);

/* -------------------------------------------------------------------------------- collectives */

/**
 * Reduces `count` elements over all ranks; with a compressor, sending one bit per element.
 *
 * Dense (compressor NULL): fp32 sum in rank order, divided by n for onebitAvg, rounded once.
 * Compressed: each rank adds its residual, sends signs and scales of each rank's chunk to that
 * rank; each rank averages its chunk, adds its server residual, sends signs and scales to all
 * (1-bit Adam, Tang et al. 2021, algorithm 1; src/codec/FORMAT.md has every detail). With one rank
 * the result is the input, 0 outside the mask, and residuals stay untouched.
 *
 * With a compressor, a NaN or an infinity in any rank's input, or an overflow on the way, makes the
 * whole output NaN on every rank and changes no residual; the call still returns onebitSuccess, as
 * on a GPU stream it could not return anything else. The stats count it. Without one, as in any
 * sum, only the elements that meet it are not finite.
 *
 * @param sendbuff   count elements; equal to recvbuff for in place, no other overlap.
 * @param recvbuff   count elements. Undefined after an error.
 * @param count      elements; with a compressor, the count it was created with.
 * @param datatype   of both buffers; with a compressor, the type it was created with.
 * @param op         onebitSum or onebitAvg. A compressor's first call fixes it until Reset.
 * @param compressor mode and residuals of this tensor; NULL sends full precision.
 * @param comm       all its ranks make this call.
 * @param stream     NULL: the call blocks until the result is there. Otherwise it returns once it
 *                   is queued; the buffers are the stream's until it is done, and errors other than
 *                   onebitInvalidArgument are told by onebitStreamSynchronize. With buffers in
 *                   memory of a CUDA device a cudaStream_t (memory.h).
 * @return onebitInvalidArgument  NULL buffer with count > 0, unknown type or op, count or type that
 *                                differ from the compressor's, partly overlapping buffers, or a
 *                                stream that is not alive. Nothing was sent; comm stays usable.
 * @return onebitInvalidUsage     the compressor belongs to another communicator, was used with
 *                                another op, comm has failed before, or comm is of
 *                                onebitCommInitAll and this is the only thread of the process, so
 *                                that nobody can make the other ranks' calls, or calls of comm or
 *                                of the compressor are pending on another stream. Nothing was sent.
 * @return onebitDetached         the compressor's communicator was destroyed.
 * @return onebitMismatch         the ranks' calls differ; the text shows both sides.
 * @return onebitCorrupt          a packet from the named peer arrived damaged.
 * @return onebitRemoteError      another rank failed; the text has its cause.
 * @return onebitTimeout          a rank did not come in time; the text names it.
 * @return onebitAborted          onebitCommAbort was called.
 * @return onebitOutOfMemory      not enough memory for packets or for the plan of a new size;
 *                                nothing was sent, comm stays usable.
 *
 * Thread safety: one thread at a time per `comm` and per `compressor`.
 */
ONEBIT_API onebitResult_t onebitAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                          onebitDataType_t datatype, onebitRedOp_t op,
                                          onebitCompressor_t compressor, onebitComm_t comm,
                                          onebitStream_t stream);

/**
 * Copies `count` elements from rank `root` to all.
 *
 * @param sendbuff count elements, read on the root only; may be NULL elsewhere.
 * @param recvbuff count elements; may equal sendbuff.
 * @param root     0 to n - 1, else onebitInvalidArgument; equal on all ranks.
 *
 * Other parameters, errors and thread safety as for onebitAllReduce.
 */
ONEBIT_API onebitResult_t onebitBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                                          onebitDataType_t datatype, int root, onebitComm_t comm,
                                          onebitStream_t stream);

/** Returns when all ranks have called it. Errors and thread safety as for onebitAllReduce. */
ONEBIT_API onebitResult_t onebitBarrier(onebitComm_t comm, onebitStream_t stream);

/** Whose residuals a saved state has: of compressors (state.h), syncs and optimizers. */
typedef enum {
  onebitStateRank = 0,  /* this rank's, bit for bit: for the same rank of as many ranks */
  onebitStateGlobal = 1 /* what all ranks together still owe: for any number of ranks */
} onebitStateKind_t;

#ifdef __cplusplus
} /* extern "C" */
#endif

#include "onebit/group.h"
#include "onebit/memory.h"
#include "onebit/parts.h"
#include "onebit/setting.h"
#include "onebit/state.h"
#include "onebit/stream.h"
#include "onebit/sync.h"

#endif /* ONEBIT_H_ */
