// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The function table that the library receives, and the description of a device.
#include "device/device_abi.h"
#include "kernels/cuda/kernel_table.h"
#include "plugins/device_cuda/cuda_context.h"
#include "plugins/device_cuda/cuda_memory.h"
#include "plugins/device_cuda/cuda_stream.h"
#include "plugins/device_cuda/error.h"
#include "plugins/device_cuda/launch.h"
#include "plugins/device_cuda/process.h"

namespace onebit::device_cuda {
namespace {

onebitResult_t GetAttribute(const Driver& driver, CUdevice_attribute attribute, int number,
                            int* value) {
  return Check(driver, driver.cuDeviceGetAttribute(value, attribute, number),
               "cuDeviceGetAttribute of device {}", number);
}

onebitResult_t Describe(int number, DeviceInfo* info) {
  Process* const process = RequireProcess();
  if (process == nullptr) return onebitUnhandledCudaError;
  if (number < 0 || number >= process->device_count()) {
    return Fail(onebitInvalidArgument, "there is no CUDA device {}: there are {}, counted from 0",
                number, process->device_count());
  }
  const Driver& driver = process->driver();
  DeviceInfo found;
  ONEBIT_CUDA_TRY(Check(driver, driver.cuDeviceGetName(found.name, sizeof found.name, number),
                        "cuDeviceGetName of device {}", number));
  ONEBIT_CUDA_TRY(Check(driver,
                        driver.cuDeviceGetPCIBusId(found.bus_id, sizeof found.bus_id, number),
                        "cuDeviceGetPCIBusId of device {}", number));
  ONEBIT_CUDA_TRY(GetAttribute(driver, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, number,
                               &found.compute_major));
  ONEBIT_CUDA_TRY(GetAttribute(driver, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, number,
                               &found.compute_minor));
  ONEBIT_CUDA_TRY(GetAttribute(driver, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, number,
                               &found.multiprocessors));
  size_t memory_bytes = 0;
  ONEBIT_CUDA_TRY(Check(driver, driver.cuDeviceTotalMem_v2(&memory_bytes, number),
                        "cuDeviceTotalMem of device {}", number));
  found.memory_bytes = memory_bytes;
  *info = found;
  return onebitSuccess;
}

constexpr size_t ParamSum() {
  size_t sum = 0;
  for (const kernels::cuda::KernelEntry& kernel : kernels::cuda::kKernels) {
    sum += kernel.param_bytes;
  }
  return sum;
}

// The ABI promises that a function that runs out of host memory, for example in an error text,
// returns an error.
template <auto kFunction>
struct NoThrow;
template <typename... Arguments, onebitResult_t (*kFunction)(Arguments...)>
struct NoThrow<kFunction> {
  static onebitResult_t Call(Arguments... arguments) noexcept {
    try {
      return kFunction(arguments...);
    } catch (...) {
      return SetError(onebitOutOfMemory, "out of host memory");
    }
  }
};

constexpr DeviceFunctions kFunctions = {
    .struct_size = sizeof(DeviceFunctions),
    .abi_version = kDeviceAbiVersion,
    .kernel_count = static_cast<uint32_t>(kKernelCount),
    .kernel_param_sum = ParamSum(),
    .LastError = LastError,
    .Start = NoThrow<Start>::Call,
    .Describe = NoThrow<Describe>::Call,
    .InspectPointer = NoThrow<InspectPointer>::Call,
    .CurrentDevice = NoThrow<CurrentDevice>::Call,
    .Enter = NoThrow<Enter>::Call,
    .Leave = Leave,
    .Allocate = NoThrow<Allocate>::Call,
    .Free = Free,
    .AllocatePinned = NoThrow<AllocatePinned>::Call,
    .FreePinned = FreePinned,
    .CreateStream = NoThrow<CreateStream>::Call,
    .DestroyStream = DestroyStream,
    .CreateEvent = NoThrow<CreateEvent>::Call,
    .DestroyEvent = DestroyEvent,
    .RecordEvent = NoThrow<RecordEvent>::Call,
    .WaitEvent = NoThrow<WaitEvent>::Call,
    .QueryEvent = NoThrow<QueryEvent>::Call,
    .Synchronize = NoThrow<Synchronize>::Call,
    .WaitValue = NoThrow<WaitValue>::Call,
    .IsCapturing = NoThrow<IsCapturing>::Call,
    .Copy = NoThrow<Copy>::Call,
    .Fill = NoThrow<Fill>::Call,
    .Launch = NoThrow<Launch>::Call,
};

}  // namespace
}  // namespace onebit::device_cuda

extern "C" [[gnu::visibility("default")]] const onebit::DeviceFunctions* onebitDeviceGet() {
  return &onebit::device_cuda::kFunctions;
}
