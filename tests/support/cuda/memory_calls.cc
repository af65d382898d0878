// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// CUDA driver functions for memory: allocation, attributes, copies and fills.
#include <sys/mman.h>

#include <cstring>
#include <vector>

#include "tests/support/cuda/capture.h"
#include "tests/support/cuda/protection.h"
#include "tests/support/cuda/stand_in_stream.h"

namespace onebit::testing::cuda {
namespace {

void* MemoryOf(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

void CountHostWait() { TheCounters().host_waits.fetch_add(1); }

// Common start of allocations and frees, which captures cannot record.
CUresult BeginAllocation(World& world) {
  if (IsThreadCapturing(world)) TheCounters().while_capturing.fetch_add(1);
  return CheckUnsafe(world);
}

CUresult AllocateBlock(size_t bytes, BlockKind kind, void** memory) {
  World& world = TheWorld();
  const Lock lock(world.mutex);
  Context* context = nullptr;
  ONEBIT_CU_TRY(RequireContext(&context));
  ONEBIT_CU_TRY(BeginAllocation(world));
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Device& device = *context->device;
  void* mapped = nullptr;
  if (kind == BlockKind::kDevice) {
    if (bytes > device.memory_bytes - device.allocated_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
    mapped = MapDeviceMemory(bytes);
    if (mapped == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    device.allocated_bytes += bytes;
  } else {
    mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    world.pinned_bytes += bytes;
  }
  world.blocks[reinterpret_cast<uintptr_t>(mapped)] = {bytes, kind, &device};
  *memory = mapped;
  return CUDA_SUCCESS;
}

// Waits until the devices are idle, as CUDA does before it frees memory: a thread that frees memory
// while a stream waits for that thread hangs.
CUresult FreeBlock(void* memory, bool is_pinned) {
  if (memory == nullptr) return CUDA_SUCCESS;
  const DriverLock driver;  // before the world's, as all calls take them
  World& world = TheWorld();
  Lock lock(world.mutex);
  Context* context = nullptr;
  ONEBIT_CU_TRY(RequireContext(&context));
  ONEBIT_CU_TRY(BeginAllocation(world));
  const auto found = world.blocks.find(reinterpret_cast<uintptr_t>(memory));
  if (found == world.blocks.end() || (found->second.kind == BlockKind::kPinned) != is_pinned) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Block block = found->second;
  CountHostWait();
  std::vector<Point> points;
  for (Stream* stream : world.running) {
    if (is_pinned || stream->context->device == block.device) points.push_back(stream->tail());
  }
  for (const Point& point : points) WaitFor(lock, point);
  world.blocks.erase(reinterpret_cast<uintptr_t>(memory));
  if (block.kind == BlockKind::kDevice) {
    block.device->allocated_bytes -= block.bytes;
    UnmapDeviceMemory(memory, block.bytes);
  } else {
    world.pinned_bytes -= block.bytes;
    munmap(memory, block.bytes);
  }
  return CUDA_SUCCESS;
}

// Fails unless the driver knows the whole range; sets *is_pageable if it knows no part of it.
CUresult CheckRange(World& world, const void* memory, size_t bytes, bool* is_pageable) {
  if (FindBlock(world, memory) == nullptr) {
    *is_pageable = true;
    return CUDA_SUCCESS;
  }
  return IsWithinBlock(world, memory, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// For pageable memory CUDA waits for the copy, or may wait.
CUresult CopyInStream(void* to, const void* from, size_t bytes, CUstream handle, bool is_waiting) {
  World& world = TheWorld();
  Lock lock(world.mutex);
  Stream* stream = nullptr;
  ONEBIT_CU_TRY(FindStream(world, handle, &stream));
  if (is_waiting) ONEBIT_CU_TRY(CheckUnsafe(world));
  ONEBIT_CU_TRY(CheckRange(world, to, bytes, &is_waiting));
  ONEBIT_CU_TRY(CheckRange(world, from, bytes, &is_waiting));
  if (is_waiting && stream->capture != nullptr) {
    return Invalidate(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  if (bytes == 0) return CUDA_SUCCESS;
  ONEBIT_CU_TRY(Enqueue(world, lock, *stream, CopyOperation{to, from, bytes}));
  if (is_waiting) {
    CountHostWait();
    WaitFor(lock, stream->tail());
  }
  return CUDA_SUCCESS;
}

CUresult Fill(void* memory, uint8_t value, size_t bytes, CUstream handle, bool is_waiting) {
  World& world = TheWorld();
  Lock lock(world.mutex);
  Stream* stream = nullptr;
  ONEBIT_CU_TRY(FindStream(world, handle, &stream));
  if (is_waiting) ONEBIT_CU_TRY(CheckUnsafe(world));
  if (!IsWithinBlock(world, memory, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (bytes == 0) return CUDA_SUCCESS;
  ONEBIT_CU_TRY(Enqueue(world, lock, *stream, FillOperation{memory, value, bytes}));
  if (is_waiting) {
    CountHostWait();
    WaitFor(lock, stream->tail());
  }
  return CUDA_SUCCESS;
}

// CUDA may refuse to answer a thread without a context, so the stand-in always does.
CUresult CheckCanAsk() {
  return CurrentContext() == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

// For memory that it does not know, CUDA writes nothing or zero.
CUresult WriteAttribute(const Block* block, CUdeviceptr address, CUpointer_attribute attribute,
                        void* value) {
  switch (static_cast<int>(attribute)) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(value) = block == nullptr ? 0
                                       : block->kind == BlockKind::kPinned
                                           ? static_cast<unsigned>(CU_MEMORYTYPE_HOST)
                                           : static_cast<unsigned>(CU_MEMORYTYPE_DEVICE);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *static_cast<unsigned*>(value) = block != nullptr && block->kind == BlockKind::kManaged;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(value) = block == nullptr ? -2 : block->device->number;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *static_cast<CUdeviceptr*>(value) = block == nullptr ? 0 : address;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace
}  // namespace onebit::testing::cuda

using namespace onebit::testing::cuda;

CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  ONEBIT_BEGIN(cuMemAlloc_v2);
  void* memory = nullptr;
  ONEBIT_CU_TRY(AllocateBlock(bytes, BlockKind::kDevice, &memory));
  *address = reinterpret_cast<CUdeviceptr>(memory);
  return CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned) {
  ONEBIT_BEGIN(cuMemAllocManaged);
  void* memory = nullptr;
  ONEBIT_CU_TRY(AllocateBlock(bytes, BlockKind::kManaged, &memory));
  *address = reinterpret_cast<CUdeviceptr>(memory);
  return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  ONEBIT_BEGIN(cuMemFree_v2);
  return FreeBlock(MemoryOf(address), false);
}

CUresult cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  ONEBIT_BEGIN(cuMemHostAlloc);
  ONEBIT_CU_TRY(AllocateBlock(bytes, BlockKind::kPinned, memory));
  std::memset(*memory, 0xa5, bytes);  // CUDA promises no content
  return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void* memory) {
  ONEBIT_BEGIN(cuMemFreeHost);
  return FreeBlock(memory, true);
}

CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  ONEBIT_BEGIN(cuMemGetInfo_v2);
  World& world = TheWorld();
  const Lock lock(world.mutex);
  Context* context = nullptr;
  ONEBIT_CU_TRY(RequireContext(&context));
  *total_bytes = context->device->memory_bytes;
  *free_bytes = context->device->memory_bytes - context->device->allocated_bytes;
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** values,
                                CUdeviceptr address) {
  ONEBIT_BEGIN(cuPointerGetAttributes);
  ONEBIT_CU_TRY(CheckCanAsk());
  World& world = TheWorld();
  const Lock lock(world.mutex);
  const Block* const block = FindBlock(world, MemoryOf(address));
  if (block != nullptr && block->device->broken != CUDA_SUCCESS) return block->device->broken;
  for (unsigned i = 0; i < count; ++i) {
    ONEBIT_CU_TRY(WriteAttribute(block, address, attributes[i], values[i]));
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* value, CUpointer_attribute attribute, CUdeviceptr address) {
  ONEBIT_BEGIN(cuPointerGetAttribute);
  ONEBIT_CU_TRY(CheckCanAsk());
  World& world = TheWorld();
  const Lock lock(world.mutex);
  const Block* const block = FindBlock(world, MemoryOf(address));
  if (block == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return WriteAttribute(block, address, attribute, value);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  ONEBIT_BEGIN(cuMemcpyAsync);
  return CopyInStream(MemoryOf(to), MemoryOf(from), bytes, stream, false);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  ONEBIT_BEGIN(cuMemcpyHtoDAsync_v2);
  return CopyInStream(MemoryOf(to), from, bytes, stream, false);
}

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  ONEBIT_BEGIN(cuMemcpyDtoHAsync_v2);
  return CopyInStream(to, MemoryOf(from), bytes, stream, false);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  ONEBIT_BEGIN(cuMemcpyDtoDAsync_v2);
  return CopyInStream(MemoryOf(to), MemoryOf(from), bytes, stream, false);
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  ONEBIT_BEGIN(cuMemcpy);
  return CopyInStream(MemoryOf(to), MemoryOf(from), bytes, nullptr, true);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  ONEBIT_BEGIN(cuMemcpyHtoD_v2);
  return CopyInStream(MemoryOf(to), from, bytes, nullptr, true);
}

CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  ONEBIT_BEGIN(cuMemcpyDtoH_v2);
  return CopyInStream(to, MemoryOf(from), bytes, nullptr, true);
}

CUresult cuMemsetD8Async(CUdeviceptr memory, unsigned char value, size_t bytes, CUstream stream) {
  ONEBIT_BEGIN(cuMemsetD8Async);
  return Fill(MemoryOf(memory), value, bytes, stream, false);
}

CUresult cuMemsetD8_v2(CUdeviceptr memory, unsigned char value, size_t bytes) {
  ONEBIT_BEGIN(cuMemsetD8_v2);
  return Fill(MemoryOf(memory), value, bytes, nullptr, true);
}

size_t onebitTestCudaAllocatedBytes(int number) {
  World& world = TheWorld();
  const Lock lock(world.mutex);
  if (number < 0) return world.pinned_bytes;
  return world.devices.at(static_cast<size_t>(number))->allocated_bytes;
}

int onebitTestCudaIsProtected(void) { return IsProtected() ? 1 : 0; }

int onebitTestCudaOpenMemory(int is_open) { return SetAccess(is_open != 0) ? 1 : 0; }
