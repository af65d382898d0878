/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * onebit: memory of CUDA devices. onebit.h includes this file.
 *
 * Collectives take buffers in the memory of a CUDA device as they take those of the host. The
 * library finds out by itself, by asking CUDA's driver once the program has loaded it; it links
 * nothing of CUDA, and needs libonebit-cuda.so beside itself. Then `stream` is a cudaStream_t, NULL
 * being the legacy default stream of the device, and a call returns when all its work is enqueued
 * there. The host is never synchronised with the device, and the caller's current device stays what
 * it is. Results are those of host memory, to the bit; only which NaN a dense sum becomes is not
 * specified.
 *
 *   onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
 *   config.memory = onebitMemoryDevice;                 // residuals on the current device
 *   onebitCompressorCreate(&compressor, comm, count, onebitFloat32, &config);
 *   onebitAllReduce(grads, grads, count, onebitFloat32, onebitAvg, compressor, comm, stream);
 *
 * Two ways lead to the wire, and the communicator's transport decides which:
 *
 * - Transport nccl (nccl.h, or config.transport = "nccl"): messages go from device to device in
 *   the order of the stream, and a call can be captured into a CUDA graph, whose replays are
 *   calls like others. Make one call of each shape before, so that the capture allocates
 *   nothing. All ranks capture and replay alike. An all-to-all-v cannot be part of a group.
 *   Buffers in host memory, with `stream` NULL, make a dense call that blocks.
 * - Any other one (ucx, mpi, local): the device compresses, and packets alone go through pinned
 *   host memory, from where a thread of the communicator sends them while the stream waits.
 *   Dense calls go through pinned memory whole. Such calls cannot be captured, and all calls of
 *   a group are on one stream. With mpi that thread needs MPI_THREAD_MULTIPLE. At most 256 calls
 *   of a communicator are under way: the next one waits for the first, as for a full queue of CUDA.
 *
 * A group is of calls of one way.
 *
 * With the second way a stream that waits for a call holds up more than itself. CUDA puts the
 * streams of a process into a few hardware queues of each device, 8 unless
 * CUDA_DEVICE_MAX_CONNECTIONS says otherwise (1 to 32), and whatever was enqueued behind the call
 * in the same queue waits, too, whichever stream it is on. The library's own streams have the
 * greatest priority that the device knows, for which CUDA keeps queues apart, and they never wait
 * for others. So with any number of queues calls end if
 *
 * - none is made on a stream of the greatest priority (cudaStreamCreate makes those of the least);
 * - ranks that are threads of one process have a device each; and
 * - all ranks enqueue what waits for other ranks in one order, that of all streams and
 *   communicators of the device taken together, calls of other libraries included.
 *
 * Where one of these does not hold, every stream that such calls are made on needs a queue for
 * itself: set CUDA_DEVICE_MAX_CONNECTIONS=32 before the process starts CUDA, and use fewer streams
 * than that on a device. Otherwise a call may wait for work behind it until
 * ONEBIT_COLLECTIVE_TIMEOUT_MS ends it.
 *
 * Rules:
 *
 * - A communicator works on one device: with nccl the current one at its creation, otherwise
 *   that of its first call, or of `devices` of onebitCommInitAll. A process may use several
 *   devices by a communicator for each.
 * - Buffers of a call and the residuals of its compressor are in one memory. Calls on different
 *   streams are done one after the other; replays of graphs are the caller's to order.
 * - To free device or pinned memory (cudaFree, cudaFreeHost, and the end of a compressor or a
 *   communicator) waits until the device is idle. Where ranks are threads of one process nobody
 *   frees any while the stream of another rank waits for a call that the freeing thread, or a
 *   rank held up by it, has yet to make: synchronise, and meet in onebitBarrier, before.
 * - An error that is known when the call is made is returned by it. One of CUDA, or one that comes
 *   up later, puts the communicator out of use: onebitCommGetAsyncError tells, and streams that
 *   wait go on, their output being undefined. So does a call that does not end within
 *   ONEBIT_COLLECTIVE_TIMEOUT_MS; a replay has no such limit.
 * - Over nccl ranks tell each other of the calls that they have enqueued, because the sizes of
 *   messages cannot be checked when they arrive: calls that differ are onebitMismatch, as
 *   elsewhere, but a little later. Of an all-to-all-v the counts are not compared.
 * - Over nccl Reset, SetMask, GetStats, Destroy of a compressor, states and rebinds wait for
 *   calls that are under way; before them wait for replays yourself. Over other transports
 *   synchronise the stream first. Over nccl the communicator's stats count a replay only if it was
 *   not finite, and have no times.
 * - onebitCompressorRebind takes a compressor from nccl to nccl, or between other transports.
 *   Over nccl calls and replays that are enqueued behind one that fails change no residual, so
 *   that there, too, all ranks can take over what any of them has committed. The calls of one
 *   group stand for themselves there: if the message of one is damaged, others may have new
 *   residuals, which a rebind takes over one by one. Have no replay under way when you rebind.
 * - A sync (sync.h) is where its compressor is, an optimizer (optim.h) where its parameters are.
 *   Their steps wait on the host for what ranks agree on, so they cannot be captured.
 * - One scale for a whole tensor (ONEBIT_BLOCK_TENSOR) works for up to 32 ranks. Blocks of 4096
 *   elements, the default, are the fast ones. Like those of 256, 512, 1024 and 2048 they pass over
 *   memory once where buffers are aligned; others do so twice.
 */
#ifndef ONEBIT_MEMORY_H_
#define ONEBIT_MEMORY_H_

#ifdef __cplusplus
extern "C" {
#endif

/** Where a compressor keeps its residuals, and its calls their buffers. */
typedef enum {
  onebitMemoryHost = 0,
  onebitMemoryDevice = 1 /* of a CUDA device; needs libonebit-cuda.so */
} onebitMemory_t;

#ifdef __cplusplus
}
#endif

#endif /* ONEBIT_MEMORY_H_ */
