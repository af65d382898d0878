// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The functions of the CUDA driver for devices and contexts.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tests/support/cuda/protection.h"
#include "tests/support/cuda/stand_in_stream.h"

namespace onebit::testing::cuda {
namespace {

constexpr int kMultiprocessors = 4;

// Plain data, so a thread's first use of CUDA allocates nothing.
struct ContextStack {
  static constexpr size_t kMax = 32;
  Context* contexts[kMax];
  size_t depth;
};
thread_local ContextStack stack;

size_t NumberFrom(const char* variable, size_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

Context* MakeContext(World& world, Device* device) {
  static unsigned long long last_id = 0;
  world.contexts.push_back(std::make_unique<Context>());
  Context* const context = world.contexts.back().get();
  context->device = device;
  context->id = ++last_id;
  context->is_alive = true;
  context->legacy = MakeStream(world, context, true, false);
  return context;
}

CUresult FindDevice(World& world, CUdevice number, Device** device) {
  if (number < 0 || static_cast<size_t>(number) >= world.devices.size()) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  *device = world.devices[static_cast<size_t>(number)].get();
  return CUDA_SUCCESS;
}

bool IsAlive(World& world, const Context* context) {
  return std::any_of(world.contexts.begin(), world.contexts.end(),
                     [&](const auto& known) { return known.get() == context && known->is_alive; });
}

void EndContext(Context& context) {
  context.is_alive = false;
  context.legacy->is_closing = true;
  context.legacy->work.notify_one();
}

Context* ContextOf(CUcontext handle) { return reinterpret_cast<Context*>(handle); }
CUcontext HandleOf(Context* context) { return reinterpret_cast<CUcontext>(context); }

}  // namespace

Context* CurrentContext() { return stack.depth == 0 ? nullptr : stack.contexts[stack.depth - 1]; }

CUresult RequireContext(Context** context) {
  *context = CurrentContext();
  if (*context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!(*context)->is_alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return (*context)->device->broken;
}

}  // namespace onebit::testing::cuda

using namespace onebit::testing::cuda;

CUresult cuDriverGetVersion(int* version) {
  ONEBIT_BEGIN_CALL(cuDriverGetVersion, false);
  *version = static_cast<int>(NumberFrom("CUDA_STAND_IN_DRIVER", 13000));
  return CUDA_SUCCESS;
}

CUresult cuInit(unsigned) {
  ONEBIT_BEGIN_CALL(cuInit, false);
  World& world = TheWorld();
  const Lock lock(world.mutex);
  if (!world.devices.empty()) return CUDA_SUCCESS;
  const size_t count = NumberFrom("CUDA_STAND_IN_DEVICES", 2);
  if (count == 0) return CUDA_ERROR_NO_DEVICE;
  StartProtection(NumberFrom("CUDA_STAND_IN_PROTECT", 1) != 0);
  world.queues_per_priority = NumberFrom("CUDA_STAND_IN_QUEUES", 0);
  if (NumberFrom("CUDA_STAND_IN_DRIVER_LOCK", 0) != 0) EnableDriverLock();
  for (size_t i = 0; i < count; ++i) {
    auto device = std::make_unique<Device>();
    device->number = static_cast<int>(i);
    device->memory_bytes = NumberFrom("CUDA_STAND_IN_MEMORY", size_t{4} << 30);
    world.devices.push_back(std::move(device));
  }
  SetInitialised();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  ONEBIT_BEGIN(cuDeviceGetCount);
  World& world = TheWorld();
  const Lock lock(world.mutex);
  *count = static_cast<int>(world.devices.size());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  ONEBIT_BEGIN(cuDeviceGet);
  World& world = TheWorld();
  const Lock lock(world.mutex);
  Device* found = nullptr;
  ONEBIT_CU_TRY(FindDevice(world, ordinal, &found));
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int size, CUdevice number) {
  ONEBIT_BEGIN(cuDeviceGetName);
  std::snprintf(name, static_cast<size_t>(size), "stand-in for a CUDA device %d", number);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* bus_id, int size, CUdevice number) {
  ONEBIT_BEGIN(cuDeviceGetPCIBusId);
  std::snprintf(bus_id, static_cast<size_t>(size), "0000:%02X:00.0", number + 1);
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice number) {
  ONEBIT_BEGIN(cuDeviceTotalMem_v2);
  World& world = TheWorld();
  const Lock lock(world.mutex);
  Device* device = nullptr;
  ONEBIT_CU_TRY(FindDevice(world, number, &device));
  *bytes = device->memory_bytes;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice number) {
  ONEBIT_BEGIN(cuDeviceGetAttribute);
  World& world = TheWorld();
  const Lock lock(world.mutex);
  Device* device = nullptr;
  ONEBIT_CU_TRY(FindDevice(world, number, &device));
  switch (static_cast<int>(attribute)) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = 9;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = 0;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = kMultiprocessors;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
      *value = 1;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* handle, CUdevice number) {
  ONEBIT_BEGIN(cuDevicePrimaryCtxRetain);
  World& world = TheWorld();
  const Lock lock(world.mutex);
  Device* device = nullptr;
  ONEBIT_CU_TRY(FindDevice(world, number, &device));
  if (device->primary_references++ == 0) device->primary = MakeContext(world, device);
  *handle = HandleOf(device->primary);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice number) {
  ONEBIT_BEGIN(cuDevicePrimaryCtxRelease_v2);
  World& world = TheWorld();
  const Lock lock(world.mutex);
  Device* device = nullptr;
  ONEBIT_CU_TRY(FindDevice(world, number, &device));
  if (device->primary_references == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--device->primary_references == 0) EndContext(*device->primary);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice number, unsigned* flags, int* is_active) {
  ONEBIT_BEGIN(cuDevicePrimaryCtxGetState);
  World& world = TheWorld();
  const Lock lock(world.mutex);
  Device* device = nullptr;
  ONEBIT_CU_TRY(FindDevice(world, number, &device));
  *flags = 0;
  *is_active = device->primary_references > 0 ? 1 : 0;
  return CUDA_SUCCESS;
}

// cuda.h maps the plain name to later versions. All drivers still export this one.
extern "C" [[gnu::visibility("default")]] CUresult cuCtxCreate_v2(CUcontext* handle, unsigned,
                                                                  CUdevice number) {
  ONEBIT_BEGIN(cuCtxCreate_v2);
  Device* device = nullptr;
  {
    World& world = TheWorld();
    const Lock lock(world.mutex);
    ONEBIT_CU_TRY(FindDevice(world, number, &device));
    *handle = HandleOf(MakeContext(world, device));
  }
  return cuCtxPushCurrent_v2(*handle);
}

CUresult cuCtxDestroy_v2(CUcontext handle) {
  ONEBIT_BEGIN(cuCtxDestroy_v2);
  World& world = TheWorld();
  const Lock lock(world.mutex);
  if (!IsAlive(world, ContextOf(handle))) return CUDA_ERROR_INVALID_CONTEXT;
  EndContext(*ContextOf(handle));
  if (CurrentContext() == ContextOf(handle)) --stack.depth;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* handle) {
  ONEBIT_BEGIN(cuCtxGetCurrent);
  *handle = HandleOf(CurrentContext());
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext handle) {
  ONEBIT_BEGIN(cuCtxSetCurrent);
  if (stack.depth > 0) --stack.depth;
  if (handle != nullptr) stack.contexts[stack.depth++] = ContextOf(handle);
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext handle) {
  ONEBIT_BEGIN(cuCtxPushCurrent_v2);
  World& world = TheWorld();
  const Lock lock(world.mutex);
  if (!IsAlive(world, ContextOf(handle))) return CUDA_ERROR_INVALID_CONTEXT;
  if (stack.depth == ContextStack::kMax) return CUDA_ERROR_OUT_OF_MEMORY;
  stack.contexts[stack.depth++] = ContextOf(handle);
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext* handle) {
  ONEBIT_BEGIN(cuCtxPopCurrent_v2);
  if (stack.depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
  Context* const popped = stack.contexts[--stack.depth];
  if (handle != nullptr) *handle = HandleOf(popped);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  ONEBIT_BEGIN(cuCtxGetDevice);
  if (CurrentContext() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = CurrentContext()->device->number;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long* id) {
  ONEBIT_BEGIN(cuCtxGetId);
  const Context* const context = handle == nullptr ? CurrentContext() : ContextOf(handle);
  if (context == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *id = context->id;
  return CUDA_SUCCESS;
}

size_t onebitTestCudaContextDepth(void) { return stack.depth; }

void onebitTestCudaBreak(int number, CUresult error) {
  World& world = TheWorld();
  const Lock lock(world.mutex);
  Device* device = nullptr;
  if (FindDevice(world, number, &device) == CUDA_SUCCESS) device->broken = error;
}
