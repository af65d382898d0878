/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * onebitCommInitMpi: a communicator of the ranks of an MPI_Comm.
 *
 * For programs that use MPI themselves. Include it after or instead of <mpi.h> of the MPI that the
 * program is compiled with; libonebit itself links none, and opens transport `mpi` for that MPI.
 */
#ifndef ONEBIT_MPI_H_
#define ONEBIT_MPI_H_

#include <mpi.h>

#include "onebit/onebit.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Makes a communicator of the ranks of `native`, in their order.
 *
 * Collective on `native`. The library works on a duplicate: `native` stays the caller's, who may
 * use it for messages at the same time and free it afterwards. Call MPI_Init_thread before, and
 * destroy the communicator before MPI_Finalize. Which threads may make calls is up to MPI's thread
 * level: MPI_THREAD_MULTIPLE any, MPI_THREAD_SERIALIZED one at a time with all other calls of MPI,
 * less only the thread that initialised MPI.
 *
 * Below MPI_THREAD_MULTIPLE calls that make a communicator of parts of MPI_COMM_WORLD, which are
 * onebitCommInitRank, onebitCommInitEnv, onebitCommSplit and onebitCommShrink, do so by
 * MPI_Comm_create_group, which waits for its ranks without an end: their time-outs and
 * onebitCommAbort do not reach into it. This call has no such exception.
 *
 * While this call lasts the error handler of `native` is MPI_ERRORS_RETURN, so that errors of MPI
 * come back as results; then it is what it was before.
 *
 * @param comm   receives the handle; not NULL. Written only on success.
 * @param native an intracommunicator.
 * @param config NULL: all defaults. Its transport does not count.
 * @return onebitInvalidArgument  `comm` is NULL, or `native` is MPI_COMM_NULL or an
 *                                intercommunicator.
 * @return onebitInvalidUsage     MPI is not running, the launcher was another MPI's, the thread
 *                                level does not allow the call, or ONEBIT_TRANSPORT names another
 *                                transport.
 * @return as onebitCommInitRankConfig for the rest.
 *
 * Thread safety: any thread that MPI's thread level allows.
 */
static inline onebitResult_t onebitCommInitMpi(onebitComm_t* comm, MPI_Comm native,
                                               const onebitConfig_t* config) {
  return onebitCommInitFrom(comm, "mpi", &native, sizeof native, config);
}

#ifdef __cplusplus
}
#endif

#endif /* ONEBIT_MPI_H_ */
