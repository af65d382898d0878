/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Sync: ranks accumulate locally and average the sums on a schedule, at one bit per element.
 * The steps in between send nothing. Included by onebit.h.
 *
 *   onebitSyncSchedule_t schedule = ONEBIT_SYNC_SCHEDULE_INIT;
 *   schedule.warmupSteps = 100;                   // a sync at each of them
 *   schedule.maxInterval = 16;
 *   schedule.doubleEvery = 1000;
 *   onebitSync_t sync;
 *   onebitSyncCreate(&sync, compressor, &schedule);
 *   for (...) {
 *     // x is what this rank adds, already weighted: e.g. lr * momentum, with weight lr
 *     onebitSyncStep(sync, x, lr, mean, &did_sync, &weight_sum, NULL);
 *     if (did_sync) ...                           // the same on every rank: mean / weight_sum
 *   }
 */
#ifndef ONEBIT_SYNC_H_
#define ONEBIT_SYNC_H_

#include "onebit/onebit.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct onebitSync_s* onebitSync_t;

/**
 * The steps at which ranks synchronise. Start from ONEBIT_SYNC_SCHEDULE_INIT and set what differs.
 * Equal on all ranks.
 *
 * Steps count from 0. Those before warmupSteps are syncs. After them a sync is due when
 * min(baseInterval * 2^k, maxInterval) steps have been made since the last one, where k is the
 * number of steps since the warm-up divided by doubleEvery (0/1 Adam, Lu et al. 2023, section 4).
 */
typedef struct {
  size_t size;          /* sizeof(onebitSyncSchedule_t) */
  uint32_t magic;       /* ONEBIT_CONFIG_MAGIC */
  uint32_t version;     /* ONEBIT_VERSION_CODE */
  int64_t warmupSteps;  /* >= 0; default 0 */
  int64_t baseInterval; /* steps, >= 1; default 1 */
  int64_t doubleEvery;  /* the interval doubles after this many steps; 0 (default): never */
  int64_t maxInterval;  /* steps, at least baseInterval; default 16 */
} onebitSyncSchedule_t;

#define ONEBIT_SYNC_SCHEDULE_INIT \
  { sizeof(onebitSyncSchedule_t), ONEBIT_CONFIG_MAGIC, ONEBIT_VERSION_CODE, 0, 1, 0, 16 }

/**
 * Makes a sync for the tensor of `compressor`, at step 0 with a sum of zero. Local: sends nothing.
 *
 * @param sync       Receives the handle. Memory: 4 bytes per element for the sum u, where the
 *                   compressor's residuals are, on the host or on a CUDA device.
 * @param compressor For allreduce of onebitFloat32. Not owned. As long as it has a sync it cannot
 *                   be used for anything else or destroyed.
 * @param schedule   NULL: all defaults, a sync at every step. Copied.
 * @return onebitInvalidArgument  also: the compressor has another datatype or collective, or a
 *                                member of `schedule` is out of range; the text names it.
 * @return onebitInvalidUsage     also: the compressor already has a sync, or was used with
 *                                onebitSum.
 *
 * Thread safety: one thread at a time per compressor.
 */
ONEBIT_API onebitResult_t onebitSyncCreate(onebitSync_t* sync, onebitCompressor_t compressor,
                                           const onebitSyncSchedule_t* schedule);

/**
 * Frees a sync, but not its compressor. Local.
 *
 * @param sync NULL does nothing.
 *
 * Thread safety: no other thread may still be using `sync`.
 */
ONEBIT_API onebitResult_t onebitSyncDestroy(onebitSync_t sync);

/**
 * Makes one step: u += x and L += weight. If a sync is due, `out` becomes the mean of u over the
 * ranks, by one compressed allreduce, and then u = 0 and L = 0. Otherwise the step is local: it
 * sends nothing and works whatever state the communicator is in.
 *
 * Every rank calls it at every step, with the same weights: at a sync the ranks compare L bit for
 * bit. If L is 0 when a sync is due, the sync is postponed to the next step.
 *
 * A NaN or infinity in the u of any rank makes all of `out` NaN on every rank at the next sync
 * (see onebitAllReduce). u and L become 0 nevertheless, and the residuals do not change. So a bad
 * step of one rank spoils its interval and nothing after it.
 *
 * After an error u, L, residuals and step are what they were, so the step can be repeated, on
 * another communicator after onebitCompressorRebind. If that rolls this rank forward (the epoch in
 * the compressor's stats tells), other ranks had finished the sync, and it counts as done here,
 * too: do not repeat the step, but take the result from the `source` that Rebind has named.
 *
 * On a device a local step is enqueued on `stream` and waits for nothing. A sync waits on the host
 * until its result is there, and is then complete on this rank. Over nccl it also reads the
 * compressor's counters first, which waits once more. Neither can be captured into a graph. Steps
 * may be on different streams; the other functions of a sync wait for its steps.
 *
 * @param x          fp32, as many elements as the compressor has, already weighted; any values. In
 *                   the memory of the compressor's residuals, like `out`. Both may be NULL if there
 *                   are no elements.
 * @param weight     Finite and not negative; equal on all ranks.
 * @param out        fp32, as many elements; equal to x or no overlap. Written by a sync only;
 *                   undefined after an error, so a step can be repeated only if x is another
 *                   buffer.
 * @param didSync    Receives 1 after a sync, else 0.
 * @param weightSum  Receives L after a sync; otherwise left alone.
 * @param stream     Host memory: NULL, and a sync blocks until the result is there. Or a stream of
 *                   onebitStreamCreate: the step is queued, and x, out, *didSync and *weightSum
 *                   belong to the stream until it is done. Device memory: a cudaStream_t of that
 *                   device, NULL being its default stream; *didSync and *weightSum are written
 *                   before the call returns.
 * @return onebitInvalidArgument  also: the weight is out of range, the buffers overlap in part or
 *                                are not where the residuals are, or the stream is not alive or of
 *                                the wrong kind.
 * @return onebitInvalidUsage     also: `stream` is being captured, or a group is open.
 * @return onebitUnhandledCudaError  the device is broken.
 * @return onebitMismatch         ranks differ in L, or make different calls; the text shows both
 *                                sides.
 * @return onebitDetached         a sync is due, and the compressor's communicator was destroyed.
 *
 * Further errors of a sync: those of every collective. Thread safety: one thread at a time per sync
 * and, if a sync is due, per communicator.
 */
ONEBIT_API onebitResult_t onebitSyncStep(onebitSync_t sync, const float* x, float weight,
                                         float* out, int* didSync, float* weightSum,
                                         onebitStream_t stream);

/**
 * Writes what the next steps will be unless a weight sum is 0: '1' for a sync, '.' for a local
 * step.
 *
 * @param steps How many.
 * @param text  Receives that many characters and a terminating zero.
 *
 * Thread safety: one thread at a time per sync.
 */
ONEBIT_API onebitResult_t onebitSyncNext(onebitSync_t sync, size_t steps, char* text);

/**
 * Writes u, L, the step and the compressor's state into `buffer`.
 *
 * onebitStateRank is local. With the states of the same step on all ranks a run continues bit for
 * bit as if it had not been interrupted.
 *
 * onebitStateGlobal is collective, between the same two steps on all ranks, and gives the same
 * bytes on all. It holds the mean of u over the ranks and the compressor's onebitStateGlobal: any
 * number of ranks that load it continue at the same step of the schedule and owe as much. It sends
 * about as much as three dense allreduces, even if the last step was a local one.
 *
 * @return onebitInvalidUsage  onebitStateGlobal, also: the mean of u is not finite. Make steps up
 *                             to the next sync, which discards such a u.
 *
 * Parameters, other errors and thread safety as for onebitCompressorExport.
 */
ONEBIT_API onebitResult_t onebitSyncExport(onebitSync_t sync, onebitStateKind_t kind, void* buffer,
                                           size_t* bytes);

/**
 * Replaces u, L, the step and the compressor's state with those of a state of onebitSyncExport.
 * After an error sync and compressor are what they were.
 *
 * @return onebitMismatch  also: the state has another schedule, or is not a state of a sync.
 *
 * Parameters, other errors and thread safety as for onebitCompressorImport.
 */
ONEBIT_API onebitResult_t onebitSyncImport(onebitSync_t sync, const void* blob, size_t bytes);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ONEBIT_SYNC_H_ */
