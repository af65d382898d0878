/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * onebitCommInitMpi: a communicator of the ranks of an MPI_Comm.
 *
 * For programs that use MPI themselves. Include it after, or instead of, <mpi.h> of the MPI that
 * the program is compiled with. libonebit itself links no MPI; it opens transport `mpi` for that
 * one.
 */
#ifndef ONEBIT_MPI_H_
#define ONEBIT_MPI_H_

#include <mpi.h>

#include "onebit/onebit.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Makes a communicator of the ranks of `native`, in their order. Collective on `native`.
 *
 * The library works on a duplicate: `native` stays the caller's, who may use it for messages at the
 * same time and free it afterwards. During this call the error handler of `native` is
 * MPI_ERRORS_RETURN, so that MPI's errors come back as results; then the former one is restored.
 *
 * Call MPI_Init_thread first, and destroy the communicator before MPI_Finalize. MPI's thread level
 * decides who may make calls: with MPI_THREAD_MULTIPLE any thread; with MPI_THREAD_SERIALIZED one
 * at a time, counting all other MPI calls; below that only the thread that initialised MPI.
 *
 * Below MPI_THREAD_MULTIPLE a communicator of a part of MPI_COMM_WORLD (onebitCommInitRank,
 * onebitCommInitEnv, onebitCommSplit, onebitCommShrink) is made by MPI_Comm_create_group, which
 * waits for its ranks without a limit: neither time-outs nor onebitCommAbort end it. This function
 * has no such restriction.
 *
 * @param comm   Receives the handle.
 * @param native An intracommunicator.
 * @param config NULL: all defaults. Its transport is ignored.
 * @return onebitInvalidArgument  also: `native` is MPI_COMM_NULL or an intercommunicator.
 * @return onebitInvalidUsage     also: MPI is not running, another MPI's launcher was used, the
 *                                thread level does not allow the call, or ONEBIT_TRANSPORT names
 *                                another transport.
 *
 * Further errors: those of every join. Thread safety: any thread that MPI's thread level allows.
 */
static inline onebitResult_t onebitCommInitMpi(onebitComm_t* comm, MPI_Comm native,
                                               const onebitConfig_t* config) {
  return onebitCommInitFrom(comm, "mpi", &native, sizeof native, config);
}

#ifdef __cplusplus
}
#endif

#endif /* ONEBIT_MPI_H_ */
