/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Devices: buffers in the memory of CUDA devices. Included by onebit.h.
 *
 * Collectives take buffers in device memory just like those in host memory. The library recognises
 * them by asking CUDA's driver, once the program has loaded that driver; it links no part of CUDA
 * and needs libonebit-cuda.so in the library's folder. `stream` is then a cudaStream_t, NULL being
 * the legacy default stream of the device, and a call returns when all its work is enqueued there.
 * The host is never synchronised with the device, and the caller's current device is unchanged.
 * Results equal those of host memory bit for bit, except for NCCL's own reductions (below) and the
 * kind of NaN in a dense sum, which is not specified.
 *
 *   onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
 *   config.memory = onebitMemoryDevice;                 // residuals on the current device
 *   onebitCompressorCreate(&compressor, comm, count, onebitFloat32, &config);
 *   onebitAllReduce(grads, grads, count, onebitFloat32, onebitAvg, compressor, comm, stream);
 *
 * The communicator's transport decides how bytes travel:
 *
 * - Transport nccl (nccl.h, or config.transport = "nccl"): from device to device, in the order of
 *   the stream. Calls can be captured into a CUDA graph; a replay is a call like any other. Before
 *   the capture make one call of each shape, so that the capture allocates nothing. All ranks
 *   capture and replay alike. An all-to-all-v cannot be part of a group. A dense call on buffers in
 *   host memory, with `stream` NULL, blocks. Allreduces, reduce-scatters, all-gathers and
 *   broadcasts without a compressor are NCCL's own, as fast as without this library, with NCCL's
 *   order of sums and treatment of NaN; onebitCommStats_t.native_calls counts them. With
 *   ONEBIT_NCCL_NATIVE_DENSE=0 they have the bits of other transports, as dense steps of
 *   optimizers, syncs and flushes always do.
 * - Any other transport (socket, ucx, mpi, local): the device compresses, and packets pass through
 *   pinned host memory. So do, in reductions with two levels, the elements that ranks of a host
 *   send each other, and their means: up to three tensors' bytes, more on the larger of unequal
 *   hosts. All computing of a call is on the stream when it returns; in between, the stream waits
 *   for a thread of the communicator that moves the messages and makes no CUDA call. Dense calls
 *   are summed on the host. They pass through 16 MiB of pinned memory, in pieces of 8 MiB, or as
 *   many calls of a group as fit in one. In an all-to-all-v a piece has up to 4 MiB of each
 *   message, divided by the number of ranks. Sends and receives pass as a whole, through additional
 *   pinned memory as large as all buffers of their group, which the communicator keeps: within a
 *   group they must be able to overtake each other, because their peers may group them differently.
 *   A CUDA-aware MPI also copies device memory piece by piece where the network cannot reach it,
 *   but in the calling thread. Such calls cannot be captured, and all calls of a group are on one
 *   stream. With mpi the thread needs MPI_THREAD_MULTIPLE. At most 256 calls or groups of a
 *   communicator are in flight: one more waits for the first, as for a full queue of CUDA.
 *
 * One group cannot mix the two.
 *
 * While a call waits for other ranks, its process may allocate and free memory, load kernels, and
 * use streams of any priority: whatever the driver makes wait for the call, the call does not wait
 * for it. As with NCCL, two things remain the caller's:
 *
 * - Ranks that are threads of one process must not allocate or free device or pinned memory
 *   (cudaMalloc, cudaFree, cudaFreeHost, the end of a compressor or communicator) while another
 *   rank's stream waits for a call that this thread, or a rank held up by it, has yet to make:
 *   synchronise and meet in onebitBarrier first. Each of these ranks needs a device of its own.
 *   Ranks that share one may use only as many streams as it has hardware queues, and all make their
 *   first calls of a kind, for which the library allocates, before any makes another.
 * - All ranks must enqueue the calls of several communicators in one common order, including those
 *   calls of other libraries that wait for other ranks. CUDA maps streams to a few hardware queues,
 *   where a call that waits also holds up what was enqueued after it on other streams.
 *
 * Rules
 *
 * - A communicator works on one device: over nccl the current one at its creation, otherwise that
 *   of its first call or of `devices` of onebitCommInitAll. A process uses several devices through
 *   one communicator for each.
 * - The buffers of a call and the residuals of its compressor are in the same memory. Calls on
 *   different streams are executed one after the other; the caller must order replays of graphs.
 * - Over a host transport some ranks may have their buffers of a call on a device and others on the
 *   host, except in a dense call that passes in pieces, or in dense calls of a group that together
 *   do: such calls are onebitMismatch. They pass in pieces if their larger buffers (in all-to-alls:
 *   both buffers) have more than 8 MiB in all, or if a message of an all-to-all-v between a device
 *   and a host is larger than a piece.
 * - A call returns the errors that are known when it is made. An error of CUDA, or one that comes
 *   up later, puts the communicator out of use: onebitCommGetAsyncError reports it, and streams
 *   that wait continue with undefined output. A call that does not end within collectiveTimeoutMs
 *   of the work before it on the stream does the same; replays have no such limit.
 * - Over nccl the sizes of messages cannot be checked on arrival. Ranks therefore tell each other
 *   which calls they have enqueued: calls that differ are onebitMismatch as elsewhere, but a little
 *   later. The counts of an all-to-all-v are not compared, and of sends and receives only packets
 *   of equal length are: others that do not match hang until collectiveTimeoutMs, or give wrong
 *   results, as with NCCL.
 * - Reset, SetMask, GetStats and Destroy of a compressor, states and rebinds wait for calls in
 *   flight; wait for replays yourself before them. onebitCommDestroy gives up calls that have not
 *   ended after 5 s, including those that wait for other slow work on the stream: synchronise the
 *   stream first.
 * - Calls on host memory wait for calls on device memory of the same communicator. Over nccl the
 *   communicator's stats count a replay only if it was not finite, and contain no times.
 * - Calls and replays that are enqueued after one that fails change no residual, so all ranks can
 *   adopt what any of them has committed. Over nccl the calls of one group are independent: if
 *   one's message is damaged, others may have new residuals, which a rebind adopts one by one. Have
 *   no replay in flight when you rebind.
 * - A sync (sync.h) is in the memory of its compressor, an optimizer (optim.h) in that of its
 *   parameters. Their steps wait on the host until the ranks agree, so they cannot be captured.
 *   onebitCompressorPrime and calls with onebitCodecLossless block for the same reason.
 * - One scale for a whole tensor (ONEBIT_BLOCK_TENSOR) works for up to 256 ranks.
 * - onebitCodecTopk and onebitCodecRandk are for host memory only.
 * - Blocks of 256, 512, 1024, 2048 and 4096 elements (the default, and the fastest) take one pass
 *   over memory where buffers are aligned; others take two.
 */
#ifndef ONEBIT_MEMORY_H_
#define ONEBIT_MEMORY_H_

#ifdef __cplusplus
extern "C" {
#endif

/** Memory of a compressor's residuals and of the buffers of its calls. */
typedef enum {
  onebitMemoryHost = 0,
  onebitMemoryDevice = 1 /* a CUDA device; needs libonebit-cuda.so */
} onebitMemory_t;

#ifdef __cplusplus
}
#endif

#endif /* ONEBIT_MEMORY_H_ */
