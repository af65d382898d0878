/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Groups: many collectives in few messages, so that many small tensors wait for the network only
 * once. Included by onebit.h.
 *
 *   onebitGroupStart();
 *   for (int i = 0; i < tensors; ++i)
 *     onebitAllReduce(gradients[i], gradients[i], counts[i], onebitFloat32, onebitAvg,
 *                     compressors[i], comm, NULL);
 *   onebitResult_t result = onebitGroupEnd();
 */
#ifndef ONEBIT_GROUP_H_
#define ONEBIT_GROUP_H_

#include "onebit/onebit.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Begins a group: this thread's collectives are checked and kept, and onebitGroupEnd makes them all
 * in few messages. Results, residuals and compressor stats are those of the same calls made one by
 * one, to the byte.
 *
 * Inside a group
 *   - All ranks make the same calls in the same order and have the same groups. If the group of
 *     some rank differs, it is onebitMismatch on every rank; the text has the first call that
 *     differs.
 *   - Buffers belong to the group: onebitGroupEnd reads inputs and writes outputs in no particular
 *     order, so no call may use what another one writes.
 *   - A compressor may have only one call in the group, and none pending on a stream, and no call
 *     outside the group may use it.
 *   - All calls have the same stream, or none; over transport nccl this holds for each communicator
 *     separately. On a stream, onebitGroupEnd queues the group.
 *   - Calls may be on several communicators, including those of several ranks of this process
 *     (onebitCommInitAll): one thread can make the calls of all ranks.
 *   - Functions other than collectives act at once. Those that need the result of a collective are
 *     onebitInvalidUsage: onebitSyncStep, calls with onebitCodecLossless and, of optim.h, Step,
 *     Rebind, Sync, Rewarm, Export and Import. onebitCommDestroy of a communicator with calls in
 *     the group is refused, too.
 *
 * Groups nest; only the outermost end makes the calls. Calls of up to ONEBIT_GROUP_ELEMENTS
 * elements travel together. Larger ones, onebitAllToAllv, dense ones that the transport itself
 * reduces, and calls with weights in two levels go one by one.
 *
 * The communicator keeps the memory for the packets of a group, and the plans of the last groups. A
 * group that is made again allocates nothing, except a list for the library's thread where that
 * thread makes the calls.
 *
 * @return onebitSuccess.
 *
 * Thread safety: any thread; each has its own groups.
 */
ONEBIT_API onebitResult_t onebitGroupStart(void);

/**
 * Ends a group. The outermost end makes its calls and returns when all are done.
 *
 * Either all calls on a communicator succeed, or none has happened: after an error no compressor
 * has new residuals, and the content of all output buffers is undefined. (A compressor that is not
 * transactional loses its residuals if its call had begun. memory.h has the rule for transport
 * nccl.) A value that is not finite makes the output of its own call NaN and is no error. With
 * several communicators each succeeds or fails for itself; the first error is returned.
 *
 * @return onebitInvalidUsage  this thread is in no group; another thread is inside a call on one of
 *                             its communicators; or no other thread of the process can make the
 *                             calls of ranks that have none in the group. Nothing was sent.
 * @return the error of the first call in the group that failed its checks. No call was made and the
 *         communicators stay usable, but other ranks may wait for this one, as for any call that it
 *         does not make.
 *
 * Further errors: those of every collective. Thread safety: one thread at a time per communicator
 * and per compressor with calls in the group.
 */
ONEBIT_API onebitResult_t onebitGroupEnd(void);

#ifdef __cplusplus
}
#endif

#endif /* ONEBIT_GROUP_H_ */
