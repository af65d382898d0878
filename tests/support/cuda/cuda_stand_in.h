// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A stand-in for the CUDA driver (libcuda.so.1), with functions that let tests inspect it and make
// it fail.
//
// It runs CUDA code on machines without a GPU. Devices are host memory, streams are threads, and
// kernels are the host build of kernels/cuda. It behaves like CUDA in order, contexts, errors and
// graph capture, and it is strict: whatever CUDA forbids fails here. Host code that touches device
// memory crashes if the processor has protection keys.
//
// A test links onebit_cuda_stand_in and calls CUDA through cuda.h. A test that needs a process
// without CUDA does not link it, and may load ONEBIT_CUDA_STAND_IN (a path) later.
//
// cuInit reads these environment variables: CUDA_STAND_IN_DEVICES (2), CUDA_STAND_IN_MEMORY (bytes
// of a device, 4 GiB), CUDA_STAND_IN_DRIVER (version, 13000), CUDA_STAND_IN_PROTECT (1; 0 lets the
// host access device memory), CUDA_STAND_IN_QUEUES (0: a stream waits only for what it is told to
// wait for; k: streams of one context and priority share k hardware queues, each of which runs its
// operations in order, so a waiting stream holds up others), CUDA_STAND_IN_DRIVER_LOCK (0; 1: while
// a free of memory or the late load of a kernel waits for streams, no other thread gets into the
// driver, as some versions of CUDA have it).
//
// Kernels of modules do nothing. The first launch of one waits for all streams of the context, as
// CUDA may do if it loads kernels lazily.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <cuda.h>

extern "C" {

// Lets `skip` calls of `function` (its exported name, such as cuMemAlloc_v2) pass, then `times`
// calls return `result` without doing anything. One rule per function; times 0 removes it.
void onebitTestCudaFail(const char* function, unsigned skip, unsigned times, CUresult result);
// Makes the next kernel that is loaded in a context fail to compile, with `text` (static) as the
// compiler's message.
void onebitTestCudaFailCompiler(const char* text);
// Makes every later call that uses the device fail with `error`, as after an illegal access.
// CUDA_SUCCESS repairs the device, which real CUDA cannot do.
void onebitTestCudaBreak(int device, CUresult error);

// Calls of a function so far, failed ones included.
uint64_t onebitTestCudaCalls(const char* function);

struct onebitTestCudaCounts {
  uint64_t launches;     // of kernels by the host, captured ones included; not those of graphs
  uint64_t allocations;  // of device and pinned memory
  uint64_t frees;        // frees of device and pinned memory
  uint64_t host_waits;   // calls that waited for a device, or may have to: synchronisations, copies
                         // from or to pageable memory, frees of memory
  uint64_t queries;      // cuStreamQuery and cuEventQuery
  uint64_t while_capturing;  // allocations and frees by a thread that is capturing a graph
};
void onebitTestCudaGetCounts(onebitTestCudaCounts* counts);

// CTAs of the previous launch.
unsigned onebitTestCudaLastGrid(void);

// Bytes allocated and not freed. Device -1 stands for pinned memory.
size_t onebitTestCudaAllocatedBytes(int device);
// Objects created and not destroyed, on all devices.
size_t onebitTestCudaLiveStreams(void);
size_t onebitTestCudaLiveEvents(void);
// Depth of the calling thread's stack of contexts.
size_t onebitTestCudaContextDepth(void);
// True if host code that touches device memory crashes.
int onebitTestCudaIsProtected(void);

// For stand-ins of libraries with kernels of their own: enqueues `function`, which may access
// device memory, calls no CUDA function and can be captured like a kernel. `data` must stay valid
// until it has run; in a graph it runs once per launch.
CUresult onebitTestCudaEnqueue(CUstream stream, void (*function)(void* data), void* data);
// Grants or revokes the calling thread's access to device memory, for tests that inspect it without
// a copy. Returns the former state.
int onebitTestCudaOpenMemory(int is_open);

}  // extern "C"
