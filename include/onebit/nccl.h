/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * onebitCommInitNccl: a communicator of the ranks of an ncclComm_t.
 *
 * For programs that use NCCL themselves. Include it after, or instead of, <nccl.h> of the NCCL that
 * the program is compiled with. libonebit itself links no NCCL; it uses the one that the program
 * has loaded.
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
 * Collective on `native`, whose device must be the current one of the calling thread.
 *
 * Sharing. The library makes no second communicator of NCCL, now or later. From here on NCCL calls
 * on `native` and onebit calls on the new communicator use the same NCCL communicator: every rank
 * must make them in the same order, one at a time, and none inside an open ncclGroupStart. If
 * `native` is non-blocking (`blocking` 0 in its configuration), its last call must have left
 * ncclInProgress before the next call of onebit. Joined communicators may share an onebit group
 * only if all or none of them are non-blocking: NCCL forbids other groups, does not refuse them,
 * and their effects are undefined.
 *
 * Order. All ranks must make their calls on several communicators in one common order, and calls
 * that form one onebit group on one rank must do so on all. A group connects its communicators in
 * an order of its own, and ranks that connect in different orders wait for each other forever.
 *
 * Lifetime. `native` stays the caller's. Destroy first the graphs that hold calls on either, then
 * the new communicator, then `native`.
 *
 * Failure. The work in flight on `native` also ends when the new communicator is aborted
 * (onebitCommAbort), when an error puts it out of use, and when onebitCommDestroy has waited 5
 * seconds for a replay of captured calls or for a device that does not become idle. With NCCL
 * 2.28.7 or later `native` is revoked (ncclCommRevoke): it is good for ncclCommDestroy,
 * ncclCommSplit and ncclCommShrink only. If that goes wrong, a warning in the log says so: if NCCL
 * refused to revoke, end `native` by ncclCommAbort; if NCCL did not finish within 5 seconds,
 * because it waits for streams, it continues in the background, and `native` must be left alone. An
 * older NCCL cannot stop a communicator without freeing it: the new communicator then refuses all
 * calls, but work on the device keeps waiting for its peers until the caller ends `native` by
 * ncclCommAbort.
 *
 * @param comm   Receives the handle.
 * @param native A communicator of NCCL 2.10 or later.
 * @param config NULL: all defaults. Its transport is ignored.
 * @return onebitInvalidArgument  also: `native` is not a communicator.
 * @return onebitInvalidUsage     also: the device of `native` is not the current one,
 *                                ONEBIT_TRANSPORT names another transport, or ONEBIT_NCCL_LIB names
 *                                a file other than that of the NCCL that the program has loaded.
 * @return onebitUnhandledCudaError  a call of the CUDA driver failed.
 * @return onebitTimeout          also: `native` was not ready in time.
 *
 * Further errors: those of every join. Thread safety: one thread at a time per `native`.
 */
static inline onebitResult_t onebitCommInitNccl(onebitComm_t* comm, ncclComm_t native,
                                                const onebitConfig_t* config) {
  return onebitCommInitFrom(comm, "nccl", &native, sizeof native, config);
}

#ifdef __cplusplus
}
#endif

#endif /* ONEBIT_NCCL_H_ */
