/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Streams on host memory: calls that go on while the caller computes. Part of onebit.h, which
 * includes it.
 */
#ifndef ONEBIT_STREAM_H_
#define ONEBIT_STREAM_H_

#include "onebit/onebit.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Makes a stream for host memory: a thread that makes the calls it is given one after the other,
 * so that they go on while the caller computes.
 *
 * Calls with one communicator have to come in the same order on all ranks, so at any time they are
 * pending on one stream only, and none blocks meanwhile: anything else is onebitInvalidUsage. Up to
 * 1024 calls may be pending; one more waits for room. What needs an idle handle, such as
 * onebitCompressorReset, is onebitInvalidUsage while calls with it are pending.
 *
 * With the transport mpi the calls come from a thread of the library: it needs MPI_THREAD_MULTIPLE.
 *
 * @param stream receives the handle; not NULL. Written only on success.
 * @return onebitInvalidArgument  `stream` is NULL.
 * @return onebitSystemError      no thread could be started, or 1024 streams are alive.
 * @return onebitOutOfMemory      not enough memory (about 200 KiB).
 *
 * Thread safety: any thread. Mirrors cudaStreamCreate.
 */
ONEBIT_API onebitResult_t onebitStreamCreate(onebitStream_t* stream);

/**
 * Waits for all calls on a stream, as long as each may take, and frees it.
 *
 * @param stream NULL is allowed and does nothing.
 * @return onebitInvalidArgument  it is no stream that is alive.
 * @return onebitInvalidUsage     called by a function of onebitStreamLaunchHostFunc on this stream.
 * @return what onebitStreamSynchronize would have returned; the stream is gone all the same.
 *
 * Thread safety: one thread; no other thread may use `stream` any more.
 */
ONEBIT_API onebitResult_t onebitStreamDestroy(onebitStream_t stream);

/**
 * Waits until all calls on a stream are done.
 *
 * @return the first error of a call since the last time this was called, with its text; a call
 *         that fails ends those behind it only as far as it puts their communicator out of use.
 *         onebitCommAbort, from another thread, ends a call that is going on.
 * @return onebitInvalidArgument  it is no stream that is alive.
 * @return onebitInvalidUsage     called by a function of onebitStreamLaunchHostFunc on this stream.
 *
 * Thread safety: one thread at a time per stream, for this and for giving it calls. Mirrors
 * cudaStreamSynchronize.
 */
ONEBIT_API onebitResult_t onebitStreamSynchronize(onebitStream_t stream);

/**
 * Whether all calls on a stream are done. Does not wait.
 *
 * @return onebitInProgress  not yet; not an error.
 * @return onebitSuccess, or the error that onebitStreamSynchronize is going to return.
 * @return onebitInvalidArgument  it is no stream that is alive.
 *
 * Thread safety as for onebitStreamSynchronize. Mirrors cudaStreamQuery.
 */
ONEBIT_API onebitResult_t onebitStreamQuery(onebitStream_t stream);

/** What a stream calls in its turn. A result other than onebitSuccess is an error of the stream. */
typedef onebitResult_t (*onebitHostFunc_t)(void* argument);

/**
 * Queues a function of the caller's behind the calls on a stream: to use their results, such as
 * to update the parameters whose gradients they reduce. It runs on the stream's thread, where calls
 * that block have their place in the order, too. It is not called if a call before it has failed
 * since the last onebitStreamSynchronize, so that it never works on what was not made.
 *
 * @param function not NULL; must not throw.
 * @param argument passed on; must be valid until the function has run.
 * @return onebitInvalidArgument  `function` is NULL, or `stream` is no stream that is alive.
 *
 * Thread safety as for onebitStreamSynchronize. Mirrors cudaLaunchHostFunc.
 */
ONEBIT_API onebitResult_t onebitStreamLaunchHostFunc(onebitStream_t stream,
                                                     onebitHostFunc_t function, void* argument);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ONEBIT_STREAM_H_ */
