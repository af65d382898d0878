// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A stand-in for the CUDA driver (libcuda.so.1), and how tests look into it and make it fail.
//
// It exists so that code for CUDA runs where no GPU is. Devices are memory of the host and streams
// are threads; kernels are the host build of kernels/cuda. It does what CUDA does as far as order,
// contexts, errors and graph capture go, and it is strict: what CUDA forbids fails here. Host code
// that touches device memory crashes, where the processor has protection keys.
//
// A test links onebit_cuda_stand_in, and calls CUDA by cuda.h. One that wants a process without
// CUDA does not link it; it may load ONEBIT_CUDA_STAND_IN (a path) later.
//
// Environment, read by cuInit: CUDA_STAND_IN_DEVICES (2), CUDA_STAND_IN_MEMORY (bytes of a
// device, 4 GiB), CUDA_STAND_IN_DRIVER (version, 13000), CUDA_STAND_IN_PROTECT (1; 0: device
// memory is open to the host), CUDA_STAND_IN_QUEUES (0: streams wait for nothing but what they are
// told to; k: streams of a context and of one priority share k queues of the hardware, each of
// which runs in order what it is given, so that a stream that waits holds up the others).
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <cuda.h>

extern "C" {

// Lets `skip` calls of `function` (its name in the library, as cuMemAlloc_v2) pass, then `times`
// calls return `result` without doing anything. One rule per function; times 0 removes it.
void onebitTestCudaFail(const char* function, unsigned skip, unsigned times, CUresult result);
// The next kernel that is loaded in a context does not compile, and `text` (static) is what the
// compiler says.
void onebitTestCudaFailCompiler(const char* text);
// Every later call that uses the device fails with `error`, as after an illegal access.
// CUDA_SUCCESS repairs it, which CUDA cannot.
void onebitTestCudaBreak(int device, CUresult error);

// Calls of a function so far, failed ones included.
uint64_t onebitTestCudaCalls(const char* function);

struct onebitTestCudaCounts {
  uint64_t launches;     // of kernels by the host, captured ones included; not those of graphs
  uint64_t allocations;  // of device and pinned memory
  uint64_t frees;        // likewise
  uint64_t host_waits;   // calls that waited for a device, or may have to: synchronisations, copies
                         // from or to pageable memory, frees of memory
  uint64_t queries;      // cuStreamQuery and cuEventQuery
  uint64_t while_capturing;  // allocations and frees by a thread that is capturing a graph
};
void onebitTestCudaGetCounts(onebitTestCudaCounts* counts);

// CTAs of the launch before.
unsigned onebitTestCudaLastGrid(void);

// Bytes that are allocated and not freed. Pinned memory: device -1.
size_t onebitTestCudaAllocatedBytes(int device);
// Objects that were created and not destroyed, of all devices.
size_t onebitTestCudaLiveStreams(void);
size_t onebitTestCudaLiveEvents(void);
// Depth of the calling thread's stack of contexts.
size_t onebitTestCudaContextDepth(void);
// Whether host code that touches device memory crashes.
int onebitTestCudaIsProtected(void);

// For stand-ins of libraries that run kernels of their own: enqueues `function`, which may access
// device memory, calls no CUDA function and can be captured like a kernel. `data` must stay until
// it has run, in a graph as often as that is launched.
CUresult onebitTestCudaEnqueue(CUstream stream, void (*function)(void* data), void* data);
// Opens device memory to the calling thread, or closes it again: for tests that look into it
// without a copy. Returns what it was.
int onebitTestCudaOpenMemory(int is_open);

}  // extern "C"
