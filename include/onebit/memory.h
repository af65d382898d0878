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
 * it is. Results are those of host memory, to the bit.
 *
 *   onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
 *   config.memory = onebitMemoryDevice;                // residuals on the current device
 *   onebitCompressorCreate(&compressor, comm, count, onebitFloat32, &config);
 *   onebitAllReduce(gradients, gradients, count, onebitFloat32, onebitAvg, compressor, comm,
 * stream);
 *
 * Two ways lead to the wire, and the communicator's transport decides which:
 *
 *   nccl        (nccl.h, or config.transport = "nccl") Messages go from device to device in the
 *               order of the stream, and a call can be captured into a CUDA graph, whose replays
 * are calls like others: make one call of each shape before, so that the capture allocates nothing.
 * All ranks capture and replay alike. An all-to-all-v cannot be part of a group. Buffers in host
 * memory with `stream` NULL make a dense call that blocks. any other   (ucx, mpi, local) The device
 * compresses, and packets alone go through pinned host memory, from where a thread of the
 * communicator sends them while the stream waits. Dense calls go through pinned memory whole. Such
 * calls cannot be captured, and all calls of a group are on one stream.
 *
 * Rules
 *   - A communicator works on one device: with nccl the current one at its creation, otherwise that
 *     of its first call, or of `devices` of onebitCommInitAll. Threads of a process may use several
 *     devices by a communicator for each.
 *   - Buffers of a call and the residuals of its compressor are in one memory. Calls of a
 * compressor may be on different streams if the caller orders these.
 *   - An error that is known when the call is made is returned by it. One that comes up later puts
 *     the communicator out of use: onebitCommGetAsyncError tells, and streams that wait for the
 * call go on, their output being undefined. So does a call that does not end within
 *     ONEBIT_COLLECTIVE_TIMEOUT_MS.
 *   - Over nccl ranks tell each other of the calls that they have enqueued, because the sizes of
 *     messages cannot be checked when they arrive: calls that differ are onebitMismatch, as
 * elsewhere, but a little later.
 *   - Reset, SetMask, GetStats, states and rebinds wait for the device. Syncs (sync.h) and
 *     optimizers (optim.h) work on host memory.
 *   - One scale for a whole tensor (ONEBIT_BLOCK_TENSOR) works for up to 32 ranks. Blocks of more
 *     than 4096 elements are read twice.
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
