// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/device_cuda/cuda_memory.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "plugins/device_cuda/cuda_context.h"
#include "plugins/device_cuda/error.h"

namespace onebit::device_cuda {
namespace {

using cuda::AddressOf;

// Initial values for memory unknown to the driver, which then writes nothing, or 0 and no device.
struct Attributes {
  unsigned memory_type = 0;
  unsigned is_managed = 0;
  int device = -1;
};

CUresult Ask(const Driver& driver, const void* pointer, Attributes* answer) {
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                      CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void* values[] = {&answer->memory_type, &answer->is_managed, &answer->device};
  return driver.cuPointerGetAttributes(3, attributes, values, AddressOf(pointer));
}

// The driver may refuse a query from a thread without a context, whatever the pointer. The answer
// is the same in every context, so any context in use will do.
onebitResult_t AskInSomeContext(Process& process, const void* pointer, Attributes* answer,
                                CUresult* result) {
  const Driver& driver = process.driver();
  CUcontext current = nullptr;
  ONEBIT_CUDA_TRY(Check(driver, driver.cuCtxGetCurrent(&current), "cuCtxGetCurrent"));
  if (current != nullptr) return onebitSuccess;
  CUcontext used = nullptr;
  ONEBIT_CUDA_TRY(FindUsedContext(process, &used));
  if (used == nullptr) return onebitSuccess;  // no context, so no device memory
  const CurrentContext pushed(driver, used);
  ONEBIT_CUDA_TRY(Check(driver, pushed.result(), "cuCtxPushCurrent"));
  *answer = {};
  *result = Ask(driver, pointer, answer);
  return onebitSuccess;
}

}  // namespace

onebitResult_t InspectPointer(Process& process, const void* pointer, DevicePointerInfo* info) {
  const Driver& driver = process.driver();
  Attributes answer;
  CUresult result = Ask(driver, pointer, &answer);
  if (result == CUDA_ERROR_INVALID_CONTEXT) {
    ONEBIT_CUDA_TRY(AskInSomeContext(process, pointer, &answer, &result));
  }
  // CUDA returns the first two for memory that no context knows.
  if (result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_INVALID_VALUE) {
    *info = {};
    return onebitSuccess;
  }
  ONEBIT_CUDA_TRY(Check(driver, result, "cuPointerGetAttributes"));
  DevicePointerInfo found;
  if (answer.memory_type == CU_MEMORYTYPE_DEVICE || (answer.is_managed & 0xff) != 0) {
    found.kind = MemoryKind::kDevice;
    found.device = answer.device;
    // Managed memory may belong to no device.
    if (answer.device < 0) ONEBIT_CUDA_TRY(CurrentDevice(process, &found.device));
  }
  *info = found;
  return onebitSuccess;
}

onebitResult_t Allocate(Process& process, size_t bytes, void** memory) {
  const Driver& driver = process.driver();
  const RelaxedCapture relaxed(driver);
  CUdeviceptr address = 0;
  // CUDA refuses to allocate 0 bytes.
  ONEBIT_CUDA_TRY(Check(driver, driver.cuMemAlloc_v2(&address, std::max<size_t>(bytes, 1)),
                        "allocating {} bytes of device memory", bytes));
  *memory = reinterpret_cast<void*>(address);
  return onebitSuccess;
}

void Free(Process& process, void* memory) {
  if (memory == nullptr) return;
  const RelaxedCapture relaxed(process.driver());
  // An error cannot be handled here, and during process exit it is harmless.
  process.driver().cuMemFree_v2(AddressOf(memory));
}

onebitResult_t AllocatePinned(Process& process, size_t bytes, void** memory) {
  const Driver& driver = process.driver();
  const RelaxedCapture relaxed(driver);
  const size_t size = std::max<size_t>(bytes, 1);
  void* pinned = nullptr;
  ONEBIT_CUDA_TRY(Check(
      driver,
      driver.cuMemHostAlloc(&pinned, size, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
      "allocating {} bytes of pinned memory", bytes));
  std::memset(pinned, 0, size);
  *memory = pinned;
  return onebitSuccess;
}

void FreePinned(Process& process, void* memory) {
  if (memory == nullptr) return;
  const RelaxedCapture relaxed(process.driver());
  process.driver().cuMemFreeHost(memory);
}

onebitResult_t Copy(Process& process, void* to, const void* from, size_t bytes,
                    onebitStream_t stream) {
  if (bytes == 0) return onebitSuccess;
  const Driver& driver = process.driver();
  return Check(driver, driver.cuMemcpyAsync(AddressOf(to), AddressOf(from), bytes, stream),
               "copying {} bytes", bytes);
}

onebitResult_t Fill(Process& process, void* memory, uint8_t value, size_t bytes,
                    onebitStream_t stream) {
  if (bytes == 0) return onebitSuccess;
  const Driver& driver = process.driver();
  return Check(driver, driver.cuMemsetD8Async(AddressOf(memory), value, bytes, stream),
               "filling {} bytes", bytes);
}

}  // namespace onebit::device_cuda
