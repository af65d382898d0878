/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Streams on host memory: calls that run while the caller computes. Included by onebit.h. (Calls on
 * the memory of CUDA devices take a cudaStream_t instead: memory.h.)
 *
 *   onebitStream_t stream;
 *   onebitStreamCreate(&stream);
 *   onebitAllReduce(gradients, gradients, count, onebitFloat32, onebitAvg, compressor, comm,
 *                   stream);
 *   ...                                                    // computes something else
 *   onebitResult_t result = onebitStreamSynchronize(stream);
 */
#ifndef ONEBIT_STREAM_H_
#define ONEBIT_STREAM_H_

#include "onebit/onebit.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Makes a stream for host memory: a thread that makes the calls it is given one after the other.
 *
 * All ranks must make the calls of a communicator in the same order. So its calls may be pending on
 * one stream only, and no blocking call may be made in the meantime: anything else is
 * onebitInvalidUsage. The same holds for what needs an idle handle, such as onebitCompressorReset.
 * Up to 1024 calls may be pending; queueing one more waits for room, or is onebitInvalidUsage on
 * the stream's own thread.
 *
 * With transport mpi the calls come from a thread of the library: it needs MPI_THREAD_MULTIPLE.
 *
 * @param stream Receives the handle. About 200 KiB of memory.
 * @return onebitSystemError  no thread could be started, or 1024 streams are alive.
 *
 * Thread safety: any thread. Mirrors cudaStreamCreate.
 */
ONEBIT_API onebitResult_t onebitStreamCreate(onebitStream_t* stream);

/**
 * Waits for all calls on a stream, each for as long as it may take, and frees the stream.
 *
 * @param stream NULL does nothing.
 * @return onebitInvalidArgument  `stream` is not alive.
 * @return onebitInvalidUsage     called by a function of onebitStreamLaunchHostFunc on this stream.
 * @return what onebitStreamSynchronize would have returned; the stream is freed nevertheless.
 *
 * Thread safety: no other thread may still be using `stream`.
 */
ONEBIT_API onebitResult_t onebitStreamDestroy(onebitStream_t stream);

/**
 * Waits until all calls on a stream are done, and returns the first error since the last time.
 *
 * A call that fails stops those after it only if it puts their communicator out of use.
 * onebitCommAbort from another thread ends a call that is running.
 *
 * @return the first error of a call since this was last called, with its text.
 * @return onebitInvalidArgument  `stream` is not alive.
 * @return onebitInvalidUsage     called by a function of onebitStreamLaunchHostFunc on this stream.
 *
 * Thread safety: one thread at a time per stream, for this function and for giving it calls.
 * Mirrors cudaStreamSynchronize.
 */
ONEBIT_API onebitResult_t onebitStreamSynchronize(onebitStream_t stream);

/**
 * Tells whether all calls on a stream are done. Does not wait.
 *
 * @return onebitInProgress       not yet; not an error.
 * @return onebitSuccess, or the error that onebitStreamSynchronize will return.
 * @return onebitInvalidArgument  `stream` is not alive.
 *
 * Thread safety as for onebitStreamSynchronize. Mirrors cudaStreamQuery.
 */
ONEBIT_API onebitResult_t onebitStreamQuery(onebitStream_t stream);

/** A caller's function that a stream runs. A result other than onebitSuccess is an error of
 * the stream. */
typedef onebitResult_t (*onebitHostFunc_t)(void* argument);

/**
 * Queues a function after the calls on a stream, e.g. to update the parameters whose gradients they
 * reduce.
 *
 * It runs on the stream's thread, where blocking calls of its own take their place in the order. It
 * is skipped if a call before it has failed since the last onebitStreamSynchronize, so it never
 * works on a result that does not exist.
 *
 * @param function Must not throw.
 * @param argument Passed on; may be NULL. What it points to must live until the function has run.
 * @return onebitInvalidArgument  also: `stream` is not alive.
 *
 * Thread safety as for onebitStreamSynchronize. Mirrors cudaLaunchHostFunc.
 */
ONEBIT_API onebitResult_t onebitStreamLaunchHostFunc(onebitStream_t stream,
                                                     onebitHostFunc_t function, void* argument);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ONEBIT_STREAM_H_ */
