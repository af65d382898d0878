/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Groups: many collectives in few messages. Part of onebit.h, which includes it.
 */
#ifndef ONEBIT_GROUP_H_
#define ONEBIT_GROUP_H_

#include "onebit/onebit.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Begins a group: collectives of this thread are checked and kept until onebitGroupEnd, which makes
 * them all, in few messages: many small tensors wait for the network once.
 *
 *   onebitGroupStart();
 *   for (int i = 0; i < tensors; ++i)
 *     onebitAllReduce(gradients[i], gradients[i], counts[i], onebitFloat32, onebitAvg,
 *                     compressors[i], comm, NULL);
 *   onebitResult_t result = onebitGroupEnd();
 *
 * Results, residuals and stats of compressors are those of the same calls one by one, to the byte.
 * In between
 *   - all ranks make the same calls in the same order, and have the same groups. A rank whose group
 *     differs is onebitMismatch on every rank; the text has the first call that differs.
 *   - buffers belong to the group: inputs are read and outputs written by onebitGroupEnd, in no
 *     order, so no call may use what another one writes.
 *   - a compressor has one call in a group, none pending on a stream, and no other call may use it.
 *   - all calls have the same stream, or none; on a stream the end of the group queues it.
 *   - calls on several communicators may be made, also on those of several ranks of this process
 *     (onebitCommInitAll): one thread can make the calls of all ranks.
 *   - functions other than collectives act at once. onebitOptimizerStep and onebitOptimizerRebind
 *     (optim.h), which need results, are onebitInvalidUsage, as is onebitCommDestroy of a
 *     communicator with calls in the group.
 *
 * Groups nest; only the outermost end makes the calls. Calls of up to ONEBIT_GROUP_ELEMENTS
 * elements travel together; larger ones, onebitAllToAllv, and dense ones that the transport itself
 * reduces go one by one. The communicator keeps memory for the packets of all calls that have
 * travelled together, and what it planned for the last groups: a group that is made again allocates
 * nothing but, where a thread of the library makes its calls, a list that the thread is handed.
 *
 * @return onebitSuccess.
 *
 * Thread safety: any thread; each has its own groups.
 */
ONEBIT_API onebitResult_t onebitGroupStart(void);

/**
 * Ends a group. The outermost end makes its calls and returns when all are done.
 *
 * Either all calls on a communicator succeed, or none has happened: after an error none of their
 * compressors has new residuals (those that are not transactional lose them if their call had
 * begun; memory.h has the rule for transport nccl), and the content of all output buffers is
 * undefined. A value that is not finite makes the output of its own call NaN, and is no error. With
 * several communicators each ends for itself; the first error is returned.
 *
 * @return onebitInvalidUsage  this thread is in no group, or another thread is inside a call on a
 *                             communicator of it, or the process has no other thread to make the
 *                             calls of ranks that have none in the group. Nothing was sent.
 * @return the error of the first call in the group that failed its checks; no call was made, and
 *         communicators stay usable. Other ranks may wait for this one, as for any call that it
 *         does not make.
 *
 * Other errors are those of onebitAllReduce. Thread safety: one thread at a time per communicator
 * and per compressor with calls in the group.
 */
ONEBIT_API onebitResult_t onebitGroupEnd(void);

#ifdef __cplusplus
}
#endif

#endif /* ONEBIT_GROUP_H_ */
