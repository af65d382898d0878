// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Looks up the driver's functions. Names with _v2 are those that cuda.h maps its plain names to.
#include "plugins/transport_nccl/nccl_driver.h"

#include <dlfcn.h>

#include <type_traits>

namespace onebit::nccl {
namespace {

constexpr char kDriverLibrary[] = "libcuda.so.1";

}  // namespace

std::shared_ptr<const Driver> Driver::Find(std::string* problem) {
  // Never loaded from here: a program with device memory has loaded it.
  void* library = dlopen(kDriverLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (library == nullptr) {
    *problem = "the process has not loaded the CUDA driver (libcuda.so.1)";
    return nullptr;
  }
  auto driver = std::make_shared<Driver>();
  const auto find = [&](const char* name, auto* function) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, name));
    if (*function == nullptr) *problem = std::string("the CUDA driver has no function ") + name;
    return *function != nullptr;
  };
  const bool is_complete =
      find("cuCtxGetCurrent", &driver->CtxGetCurrent) &&
      find("cuCtxGetDevice", &driver->CtxGetDevice) &&
      find("cuCtxPushCurrent_v2", &driver->CtxPushCurrent) &&
      find("cuCtxPopCurrent_v2", &driver->CtxPopCurrent) &&
      find("cuDeviceGetPCIBusId", &driver->DeviceGetPCIBusId) &&
      find("cuGetErrorName", &driver->GetErrorName) && find("cuMemAlloc_v2", &driver->MemAlloc) &&
      find("cuMemFree_v2", &driver->MemFree) && find("cuMemcpyAsync", &driver->MemcpyAsync) &&
      find("cuStreamCreate", &driver->StreamCreate) &&
      find("cuStreamIsCapturing", &driver->StreamIsCapturing) &&
      find("cuStreamQuery", &driver->StreamQuery) &&
      find("cuStreamDestroy_v2", &driver->StreamDestroy) &&
      find("cuThreadExchangeStreamCaptureMode", &driver->ThreadExchangeStreamCaptureMode);
  if (!is_complete) return nullptr;
  return driver;
}

bool Driver::IsCapturing(onebitStream_t stream) const {
  int status = kNoCapture;
  return StreamIsCapturing(stream, &status) == kCudaSuccess && status != kNoCapture;
}

std::string Driver::Name(int result) const {
  const char* name = nullptr;
  if (GetErrorName(result, &name) == kCudaSuccess && name != nullptr) return name;
  return "CUDA error " + std::to_string(result);
}

}  // namespace onebit::nccl
