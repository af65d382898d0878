/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * onebitCommInitNccl: a communicator of the ranks of an ncclComm_t.
 *
 * For programs that use NCCL themselves. Include it after or instead of <nccl.h> of the NCCL that
 * the program is compiled with; libonebit itself links none, and uses the one that the program has
 * loaded.
 */
#ifndef ONEBIT_NCCL_H_
#define ONEBIT_NCCL_H_

#include <nccl.h>

#include "onebit/onebit.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Makes a communicator of the ranks of `native`, in their order, that works on `native` itself.
 *
 * Collective on `native`; before the call the device of `native` must be the current one of the
 * thread. No second communicator of NCCL is made, now or later. So from here on calls of NCCL on
 * `native` and calls of this library on the new communicator are calls on one and the same
 * communicator: every rank makes them in the same order, one at a time, and none of them inside a
 * group that ncclGroupStart has begun. If `native` does not block (its configuration has
 * `blocking` 0), its last call must have left ncclInProgress before the next one of this library.
 * Communicators that were joined are in one group of this library only if they are alike in that:
 * NCCL forbids any other group, does not refuse it, and its effects are undefined.
 *
 * All ranks make their calls on several communicators in one and the same order, and what is in a
 * group of this library on one rank is in such a group on all: a group connects its communicators
 * in an order of its own, and ranks that connect in different orders wait for each other for ever.
 *
 * `native` stays the caller's. Destroy the new communicator before it; the graphs that hold calls
 * on either of them go first.
 *
 * onebitCommAbort, an error that ends the new communicator, and onebitCommDestroy 5 seconds after
 * it came upon a replay of captured calls or a device that does not become idle, end the work that
 * is under way on `native`, too: with NCCL 2.28.7 or later it is revoked (ncclCommRevoke), so that
 * it is good for ncclCommDestroy, ncclCommSplit and ncclCommShrink only. A warning in the log says
 * where that went wrong: if NCCL has refused it, the caller ends `native` by ncclCommAbort; if NCCL
 * was not done within 5 seconds, as it waits for streams, it goes on, and the caller leaves
 * `native` as it is. An older NCCL has nothing that stops a communicator and leaves it to its
 * owner: the new communicator then refuses all calls, but work on the device goes on waiting for
 * its peers until the caller ends `native` by ncclCommAbort.
 *
 * @param comm   receives the handle; not NULL. Written only on success.
 * @param native a communicator of NCCL 2.10 or later.
 * @param config NULL: all defaults. Its transport does not count.
 * @return onebitInvalidArgument  `comm` is NULL, or `native` is NULL or no communicator.
 * @return onebitInvalidUsage     the device of `native` is not the current one, ONEBIT_TRANSPORT
 *                                names another transport, or ONEBIT_NCCL_LIB another file of NCCL
 *                                than the one that the program has loaded.
 * @return onebitUnhandledCudaError  a call of the CUDA driver failed.
 * @return onebitTimeout          `native` was not ready, or not all ranks came, in time.
 * @return as onebitCommInitRankConfig for the rest.
 *
 * Thread safety: one thread at a time per `native`.
 */
static inline onebitResult_t onebitCommInitNccl(onebitComm_t* comm, ncclComm_t native,
                                                const onebitConfig_t* config) {
  return onebitCommInitFrom(comm, "nccl", &native, sizeof native, config);
}

#ifdef __cplusplus
}
#endif

#endif /* ONEBIT_NCCL_H_ */
