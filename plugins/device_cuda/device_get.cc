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

namespace onebit::device_cuda {
namespace {

onebitResult_t GetAttribute(const Driver& driver, CUdevice_attribute attribute, int number,
                            int* value) {
  return Check(driver, driver.cuDeviceGetAttribute(value, attribute, number),
               "cuDeviceGetAttribute of device {}", number);
}

onebitResult_t Describe(Process& process, int number, DeviceInfo* info) {
  if (number < 0 || number >= process.device_count()) {
    return Fail(onebitInvalidArgument, "there is no CUDA device {}: there are {}, counted from 0",
                number, process.device_count());
  }
  const Driver& driver = process.driver();
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
template <typename Body>
onebitResult_t WithoutExceptions(Body body) noexcept {
  try {
    return body();
  } catch (...) {
    return SetError(onebitOutOfMemory, "out of host memory");
  }
}

// A function of the table, made of one that has the process as its first parameter. Without a
// process it fails, or does nothing if it has no result.
template <auto kFunction>
struct Entry;
template <typename... Arguments, onebitResult_t (*kFunction)(Process&, Arguments...)>
struct Entry<kFunction> {
  static onebitResult_t Call(Arguments... arguments) noexcept {
    return WithoutExceptions([&] {
      Process* const process = RequireProcess();
      return process == nullptr ? onebitUnhandledCudaError : kFunction(*process, arguments...);
    });
  }
};
template <typename... Arguments, void (*kFunction)(Process&, Arguments...)>
struct Entry<kFunction> {
  static void Call(Arguments... arguments) noexcept {
    if (Process* const process = FindProcess(); process != nullptr) {
      kFunction(*process, arguments...);
    }
  }
};

onebitResult_t StartProcess(int* device_count) {
  return WithoutExceptions([&] { return Start(device_count); });
}

constexpr DeviceFunctions kFunctions = {
    .struct_size = sizeof(DeviceFunctions),
    .abi_version = kDeviceAbiVersion,
    .kernel_count = static_cast<uint32_t>(kKernelCount),
    .kernel_param_sum = ParamSum(),
    .LastError = LastError,
    .Start = StartProcess,
    .Describe = Entry<Describe>::Call,
    .InspectPointer = Entry<InspectPointer>::Call,
    .CurrentDevice = Entry<CurrentDevice>::Call,
    .Enter = Entry<Enter>::Call,
    .Leave = Entry<Leave>::Call,
    .Allocate = Entry<Allocate>::Call,
    .Free = Entry<Free>::Call,
    .AllocatePinned = Entry<AllocatePinned>::Call,
    .FreePinned = Entry<FreePinned>::Call,
    .CreateStream = Entry<CreateStream>::Call,
    .DestroyStream = Entry<DestroyStream>::Call,
    .CreateEvent = Entry<CreateEvent>::Call,
    .DestroyEvent = Entry<DestroyEvent>::Call,
    .RecordEvent = Entry<RecordEvent>::Call,
    .WaitEvent = Entry<WaitEvent>::Call,
    .QueryEvent = Entry<QueryEvent>::Call,
    .Synchronize = Entry<Synchronize>::Call,
    .WaitValue = Entry<WaitValue>::Call,
    .WriteValue = Entry<WriteValue>::Call,
    .IsCapturing = Entry<IsCapturing>::Call,
    .Copy = Entry<Copy>::Call,
    .Fill = Entry<Fill>::Call,
    .Launch = Entry<Launch>::Call,
};

}  // namespace
}  // namespace onebit::device_cuda

extern "C" [[gnu::visibility("default")]] const onebit::DeviceFunctions* onebitDeviceGet() {
  return &onebit::device_cuda::kFunctions;
}
