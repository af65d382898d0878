/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * onebit: collectives that send about one bit per element, with error feedback.
 *
 * The API follows NCCL's: every rank makes the same calls, with the same counts, in the same order.
 * One argument is new: the compressor. It defines how a tensor is compressed, and it keeps what
 * compression has lost so far (the residual) in order to send it with later calls.
 *
 * The smallest complete program: processes average a tensor. Start it with
 * `onebit_run -n 4 ./program`, torchrun, mpirun or srun.
 *
 *   #include <stdio.h>
 *   #include <onebit/onebit.h>
 *
 *   int main(void) {
 *     static float gradient[1000];
 *     onebitComm_t comm = NULL;
 *     onebitCompressor_t compressor = NULL;
 *     onebitResult_t result = onebitCommInitEnv(&comm, NULL);
 *     if (result == onebitSuccess)
 *       result = onebitCompressorCreate(&compressor, comm, 1000, onebitFloat32, NULL);
 *     if (result == onebitSuccess)
 *       result = onebitAllReduce(gradient, gradient, 1000, onebitFloat32, onebitAvg, compressor,
 *                                comm, NULL);
 *     if (result == onebitSuccess) result = onebitCommFinalize(comm);
 *     if (result != onebitSuccess) fprintf(stderr, "%s\n", onebitGetLastError(NULL));
 *     onebitCompressorDestroy(compressor);
 *     onebitCommDestroy(comm);
 *     return result == onebitSuccess ? 0 : 1;
 *   }
 *
 * Tiers, from what everybody needs to what few do. This file includes all but the last line.
 *
 *   this file   basic (join, compressor, collectives, end), communicators, recovery, diagnostics
 *   compressors.h  counters, reset, masks and weights of compressors
 *   parts.h     reduce-scatter, all-gather, all-to-all; send and receive
 *   group.h     many collectives in few messages
 *   stream.h    calls that run while the caller computes
 *   memory.h    buffers in the memory of CUDA devices
 *   state.h     checkpoints of compressors
 *   sync.h      steps that send nothing
 *   optim.h     1-bit Adam, 1-bit LAMB, 0/1 Adam
 *   schedule.h  what each step of an optimizer sends
 *   setting.h   lists settings and transports; initial structures for bindings
 *   mpi.h, nccl.h, onebit.hpp, transport.h: joining from MPI and NCCL, C++ handles, plugins
 *
 * Facts that hold everywhere
 *   - Compressed calls take onebitFloat32, onebitFloat16 and onebitBfloat16; dense ones take all
 *     types. Sums of these three are fp32, and so are residuals by default.
 *   - Counts are elements, not bytes, and may be 0. Buffers need an element's alignment, no other.
 *   - After an allreduce, all-gather or broadcast, the output holds the same bytes on every rank.
 *   - Pointers and handles must not be NULL, except where a parameter allows it. Objects are
 *     borrowed for the duration of a call, except where a parameter says how long they must live.
 *     Output parameters are written only on success.
 *   - One thread at a time may use a handle, except where a function says "any thread".
 *   - Nothing waits forever: a collective without progress fails after collectiveTimeoutMs.
 *   - A forked child has copies of its parent's handles, but none of its connections: calls with
 *     them return onebitInvalidUsage, nothing reaches the parent or its peers, and destroying one
 *     does nothing. A child may make handles of its own.
 *   - Configuration and stats structures begin with their size, so that they can grow. The library
 *     refuses a configuration of an unknown size or from a later major version.
 *
 * Errors every call can return
 *   Functions that return onebitResult_t list only further errors, and causes that need explaining.
 *   onebitResult_t says what each error means. After the first three of these, nothing was sent and
 *   nothing changed, unless a collective runs out of memory while other ranks already wait for it.
 *   onebitInvalidArgument  A pointer or handle is NULL, an enumerator is unknown, a number is out
 *                          of range, or the head of a structure (size, magic, version) is wrong.
 *   onebitInvalidUsage     The handle is busy: another thread is inside a call on it, an open group
 *                          has a call with it, or calls with it are pending on a stream.
 *   onebitOutOfMemory, onebitInternalError
 *
 * Errors every collective can return
 *   Two refuse a call before anything is sent; the communicator stays usable:
 *   onebitInvalidUsage  The compressor belongs to another communicator; the communicator was
 *                       finalized; calls with either are pending on another stream; or the ranks
 *                       are threads of one process (onebitCommInitAll) that has no thread left to
 *                       make the other ranks' calls.
 *   onebitDetached      The compressor's communicator was destroyed: rebind it.
 *   The others put the communicator out of use on every rank: onebitMismatch, onebitCorrupt,
 *   onebitPeerLost, onebitRemoteError, onebitTimeout (no progress for collectiveTimeoutMs),
 *   onebitAborted, onebitUnhandledCudaError, onebitSystemError, and onebitOutOfMemory once others
 *   wait. Every later collective returns the same error; destroy or shrink the communicator (see
 *   "Recovery"). Compressors keep their residuals; the output buffer's content is undefined.
 *
 * Errors every join can return
 *   Joins are onebitCommSplit, onebitCommShrink and every onebitCommInit function except
 *   onebitCommInitAll. The text names the cause.
 *   onebitInvalidArgument   A member of `config` is out of range.
 *   onebitInvalidUsage      A setting (an environment variable ONEBIT_*) does not parse, or a file
 *                           that ONEBIT_DEBUG_FILE or ONEBIT_TRACE names cannot be written.
 *   onebitMismatch          Ranks differ in the number of ranks or in a setting that must be equal,
 *                           or two have the same rank; the text has ranks and values.
 *   onebitTimeout           Not all ranks joined within connectTimeoutMs, or an address could not
 *                           be reached; the text names who is missing, or the address.
 *   onebitNotAuthenticated  Whoever listens at the meeting address does not know the job's secret.
 *   onebitRemoteError, onebitSystemError
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

/* ============================================================================== Basic: results */

/** Result of a call. 0 to 8 are NCCL's values; onebit's own begin at 100. */
typedef enum {
  onebitSuccess = 0,
  onebitUnhandledCudaError = 1, /* a CUDA call failed */
  onebitSystemError = 2,        /* the operating system refused something; the text has errno */
  onebitInternalError = 3,      /* a bug in onebit, or memory corruption */
  onebitInvalidArgument = 4,    /* an argument is wrong in any state */
  onebitInvalidUsage = 5,       /* the call is wrong in this state, or from this thread */
  onebitRemoteError = 6,        /* another rank failed; the text names it and its cause */
  onebitInProgress = 7,         /* not finished yet; not an error */
  onebitTimeout = 8,            /* a deadline passed; the text names who was late */
  onebitMismatch = 100,         /* ranks made different calls, or a saved state belongs to something
                                   else; the text shows both sides */
  onebitCorrupt = 101,          /* a packet or a saved state is damaged: wrong checksum or form */
  onebitPeerLost = 102,         /* a peer's process or host is gone */
  onebitNotAuthenticated = 103, /* this side or the other does not know the job's secret */
  onebitDetached = 104,         /* the compressor's communicator was destroyed: rebind it */
  onebitAborted = 105,          /* onebitCommAbort was called on this communicator */
  onebitOutOfMemory = 106       /* an allocation failed */
} onebitResult_t;

/** Element types, with NCCL's names and values. Some are for calls without a compressor only. */
typedef enum {
  onebitUint8 = 1, /* dense only */
  onebitInt32 = 2, /* dense only */
  onebitInt64 = 4, /* dense only */
  onebitFloat16 = 6,
  onebitFloat32 = 7,
  onebitFloat64 = 8, /* dense only */
  onebitBfloat16 = 9
} onebitDataType_t;

/** Reductions, with NCCL's values. onebitAllReduce says what each makes of each type. */
typedef enum {
  onebitSum = 0,
  onebitMax = 2, /* dense only */
  onebitMin = 3, /* dense only */
  onebitAvg = 4
} onebitRedOp_t;

typedef struct onebitComm_s* onebitComm_t;
typedef struct onebitCompressor_s* onebitCompressor_t;
/**
 * Orders calls. For host memory: a stream of onebitStreamCreate (stream.h), or NULL: calls block.
 * For memory of a CUDA device (memory.h): a cudaStream_t, NULL being the legacy default stream.
 */
typedef struct CUstream_st* onebitStream_t;

/** "Take the default" for integer members of configuration structures. */
#define ONEBIT_UNDEF_INT INT32_MIN
/** `magic` of every configuration structure; the initialiser macros set it. */
#define ONEBIT_CONFIG_MAGIC 0x0b17c0f6u

/** Name of a result, never NULL, with static storage. Thread safety: any thread. */
ONEBIT_API const char* onebitGetErrorString(onebitResult_t result);

/**
 * Text of the last error: rank, peer, cause, and what to do.
 *
 * @param comm NULL: this thread's last call that failed. Otherwise: the error that put this
 *             communicator out of use, "" if there is none.
 * @return a text, never NULL, that stays valid until this thread's next onebit call.
 *
 * Thread safety: any thread.
 */
ONEBIT_API const char* onebitGetLastError(onebitComm_t comm);

/* ================================================================================= Basic: join */

/**
 * Parameters of a communicator of processes. Start from ONEBIT_CONFIG_INIT and set what differs;
 * members left at NULL or ONEBIT_UNDEF_INT take the default given here. As in NCCL the environment
 * wins: a member is ignored where the environment variable named next to it is set.
 */
typedef struct {
  size_t size;              /* sizeof(onebitConfig_t) */
  uint32_t magic;           /* ONEBIT_CONFIG_MAGIC */
  uint32_t version;         /* ONEBIT_VERSION_CODE */
  const char* transport;    /* ONEBIT_TRANSPORT; default "socket". Copied. Equal on all ranks */
  int32_t connectTimeoutMs; /* ONEBIT_CONNECT_TIMEOUT_MS: for all ranks to join; default 60000 */
  int32_t heartbeatMs;      /* ONEBIT_HEARTBEAT_MS: time between heartbeats; default 1000. Equal on
                               all ranks */
  int32_t lossTimeoutMs;    /* ONEBIT_LOSS_TIMEOUT_MS: a rank that is silent for this long, or for
                               twice this while packets to it get lost, counts as lost; more than
                               heartbeatMs; default 15000. Equal on all ranks */
  int32_t collectiveTimeoutMs; /* ONEBIT_COLLECTIVE_TIMEOUT_MS: a collective without progress for
                                  this long fails; default 600000 */
  int32_t shrinkGraceMs; /* ONEBIT_SHRINK_GRACE_MS: how long onebitCommShrink waits for ranks that
                            do not answer; default 5000 */
  int32_t quorum; /* ONEBIT_QUORUM: 0 or 1, see onebitCommShrink; default 0. Equal on all ranks */
  int32_t hostRanks; /* ONEBIT_HOST_RANKS: this many successive ranks form a host, unless
                        ONEBIT_HOST is set; default 0: machines are hosts. Equal on all ranks */
} onebitConfig_t;

#define ONEBIT_CONFIG_INIT                                                                        \
  {                                                                                               \
    sizeof(onebitConfig_t), ONEBIT_CONFIG_MAGIC, ONEBIT_VERSION_CODE, NULL, ONEBIT_UNDEF_INT,     \
        ONEBIT_UNDEF_INT, ONEBIT_UNDEF_INT, ONEBIT_UNDEF_INT, ONEBIT_UNDEF_INT, ONEBIT_UNDEF_INT, \
        ONEBIT_UNDEF_INT                                                                          \
  }

/**
 * Joins the communicator of all processes of this job, as the launcher's environment describes it.
 *
 * Rank and number of ranks come from RANK and WORLD_SIZE (torchrun, onebit_run),
 * OMPI_COMM_WORLD_RANK and _SIZE (Open MPI), PMI_RANK and PMI_SIZE (MPICH), or SLURM_PROCID and
 * SLURM_NTASKS. The ranks meet at ONEBIT_RENDEZVOUS (host:port, or the path of a file that all
 * ranks see), else at MASTER_ADDR with MASTER_PORT + 1, else at the first host of the Slurm job,
 * else, if all ranks are on one host, at a file named after the job. With transport `mpi` and
 * without ONEBIT_RENDEZVOUS the ranks are those of MPI_COMM_WORLD, and MPI tells them where to meet
 * (see onebitCommInitFrom).
 *
 * The secret that admits ranks is ONEBIT_SECRET or the content of ONEBIT_SECRET_FILE; a rendezvous
 * file holds its own. A start on several hosts without one works, with a warning. Ranks of another
 * job are turned away if it has a different name: ONEBIT_JOB, or else the launcher's name for it.
 *
 * Collective over the job, one communicator at a time: a second call makes another communicator
 * once all ranks have made it.
 *
 * @param comm   Receives the handle.
 * @param config NULL: all defaults.
 * @return onebitInvalidUsage  variables are missing, empty or contradict each other; the text names
 *                             them.
 *
 * Further errors: those of every join. Thread safety: any thread.
 */
ONEBIT_API onebitResult_t onebitCommInitEnv(onebitComm_t* comm, const onebitConfig_t* config);

/**
 * Makes `n` communicators, the ranks of one group inside this process (transport `local`).
 *
 * Drive each from a thread of its own: a collective blocks until all ranks have made it. If only
 * some ranks' threads make a call, they get onebitTimeout; a process without another thread gets
 * onebitInvalidUsage at once. (One thread can make the calls of all ranks in a group: group.h.)
 * Memory: about 10 KiB per pair of ranks, and 16 MiB of pinned memory for each of `devices`.
 *
 * @param comms   Receives n handles; comms[r] is rank r.
 * @param n       Ranks, 1 to 1024.
 * @param devices NULL, or n ordinals of CUDA devices: rank r's calls on device memory are on
 *                devices[r] (memory.h).
 * @return onebitInvalidArgument  `n` is out of range, or there is no such device.
 * @return onebitInvalidUsage     `devices` is given without CUDA; or, as in every join, a setting
 *                                or the log file is in error.
 *
 * Thread safety: any thread. Mirrors ncclCommInitAll.
 */
ONEBIT_API onebitResult_t onebitCommInitAll(onebitComm_t* comms, int n, const int* devices);

/** Writes the number of ranks to `count`. Thread safety: any thread. */
ONEBIT_API onebitResult_t onebitCommCount(onebitComm_t comm, int* count);

/** Writes this rank to `rank`. Thread safety: any thread. */
ONEBIT_API onebitResult_t onebitCommUserRank(onebitComm_t comm, int* rank);

/* =========================================================================== Basic: compressor */

/** What a compressor remembers from call to call. */
typedef enum {
  onebitModePlain = 0, /* nothing; with onebitCodecSign training does not converge in general */
  onebitModeEf = 1     /* error feedback: what a call loses is added to the next call's input */
} onebitMode_t;

/**
 * How the elements of a block travel: as codes of a few bits each, in units of the block's scale
 * (src/codec/FORMAT.md, section 15). "dB" is the signal-to-noise ratio of one pass with the default
 * block, of heavy tails (Student's t with 3 degrees of freedom) or rows of 64 elements whose
 * magnitudes are log-normal (sigma 1), whichever is worse, then of normal numbers. Gradients of
 * small language models were between the two.
 */
typedef enum {
  onebitCodecSign = 0,    /* 1 bit: the sign, fp32 scales; default block 4096; 0 to 4 dB. For
                             gradients and momentum with error feedback, where the variance is
                             frozen (optim.h) */
  onebitCodecFp4 = 1,     /* 4 bits (e2m1): +-0, .5, 1, 1.5, 2, 3, 4, 6; default block 128; 16 to
                             19 dB. Gradients with error feedback, outer gradients, weights */
  onebitCodecInt8 = 2,    /* 8 bits: -127 to 127; default block 256; 35 to 43 dB. Anything */
  onebitCodecUint8mm = 3, /* 8 bits: 0 to 255 from the smallest to the largest element; default
                             block 256; 38 to 44 dB. One-sided activations (ReLU, GELU), where it
                             gains 6 dB over onebitCodecInt8 */
  onebitCodecInt2 = 4,    /* 2 bits: +-.5, +-1.5; default block 4096; 3 to 9 dB. Gradients with
                             error feedback, not under a live variance; never activations */
  onebitCodecInt8Stochastic = 5, /* onebitCodecInt8 rounded up or down at random, by scales that are
                                    rounded up, so that nothing is cut off and the mean is exact:
                                    unbiased; onebitModePlain only; 32 to 40 dB */
  /* Sparse codecs send `k` elements of each block and nothing of the others (FORMAT.md, section
     18): 14 bits for each element sent. For AllReduce, and with onebitModePlain for ReduceScatter
     and AllGather, on onebitMemoryHost; default block 4096. As long as calls * k / block is below
     3, some elements are hardly ever sent, and training suffers; the library does not warn. */
  onebitCodecTopk = 6,  /* the elements of largest magnitude. Outer gradients with error feedback */
  onebitCodecRandk = 7, /* elements drawn at random, the same ones on every rank; with
                           onebitModePlain times block / k, which makes the result unbiased with
                           onebitValuesFloat32. 2 bits, or 32, for each element sent */
  onebitCodecBf16 = 8,  /* 16 bits: bfloat16, without a scale (section 20); 55 dB. fp32 */
  onebitCodecLossless = 9 /* what has changed, bit for bit (section 22). AllGather, Broadcast */
} onebitCodec_t;

/** How sparse codecs send an element's value. */
typedef enum {
  onebitValuesTwoMagnitudes = 0, /* 2 bits: the sign, and one of two magnitudes of the block */
  onebitValuesFloat32 = 1        /* 32 bits: the value itself; for truly sparse tensors */
} onebitSparseValues_t;

/** Scale of a block z of N elements. */
typedef enum {
  onebitScaleL2 = 0, /* ||z||_2 / sqrt(N): 1-bit Adam (Tang et al. 2021, section 3), DeepSpeed */
  onebitScaleL1 = 1  /* ||z||_1 / N: EF-SignSGD (Karimireddy et al. 2019), 0/1 Adam (optim.h) */
} onebitScaleRule_t;

/** The collective that a compressor is for. Its `count` is the one that this collective takes. */
typedef enum {
  onebitCollectiveAllReduce = 0,
  onebitCollectiveReduceScatter = 1,
  onebitCollectiveAllGather = 2,
  onebitCollectiveAllToAll = 3,
  onebitCollectiveAllToAllv = 4,
  onebitCollectiveSendRecv = 5, /* one side of onebitSend and onebitRecv (parts.h) */
  onebitCollectiveBroadcast = 6 /* of onebitBroadcastCompressed; onebitCodecLossless only */
} onebitCollective_t;

/** `block` of a configuration: one scale per tensor and rank, as in the papers. */
#define ONEBIT_BLOCK_TENSOR 0

/**
 * Parameters of a compressor. Start from ONEBIT_COMPRESSOR_CONFIG_INIT and set what differs;
 * members left at ONEBIT_UNDEF_INT take the default given here.
 *
 * Members that change messages must be equal on all ranks; the first call reports a difference, on
 * every rank. A small tensor uses one exchange (`exchanges` of the stats). Every rank then keeps
 * the server residual of the whole tensor, so all members must be equal, and a Reset on only some
 * of the ranks is reported as well.
 *
 * A mask is a bit string with one bit per element: bit i mod 8 of byte i / 8 is element i. A clear
 * bit takes the element out: its output is 0, and no scale includes it. Where the tensor has a part
 * for every rank (parts.h), the mask covers all n * count elements, with the bits of part r
 * directly after those of part r - 1: those of sendbuff in a reduce-scatter and an all-to-all,
 * those of recvbuff in an all-gather.
 */
typedef struct {
  size_t size;        /* sizeof(onebitCompressorConfig_t) */
  uint32_t magic;     /* ONEBIT_CONFIG_MAGIC */
  uint32_t version;   /* ONEBIT_VERSION_CODE */
  int32_t mode;       /* onebitMode_t; default onebitModeEf (not supported by AllToAllv) */
  int32_t collective; /* onebitCollective_t; default onebitCollectiveAllReduce */
  int32_t scaleRule;  /* onebitScaleRule_t; onebitCodecSign only; default onebitScaleL2 */
  int32_t block; /* elements per scale; default: see onebitCodec_t. onebitCodecSign: a multiple of
                    64, or ONEBIT_BLOCK_TENSOR. Bf16: leave it undefined. Topk and Randk: a multiple
                    of 64 from 320 to 4096. Others: a multiple of 32 up to 65536; for AllToAllv any
                    length up to 65536 whose codes fill whole bytes, such as a token's row */
  int32_t residualType;   /* onebitFloat32 (default) or onebitBfloat16 (not supported by an
                             AllGather or SendRecv with onebitModeEf) */
  int32_t transactional;  /* 1 (default): two generations of residuals, so an error or NaN loses
                             nothing. 0: one; such a call resets them (see residual_resets) */
  int32_t chunkAlignment; /* AllReduce only; for oracles: each rank's share is a multiple of this
                             many elements, itself a multiple of 8; default 64 */
  int32_t serverResidual; /* AllReduce only; for comparisons: 0 keeps error feedback on the worker
                             side only, as some systems do, and breaks the telescoping identity;
                             default 1 */
  int64_t tensorId;       /* identifies the tensor in messages; unique among the communicator's live
                             compressors; default (negative): how many were created before it */
  const uint8_t* mask;    /* NULL: all elements take part. Otherwise as described above. Copied.
                             Equal on all ranks. NULL for AllToAllv */
  int32_t memory; /* onebitMemory_t: where the residuals and the buffers of all calls are; default
                     onebitMemoryHost */
  int32_t device; /* CUDA device, with onebitMemoryDevice only; default: the current device */
  int32_t codec;  /* onebitCodec_t; default onebitCodecSign */
  uint64_t seed;  /* for onebitCodecInt8Stochastic and onebitCodecRandk, whose draws follow from it,
                     the tensorId, the number of calls and the element; default 0. Equal on all
                     ranks */
  /* The members up to efDecay are for onebitCodecTopk and onebitCodecRandk only. */
  int32_t k; /* elements sent of each block (of a shorter last one its share, rounded up), from 1
                to block / 2; default block / 64. Instead of onebitCodecTopk with more than
                block / 12, use another codec: it sends as few bits and loses less */
  int32_t values; /* onebitSparseValues_t; default onebitValuesTwoMagnitudes */
  int32_t hops;  /* AllReduce only. 1: every rank sends its packet to all others, which sum them; no
                    server residual. 2: packets of a chunk go to one rank, which compresses their
                    sum again. Default 1 for up to 8 ranks, otherwise 2; a rebind keeps it */
  float efDecay; /* onebitModeEf: weight of the worker residual in the next call, from 0 to 1. Below
                    1 a part of what is not sent is forgotten, and results do not add up to the
                    inputs. Default (negative): 1 */
  /* onebitCodecSign with blocks in an AllReduce: elements at which blocks restart, so that no scale
     spans two of the tensor's parameters. cutCount offsets that ascend, above 0 and below `count`;
     NULL and 0: none. Copied. Not with weights. A state fits whatever the cuts were */
  const size_t* cuts;
  size_t cutCount;
  int32_t levels; /* AllReduce, ReduceScatter, AllGather. 1: every rank's packet leaves its host. 2:
                     where hosts have several ranks, one for all of them does; not with one
                     exchange, hops 1 or ONEBIT_BLOCK_TENSOR. 0 (default): 2 for long tensors */
} onebitCompressorConfig_t;

#define ONEBIT_COMPRESSOR_CONFIG_INIT                                                             \
  {                                                                                               \
    sizeof(onebitCompressorConfig_t), ONEBIT_CONFIG_MAGIC, ONEBIT_VERSION_CODE, ONEBIT_UNDEF_INT, \
        ONEBIT_UNDEF_INT, ONEBIT_UNDEF_INT, ONEBIT_UNDEF_INT, ONEBIT_UNDEF_INT, ONEBIT_UNDEF_INT, \
        ONEBIT_UNDEF_INT, ONEBIT_UNDEF_INT, -1, NULL, ONEBIT_UNDEF_INT, ONEBIT_UNDEF_INT,         \
        ONEBIT_UNDEF_INT, 0, ONEBIT_UNDEF_INT, ONEBIT_UNDEF_INT, ONEBIT_UNDEF_INT, -1, NULL, 0, 0 \
  }

/**
 * Makes a compressor for one tensor of `count` elements, with residuals of zero.
 *
 * Local: sends nothing. All ranks create their compressors in the same order, or set tensorId.
 *
 * Memory with onebitModeEf and n ranks, per element: 4 bytes of worker residual and 4/n of server
 * residual (4 with one exchange). Reduce-scatter, all-gather and all-to-all: 4 bytes for each of
 * n * count elements, no server residual. Transactional: twice that; bf16 residuals: half of it.
 *
 * @param compressor Receives the handle.
 * @param comm       All its ranks take part in every call.
 * @param count      Elements as the calls count them: the whole tensor of an allreduce, each rank's
 *                   part in the collectives of parts.h. 0 for an all-to-all-v.
 * @param datatype   Element type of the calls: onebitFloat32, onebitFloat16 or onebitBfloat16.
 * @param config     NULL: all defaults.
 * @return onebitInvalidArgument  a member of `config` is out of range, or another compressor of
 *                                `comm` has its tensorId; the text says what is allowed.
 *
 * Thread safety: one thread at a time per `comm`.
 */
ONEBIT_API onebitResult_t onebitCompressorCreate(onebitCompressor_t* compressor, onebitComm_t comm,
                                                 size_t count, onebitDataType_t datatype,
                                                 const onebitCompressorConfig_t* config);

/**
 * Frees a compressor (NULL: does nothing), before or after its communicator is destroyed.
 *
 * @return onebitInvalidUsage  also: a sync uses it (call onebitSyncDestroy first).
 *
 * Thread safety: no other thread may still be using `compressor`.
 */
ONEBIT_API onebitResult_t onebitCompressorDestroy(onebitCompressor_t compressor);

/* ========================================================================== Basic: collectives */

/**
 * Reduces `count` elements over all ranks; with a compressor, sends the codes of its codec.
 *
 * Dense (compressor NULL): a reduction in rank order, or on each host first and then over hosts,
 * with equal bits on all ranks and transports, unless a transport has its own (memory.h).
 *   Sums of floats    in fp32 (onebitFloat64: in fp64); divided by n for onebitAvg; rounded once.
 *   Sums of integers  modulo 2^N with N bits, as in NCCL. onebitAvg divides that sum, wrapped or
 *                     not, by n and truncates toward zero.
 *   onebitMax, Min    one of the elements, bit for bit. If any is a NaN, the result is the NaN of
 *                     the first rank in that order that has one; -0 is less than +0.
 * Compressed: each rank adds its residual and sends signs and scales of each rank's chunk to that
 * rank; each rank averages its chunk, adds its server residual, and sends signs and scales to all
 * (1-bit Adam, Tang et al. 2021, algorithm 1; src/codec/FORMAT.md has every detail). With one rank
 * the result is the input, 0 outside the mask, and residuals do not change.
 *
 * With a compressor, a NaN or infinity in any rank's input, or an overflow on the way, makes the
 * whole output NaN on every rank and changes no residual. The call still returns onebitSuccess, as
 * on a GPU stream; nonfinite_calls of the stats counts it. With onebitModePlain and a codec other
 * than onebitCodecSign, only the affected blocks (elements of bf16) become NaN, and only
 * nonfinite_blocks counts them; without a compressor, only the affected elements become NaN.
 *
 * @param sendbuff   `count` elements. May equal recvbuff (in place); no other overlap.
 * @param recvbuff   `count` elements. Undefined after an error.
 * @param count      With a compressor, the count it was created with. If 0, buffers may be NULL.
 * @param datatype   Element type of both buffers; with a compressor, the type it was created with.
 * @param op         With a compressor onebitSum or onebitAvg; its first call fixes it until Reset.
 * @param compressor Mode and residuals of this tensor; NULL sends full precision.
 * @param comm       All its ranks make this call.
 * @param stream     NULL: the call blocks until the result is there. Otherwise it returns when it
 *                   is queued: the buffers belong to the stream until the call is done, and
 *                   onebitStreamSynchronize returns all errors but onebitInvalidArgument. With
 *                   buffers on a CUDA device: a cudaStream_t (memory.h).
 * @return onebitInvalidArgument  also: the buffers overlap in part or are not aligned; count, type
 *                                or memory differ from the compressor's; the compressor is for
 *                                another collective (the text names both); the stream has ended.
 * @return onebitInvalidUsage     also: the compressor was used with another op, or belongs to a
 *                                sync.
 * @return onebitOutOfMemory      no memory for packets, or for the plan of a new size.
 *
 * Further errors: those of every collective. Thread safety: one thread at a time per handle.
 */
ONEBIT_API onebitResult_t onebitAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                          onebitDataType_t datatype, onebitRedOp_t op,
                                          onebitCompressor_t compressor, onebitComm_t comm,
                                          onebitStream_t stream);

/**
 * Copies `count` elements from rank `root` to all ranks.
 *
 * @param sendbuff `count` elements, read on the root only; may be NULL elsewhere.
 * @param recvbuff `count` elements; may equal sendbuff.
 * @param root     0 to n - 1; equal on all ranks.
 *
 * Other parameters, errors and thread safety as for onebitAllReduce.
 */
ONEBIT_API onebitResult_t onebitBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                                          onebitDataType_t datatype, int root, onebitComm_t comm,
                                          onebitStream_t stream);

/** Returns when all ranks have called it. Stream, errors, thread safety: as onebitAllReduce. */
ONEBIT_API onebitResult_t onebitBarrier(onebitComm_t comm, onebitStream_t stream);

/* ================================================================================== Basic: end */

/**
 * Declares that this rank is done with `comm`, and waits until all ranks have done so. Afterwards
 * only onebitCommDestroy and the queries remain valid. Collective. Optional: onebitCommDestroy
 * alone is enough once no rank can still be inside a collective.
 *
 * @return onebitInvalidUsage  also: `comm` was finalized before.
 *
 * Further errors: those of every collective. Thread safety: one thread at a time per `comm`.
 * Mirrors ncclCommFinalize, but blocks.
 */
ONEBIT_API onebitResult_t onebitCommFinalize(onebitComm_t comm);

/**
 * Frees a communicator. Local: waits for no other rank.
 *
 * A rank that is still in a collective with this one gets onebitRemoteError. After rank 0 destroys
 * the communicator, failures among the others are detected only by timeout. If ranks may exit at
 * different times, call onebitCommFinalize first. Compressors of the communicator become detached
 * and keep their residuals.
 *
 * @param comm NULL does nothing.
 * @return onebitInvalidUsage  another thread is inside a call on `comm`, or calls are pending on an
 *                             onebitStream_t of the host (onebitCommAbort ends both), or an open
 *                             group has calls on it. memory.h covers CUDA streams.
 *
 * Thread safety: no other thread may still be using `comm`.
 */
ONEBIT_API onebitResult_t onebitCommDestroy(onebitComm_t comm);

/* =============================================================================== Communicators */

/** Address and secret of a new communicator. Keep it like a password: whoever has it can join. */
typedef struct {
  char internal[128];
} onebitUniqueId;

/** Counters of a communicator since its creation, and where its ranks are. */
typedef struct {
  size_t size;               /* sizeof(onebitCommStats_t) as the caller was compiled; input */
  uint64_t dense_calls;      /* successful collectives without a compressor */
  uint64_t compressed_calls; /* successful collectives with one */
  uint64_t nonfinite_calls;  /* those of the above that met a NaN or infinity */
  uint64_t failed_calls;     /* collectives that began and failed; refused ones do not count */
  uint64_t logical_bytes;    /* elements * element size of the larger buffer, summed over all
                                successful collectives */
  uint64_t bytes_sent;       /* headers and payloads, counted where the transport takes them */
  uint64_t messages_sent;
  uint64_t codec_ns;        /* the callers' time in compression, reduction and decoding */
  uint64_t call_ns;         /* time inside collectives, waiting included */
  uint64_t compute_threads; /* threads that have computed besides the caller so far */
  uint64_t native_calls;    /* dense_calls that were the transport's own (ONEBIT_NCCL_NATIVE_DENSE,
                               ONEBIT_MPI_NATIVE_DENSE); bytes_sent does not include theirs */
  /* Hosts are machines unless ONEBIT_HOST (a word that the ranks of one host have in common),
     ONEBIT_HOST_RANKS or hostRanks say otherwise. Ranks stay on their hosts in Split and Shrink. */
  uint64_t hosts;           /* number of hosts */
  uint64_t host;            /* this rank's, from 0 on, in the order of the hosts' lowest ranks */
  uint64_t host_ranks;      /* ranks on this rank's host, itself included */
  uint64_t two_level_calls; /* calls that passed inside hosts, and then between them */
  uint64_t network_bytes;   /* the part of bytes_sent that went to other hosts */
} onebitCommStats_t;

/**
 * Makes an id for one communicator of processes. Call it on one rank, hand the 128 bytes to the
 * others through a channel that nobody else can read, and call onebitCommInitRank on all.
 *
 * This process opens a TCP port until all ranks have joined: on the interface that
 * ONEBIT_SOCKET_IFNAME selects or, if nothing says which of several leads to the ranks, on all.
 * While the communicator lives, every rank has a connection to this process, over which the ranks
 * exchange heartbeats. If this process ends before the others are done, they get an error.
 *
 * @param id Receives the id, which is good for one communicator.
 * @return onebitInvalidUsage  a setting is in error, or ONEBIT_SOCKET_IFNAME matches no interface;
 *                             the text lists the available interfaces.
 * @return onebitSystemError   no port could be opened; the text has address and errno.
 *
 * Thread safety: any thread. Mirrors ncclGetUniqueId.
 */
ONEBIT_API onebitResult_t onebitGetUniqueId(onebitUniqueId* id);

/**
 * Joins a communicator of `nranks` processes, or threads. Collective: returns when all ranks have
 * joined, or with an error that names those that did not come in time.
 *
 * Every connection proves by a keyed challenge that it knows the secret of `id`. The ranks then
 * compare library version, nranks, transport, and the settings that must be equal.
 * src/comm/SECURITY.md says what is protected and what is not.
 *
 * @param comm   Receives the handle.
 * @param nranks Ranks, 1 to 65536; equal on all.
 * @param id     From onebitGetUniqueId; the same on all.
 * @param rank   0 to nranks - 1, each once.
 * @return onebitInvalidArgument  also: `id` was not made by onebitGetUniqueId.
 *
 * Further errors: those of every join. Thread safety: any thread. Mirrors ncclCommInitRank.
 */
ONEBIT_API onebitResult_t onebitCommInitRank(onebitComm_t* comm, int nranks, onebitUniqueId id,
                                             int rank);

/** onebitCommInitRank with parameters; NULL: all defaults. Mirrors ncclCommInitRankConfig. */
ONEBIT_API onebitResult_t onebitCommInitRankConfig(onebitComm_t* comm, int nranks,
                                                   onebitUniqueId id, int rank,
                                                   const onebitConfig_t* config);

/**
 * Makes a communicator of the ranks of another library's communicator. That library also carries
 * the bytes. With MPI prefer onebitCommInitMpi of onebit/mpi.h and with NCCL onebitCommInitNccl of
 * onebit/nccl.h, which know the types and say what belongs to whom.
 *
 * Collective on that communicator, in the order of its ranks. Its rank 0 opens a port as
 * onebitGetUniqueId does and broadcasts the 128 bytes over `native`, so no other rendezvous is
 * needed. `native` stays the caller's: over MPI a duplicate is used, over NCCL `native` itself.
 *
 * @param comm        Receives the handle.
 * @param transport   The other library's transport: "mpi" or "nccl".
 * @param native      Points to the other library's handle, an MPI_Comm or an ncclComm_t, which is
 *                    read before the call returns. NULL, with "mpi" only: MPI_COMM_WORLD, and MPI
 *                    is started if it is not running.
 * @param nativeBytes Size of that handle.
 * @param config      NULL: all defaults. Its transport is ignored.
 * @return onebitInvalidArgument  also: `transport` is unknown, or `native` cannot be used; the text
 *                                says why.
 * @return onebitInvalidUsage     the transport cannot join another library's communicator, the
 *                                other library is in the wrong state (the text says which), or
 *                                ONEBIT_TRANSPORT names another transport.
 *
 * Further errors: those of every join. Thread safety: any thread that may call the other library.
 */
ONEBIT_API onebitResult_t onebitCommInitFrom(onebitComm_t* comm, const char* transport,
                                             const void* native, size_t nativeBytes,
                                             const onebitConfig_t* config);

/** `color` of a rank that takes part in a split but wants no communicator. NCCL's value. */
#define ONEBIT_SPLIT_NOCOLOR (-1)

/**
 * Splits `comm` into new communicators: ranks with equal `color` form one, ordered by `key` and,
 * for equal keys, by rank. Collective over `comm`, which stays as it is.
 *
 * @param comm    Healthy, of any kind. The new communicators use its transport.
 * @param color   0 or more; or ONEBIT_SPLIT_NOCOLOR: this rank becomes part of none.
 * @param key     Any number.
 * @param newcomm Receives the handle, NULL for ONEBIT_SPLIT_NOCOLOR.
 * @param config  NULL: as `comm` was made. Otherwise the environment wins over its members, and
 *                these over the defaults, as for onebitCommInitRankConfig; its transport may only
 *                be NULL or that of `comm`.
 * @return onebitInvalidArgument  also: the color of some rank is below ONEBIT_SPLIT_NOCOLOR (on all
 *                                ranks).
 * @return onebitMismatch         also: a rank is rebinding a compressor.
 * @return onebitTimeout          a rank did not come within connectTimeoutMs, e.g. because it is in
 *                                a collective; this puts `comm` out of use.
 *
 * Further errors: those of every join, and the error that put `comm` out of use. Thread safety: one
 * thread at a time per `comm`. Mirrors ncclCommSplit.
 */
ONEBIT_API onebitResult_t onebitCommSplit(onebitComm_t comm, int color, int key,
                                          onebitComm_t* newcomm, const onebitConfig_t* config);

/**
 * Reads the counters. stats->size must be set; members beyond the library's own size are left
 * alone. Thread safety: any thread; exact when no call is running.
 */
ONEBIT_API onebitResult_t onebitCommGetStats(onebitComm_t comm, onebitCommStats_t* stats);

/* ==================================================================================== Recovery */

/** Writes the error that put `comm` out of use, else onebitSuccess. Thread safety: any thread. */
ONEBIT_API onebitResult_t onebitCommGetAsyncError(onebitComm_t comm, onebitResult_t* result);

/**
 * Lists the lost ranks, in ascending order: those known to be lost or, once a Shrink without a list
 * has succeeded, those that did not come. `count` receives how many; `ranks` is NULL, or has room
 * for as many as `count` says at first. Thread safety: any thread.
 */
ONEBIT_API onebitResult_t onebitCommGetLost(onebitComm_t comm, int* ranks, int* count);

/**
 * Stops a communicator: calls that are blocked in it, on any rank, return an error within 1 s.
 *
 * Afterwards the buffers of interrupted calls are the caller's again, and only Shrink, Destroy,
 * GetAsyncError, GetStats, Count, UserRank and GetLastError make sense. Unlike with ncclCommAbort
 * the handle stays valid until onebitCommDestroy, so a watchdog and the trainer may both call it.
 *
 * Thread safety: any thread, any number of times, even while another thread is inside a call.
 */
ONEBIT_API onebitResult_t onebitCommAbort(onebitComm_t comm);

/** `shrinkFlags`, with NCCL's values. */
#define ONEBIT_SHRINK_DEFAULT 0 /* no call is inside `comm` */
#define ONEBIT_SHRINK_ABORT 1   /* onebitCommAbort comes first */

/**
 * Makes a communicator of the ranks of `comm` that remain, even if `comm` has failed: how a job
 * continues after it has lost a rank. Collective over the ranks that remain; they keep their order.
 *
 *   if (onebitAllReduce(..., compressor, comm, NULL) == onebitPeerLost) {
 *     onebitCommShrink(comm, NULL, 0, &newcomm, NULL, ONEBIT_SHRINK_ABORT);
 *     onebitCompressorRebind(compressor, newcomm, &source);
 *     onebitBroadcast(parameters, parameters, ..., source, newcomm, NULL);
 *     onebitCommDestroy(comm);
 *   }
 *
 * Without a list, whoever comes is in. Processes meet at the lowest rank that answers. They wait
 * for a rank that lives but has not made this call yet for up to the first connectTimeoutMs, for
 * one that does not answer for shrinkGraceMs, and not at all for one whose process has ended. Then
 * they go on; a rank that comes later is refused, unless more come. With a list, exactly the others
 * meet. With quorum 0 both halves of a network that was cut in two go on, and may write the same
 * checkpoint. With 1, more than half of the ranks go on, or half including the lowest; those whose
 * process has ended do not count. With two ranks, rank 1 cannot go on if rank 0's host is lost.
 *
 * A failed attempt may be repeated. If the last message is lost, one rank may get an error where
 * others succeed: keep `comm`, and shrink it again, until a collective on `newcomm` has succeeded.
 *
 * @param comm              Must still be destroyed. It stays usable if it had not failed and
 *                          ONEBIT_SHRINK_ABORT is not given.
 * @param excludeRanksList  NULL, or ranks that do not take part, in any order; equal on all.
 * @param excludeRanksCount Entries of the list.
 * @param newcomm           Receives the handle.
 * @param config            As for onebitCommSplit.
 * @param shrinkFlags       ONEBIT_SHRINK_DEFAULT or ONEBIT_SHRINK_ABORT.
 * @return onebitInvalidUsage  also: this rank is excluded, by the list or because the others went
 *                             on; there is no quorum; or the transport (mpi) cannot go on.
 * @return onebitMismatch      also: ranks differ in what they exclude.
 * @return onebitAborted       another thread called onebitCommAbort in the meantime.
 *
 * Further errors: those of every join. Thread safety: one thread at a time per `comm`; after
 * ONEBIT_SHRINK_ABORT a collective of another returns onebitAborted. Mirrors ncclCommShrink.
 */
ONEBIT_API onebitResult_t onebitCommShrink(onebitComm_t comm, const int* excludeRanksList,
                                           int excludeRanksCount, onebitComm_t* newcomm,
                                           const onebitConfig_t* config, int shrinkFlags);

/* ================================================================================= Diagnostics */

/** Writes the version of the library in use, as ONEBIT_VERSION_CODE. Thread safety: any thread. */
ONEBIT_API onebitResult_t onebitGetVersion(int* version);

/** Severity of a log line: NCCL's levels (ONEBIT_DEBUG=VERSION, WARN, INFO or TRACE). */
typedef enum {
  onebitLogNone = 0,
  onebitLogVersion = 1,
  onebitLogWarn = 2,
  onebitLogInfo = 3,
  onebitLogTrace = 4
} onebitLogLevel_t;

/** Receives a log line without newline, from any thread, one at a time; must not call onebit. */
typedef void (*onebitLogCallback_t)(onebitLogLevel_t level, const char* text, void* argument);

/**
 * Sends the log to `callback` instead of stderr (or ONEBIT_DEBUG_FILE). The level still filters.
 *
 * @param callback NULL restores the default. When this function returns, the former callback is no
 *                 longer running.
 * @param argument Passed to every call of `callback`; may be NULL. Not owned.
 *
 * Thread safety: any thread.
 */
ONEBIT_API onebitResult_t onebitSetLogCallback(onebitLogCallback_t callback, void* argument);

/** Scope of a saved state, for state.h, sync.h and optim.h. */
typedef enum {
  onebitStateRank = 0,  /* this rank's residuals, bit for bit: for the same rank of as many ranks */
  onebitStateGlobal = 1 /* what all ranks together still owe: for any number of ranks */
} onebitStateKind_t;

#ifdef __cplusplus
} /* extern "C" */
#endif

#include "onebit/compressors.h"
#include "onebit/group.h"
#include "onebit/memory.h"
#include "onebit/optim.h"
#include "onebit/parts.h"
#include "onebit/schedule.h"
#include "onebit/setting.h"
#include "onebit/state.h"
#include "onebit/stream.h"
#include "onebit/sync.h"

#endif /* ONEBIT_H_ */
