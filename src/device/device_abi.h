// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Interface of libonebit-cuda.so: memory, streams, events and kernels of CUDA devices.
//
// Private: library and plugin are built together, which the first fields verify. The plugin
// links nothing of CUDA. It uses the driver (libcuda.so.1) that the program has loaded, finds its
// functions by name, and works in the primary contexts, as the CUDA run time does.
#pragma once

#include <cstddef>
#include <cstdint>

#include "onebit/onebit.h"

namespace onebit {

inline constexpr char kDeviceLibrary[] = "libonebit-cuda.so";
inline constexpr char kDeviceSymbol[] = "onebitDeviceGet";

// Changes with every change of this file or of kernels/cuda/*params.h.
inline constexpr uint32_t kDeviceAbiVersion = 8;

// The kind of memory that a pointer points to.
enum class MemoryKind : uint32_t {
  kHost = 0,    // memory that CUDA does not know, or pinned host memory
  kDevice = 1,  // memory of a device, or managed memory
};

struct DevicePointerInfo {
  MemoryKind kind = MemoryKind::kHost;
  int device = 0;  // of kDevice
};

struct DeviceInfo {
  char name[128] = {};
  char bus_id[32] = {};
  int compute_major = 0;
  int compute_minor = 0;
  int multiprocessors = 0;
  uint64_t memory_bytes = 0;
};

// Rules: functions return onebitSuccess or an error, whose text LastError returns on the same
// thread. They never exit, abort, throw or print, and are thread-safe. Only Synchronize and
// functions that allocate or free memory synchronise the host with a device; Launch, Copy, Fill and
// the functions of events and values do not allocate. `stream` null is the legacy default stream of
// the current device. During process exit, when the driver has gone, functions that free do
// nothing.
struct DeviceFunctions {
  size_t struct_size;
  uint32_t abi_version;     // kDeviceAbiVersion
  uint32_t kernel_count;    // kernels::cuda::kKernelCount
  size_t kernel_param_sum;  // of kernels::cuda::kKernels[i].param_bytes: the same structs

  const char* (*LastError)();

  // Finds the loaded driver and its devices. Later calls return the result of the first.
  // onebitUnhandledCudaError: no driver, a driver that is too old, or no device.
  onebitResult_t (*Start)(int* device_count);
  onebitResult_t (*Describe)(int device, DeviceInfo* info);
  // Asks the driver about a pointer. One that it does not know is host memory.
  onebitResult_t (*InspectPointer)(const void* pointer, DevicePointerInfo* info);
  // The device whose context the calling thread uses; 0 without a context, as in the CUDA run time.
  onebitResult_t (*CurrentDevice)(int* device);

  // Makes `device` the current one of the thread until Leave, which restores what was there. Nests.
  // A current context of that device is left in place. Sets *token, for Leave alone.
  onebitResult_t (*Enter)(int device, uintptr_t* token);
  void (*Leave)(uintptr_t token);

  // For the current device, after Enter. onebitOutOfMemory: there is not enough of it.
  onebitResult_t (*Allocate)(size_t bytes, void** memory);
  void (*Free)(void* memory);
  // Pinned, zeroed; every device reads and writes it at the same address.
  onebitResult_t (*AllocatePinned)(size_t bytes, void** memory);
  void (*FreePinned)(void* memory);

  // A stream that does not wait for the legacy default stream.
  onebitResult_t (*CreateStream)(onebitStream_t* stream);
  void (*DestroyStream)(onebitStream_t stream);
  onebitResult_t (*CreateEvent)(void** event);
  void (*DestroyEvent)(void* event);
  onebitResult_t (*RecordEvent)(void* event, onebitStream_t stream);
  onebitResult_t (*WaitEvent)(onebitStream_t stream, void* event);
  // True if all work before the last record is done, or nothing was recorded. Returns earlier
  // errors of the device.
  onebitResult_t (*QueryEvent)(void* event, int* is_done);
  // Polls on the host until `stream` is done. onebitTimeout if that takes longer.
  onebitResult_t (*Synchronize)(onebitStream_t stream, uint64_t timeout_ms);
  // Blocks the stream until *word - value, modulo 2^32 and taken as signed, is not negative. `word`
  // is pinned memory that the host or a kernel writes. onebitUnhandledCudaError with a text if the
  // device cannot do that.
  onebitResult_t (*WaitValue)(onebitStream_t stream, const uint32_t* word, uint32_t value);
  // Writes a word of pinned memory once all earlier work of the stream is done and visible.
  onebitResult_t (*WriteValue)(onebitStream_t stream, uint32_t* word, uint32_t value);
  // True if `stream` is being captured into a graph.
  onebitResult_t (*IsCapturing)(onebitStream_t stream, int* is_capturing);

  // Copies between device memory, pinned memory and, unless the stream is captured, other host
  // memory.
  onebitResult_t (*Copy)(void* to, const void* from, size_t bytes, onebitStream_t stream);
  onebitResult_t (*Fill)(void* memory, uint8_t value, size_t bytes, onebitStream_t stream);
  // Launches kernel number `kernel` (kernels::cuda::Kernel) for the current device; `params` is
  // copied. The number of CTAs is chosen from its work and from the device.
  onebitResult_t (*Launch)(uint32_t kernel, const void* params, onebitStream_t stream);
};

// Type of the function the plugin exports as kDeviceSymbol.
using DeviceGetFunction = const DeviceFunctions* (*)();

}  // namespace onebit
