/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * 1-bit sync: ranks add up what they would have sent, and average the sums every so many steps, at
 * one bit per element. The steps in between send nothing at all. Part of onebit.h, which includes
 * it.
 *
 *   onebitSyncSchedule_t schedule = ONEBIT_SYNC_SCHEDULE_INIT;
 *   schedule.warmupSteps = 100;                   // a sync at each of them
 *   schedule.maxInterval = 16;
 *   schedule.doubleEvery = 1000;
 *   onebitSync_t sync;
 *   onebitSyncCreate(&sync, compressor, &schedule);
 *   for (...) {
 *     // what this rank adds, weighted: e.g. lr * momentum, with weight lr
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
 * When ranks synchronise. Start from ONEBIT_SYNC_SCHEDULE_INIT and set what differs. Equal on all
 * ranks.
 *
 * Steps count from 0. Those before warmupSteps are syncs. After them one is due when
 * min(baseInterval * 2^k, maxInterval) steps have been made since the last, k being the steps since
 * the warm-up divided by doubleEvery (0/1 Adam, Lu et al. 2023, section 4).
 */
typedef struct {
  size_t size;          /* sizeof(onebitSyncSchedule_t) */
  uint32_t magic;       /* ONEBIT_CONFIG_MAGIC */
  uint32_t version;     /* ONEBIT_VERSION_CODE */
  int64_t warmupSteps;  /* >= 0; default 0 */
  int64_t baseInterval; /* steps, >= 1; default 1 */
  int64_t doubleEvery;  /* steps after which the interval doubles; 0 (default): never */
  int64_t maxInterval;  /* steps, at least baseInterval; default 16 */
} onebitSyncSchedule_t;

#define ONEBIT_SYNC_SCHEDULE_INIT \
  { sizeof(onebitSyncSchedule_t), ONEBIT_CONFIG_MAGIC, ONEBIT_VERSION_CODE, 0, 1, 0, 16 }

/**
 * Makes a sync for the tensor of `compressor`, at step 0 with a sum of zero.
 *
 * Memory: 4 bytes per element for the sum u, where the compressor's residuals are: on the host, or
 * on a CUDA device. Local: sends nothing.
 *
 * @param sync       receives the handle; not NULL. Written only on success.
 * @param compressor for onebitFloat32; not owned. While it has a sync, it serves nothing else, and
 *                   cannot be destroyed.
 * @param schedule   NULL: all defaults, a sync at every step. Copied.
 * @return onebitInvalidArgument  a NULL handle, a compressor of another datatype or collective, or
 *                                a member of `schedule` out of range; the text names it.
 * @return onebitInvalidUsage     the compressor has a sync already, was used with onebitSum, or a
 *                                call is using it.
 * @return onebitOutOfMemory      not enough memory for the sum.
 *
 * Thread safety: one thread at a time per compressor.
 */
ONEBIT_API onebitResult_t onebitSyncCreate(onebitSync_t* sync, onebitCompressor_t compressor,
                                           const onebitSyncSchedule_t* schedule);

/**
 * Frees a sync, not its compressor. Local.
 *
 * @param sync NULL is allowed and does nothing.
 * @return onebitInvalidUsage  a call is using it.
 *
 * Thread safety: one thread; no other thread may use `sync` any more.
 */
ONEBIT_API onebitResult_t onebitSyncDestroy(onebitSync_t sync);

/**
 * One step: u += x and L += weight. If a sync is due, `out` becomes the mean of u over the ranks,
 * in one compressed allreduce, and then u = 0 and L = 0. Otherwise the step is local: it sends
 * nothing, whatever state the communicator is in.
 *
 * Every rank calls it at every step, with the same weights: with a sync ranks compare L, bit for
 * bit. If L is 0 when a sync is due, the sync waits for the next step.
 *
 * A NaN or an infinity in the u of any rank makes all of `out` NaN on every rank at the next sync
 * (onebitAllReduce); u and L become 0 all the same, and the residuals stay as they were. So a rank
 * with a bad step spoils the interval, and nothing after it.
 *
 * After an error u, L, residuals and step are what they were, so that the step can be made again,
 * on another communicator after onebitCompressorRebind. If that rolls this rank forward, other
 * ranks had finished the sync, and it is done here, too: the epoch in the compressor's stats tells.
 * Then do not make the step again, but take the result from the `source` that Rebind has named.
 *
 * On a device a step that sends nothing is enqueued on `stream`, and waits for nothing. A sync
 * waits on the host until its result is there, and is then done on this rank. Neither can be
 * captured into a graph. Over nccl the compressor's counters are read first, which waits once more.
 * Steps may be on different streams. The other functions of a sync wait for its steps.
 *
 * @param x          fp32, as many as the compressor has; added as they are, already weighted. Any
 *                   values. In the memory of the compressor's residuals, like `out`.
 * @param weight     finite and not negative; equal on all ranks.
 * @param out        fp32, as many; equal to x or no overlap. Written by a sync only; undefined
 *                   after an error, so that a step can be made again only where x is another
 *                   buffer.
 * @param didSync    receives 1 after a sync, else 0; not NULL.
 * @param weightSum  receives L after a sync, and is left alone otherwise; not NULL.
 * @param stream     Host memory: NULL, and a sync blocks until the result is there; otherwise the
 *                   step is queued, and x, out, *didSync and *weightSum are the stream's until it
 *                   is done. Memory of a device: a cudaStream_t of it, NULL being its default
 *                   stream; *didSync and *weightSum are written before the call returns.
 * @return onebitInvalidArgument  a NULL argument (buffers may be NULL if there are no elements), a
 *                                weight out of range, overlapping buffers, buffers that are not
 *                                where the residuals are, or a stream that is not alive or does not
 *                                fit.
 * @return onebitInvalidUsage     `stream` is being captured; and what onebitAllReduce says.
 * @return onebitUnhandledCudaError  the device is broken.
 * @return onebitMismatch         ranks differ in L, or make different calls; the text shows both
 *                                sides.
 * @return onebitDetached         a sync is due, and the compressor's communicator was destroyed.
 *
 * Other errors of a sync are those of onebitAllReduce. Thread safety: one thread at a time per sync
 * and, if a sync is due, per communicator.
 */
ONEBIT_API onebitResult_t onebitSyncStep(onebitSync_t sync, const float* x, float weight,
                                         float* out, int* didSync, float* weightSum,
                                         onebitStream_t stream);

/**
 * What the next steps are, if no weight sum is 0: '1' for a sync, '.' for a local step.
 *
 * @param steps how many.
 * @param text  receives that many characters and a zero; not NULL.
 * @return onebitInvalidArgument  an argument is NULL.
 * @return onebitInvalidUsage     a call is using the sync.
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
 * onebitStateGlobal is collective, between the same two steps on all ranks, and is the same on all.
 * It has the mean of u over the ranks, and what the compressor's onebitStateGlobal has: any number
 * of ranks that load it go on at the same step of the schedule, and owe as much. It sends about
 * what three dense allreduces do, also where the last step was a local one.
 *
 * @return onebitInvalidUsage  onebitStateGlobal, also: the mean of u is not finite. Make steps up
 *                             to the next sync, which drops such a u.
 *
 * Parameters, other errors and thread safety are those of onebitCompressorExport.
 */
ONEBIT_API onebitResult_t onebitSyncExport(onebitSync_t sync, onebitStateKind_t kind, void* buffer,
                                           size_t* bytes);

/**
 * Replaces all that by a state of onebitSyncExport, in the sync and in its compressor.
 *
 * @return onebitMismatch  also: the state has another schedule, or is no state of a sync.
 *
 * Parameters, other errors and thread safety are those of onebitCompressorImport. After an error
 * sync and compressor are what they were.
 */
ONEBIT_API onebitResult_t onebitSyncImport(onebitSync_t sync, const void* blob, size_t bytes);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ONEBIT_SYNC_H_ */
