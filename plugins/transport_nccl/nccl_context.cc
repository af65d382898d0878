// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Finds NCCL, a driver and a current device for open and adopt.
#include "plugins/transport_nccl/nccl_context.h"

#include <string>
#include <utility>

#include "plugins/transport_nccl/nccl_endpoint.h"
#include "plugins/transport_nccl/nccl_group.h"

namespace onebit::nccl {
namespace {

// Returns the driver that the process has loaded. Null if it has none; `problem` then says so.
std::shared_ptr<const cuda::Driver> FindDriver(std::string* problem) {
  void* const library = cuda::LoadedDriverLibrary();
  if (library == nullptr) {
    *problem = "the process has not loaded the CUDA driver (libcuda.so.1)";
    return nullptr;
  }
  auto driver = std::make_shared<cuda::Driver>();
  const char* const missing = cuda::FindFunctions(library, driver.get());
  if (missing == nullptr) return driver;
  *problem = std::string("the CUDA driver has no function ") + missing;
  return nullptr;
}

}  // namespace

onebitResult_t Context::Create(const onebitTransportHost& host, std::unique_ptr<Context>* context) {
  std::unique_ptr<Context> created(new Context(host));
  const onebitResult_t result = FindNccl(*created, created->options_.library, &created->api_);
  if (result == onebitSuccess) *context = std::move(created);
  return result;
}

onebitTransportProperties Context::Properties(const Context* context) {
  return PropertiesWith(context == nullptr ? Options{} : context->options_);
}

onebitResult_t Context::FindDeviceBinding(const char* who, DeviceBinding* binding) {
  DeviceBinding found;
  {
    const std::lock_guard lock(mutex_);
    std::string problem;
    if (driver_ == nullptr) driver_ = FindDriver(&problem);
    if (driver_ == nullptr) {
      Warn("%s: there is no GPU to use: %s; call cudaSetDevice first", who, problem.c_str());
      return onebitUnhandledCudaError;
    }
    found.driver = driver_;
  }
  CUresult code = found.driver->cuCtxGetCurrent(&found.device_context);
  if (code == CUDA_SUCCESS && found.device_context == nullptr) code = CUDA_ERROR_INVALID_CONTEXT;
  if (code == CUDA_SUCCESS) code = found.driver->cuCtxGetDevice(&found.device);
  if (code != CUDA_SUCCESS) {
    Warn("%s: no device is current in this thread: %s; call cudaSetDevice first", who,
         cuda::ErrorText(*found.driver, code).c_str());
    return code == CUDA_ERROR_INVALID_CONTEXT ? onebitInvalidUsage : onebitUnhandledCudaError;
  }
  *binding = std::move(found);
  return onebitSuccess;
}

onebitResult_t Context::Open(const onebitTransportCommInfo& info,
                             std::unique_ptr<NcclEndpoint>* endpoint) {
  const std::string who = "rank " + std::to_string(info.rank);
  DeviceBinding binding;
  const onebitResult_t result = FindDeviceBinding(who.c_str(), &binding);
  if (result != onebitSuccess) return result;
  std::shared_ptr<Communicator> communicator;
  if (info.group != nullptr) {
    const Group& group = **static_cast<std::shared_ptr<Group>*>(info.group);
    if (group.communicator->rank() != info.rank || group.communicator->ranks() != info.nranks) {
      Warn("%s of %d: the communicator that was joined has this process as rank %d of %d",
           who.c_str(), info.nranks, group.communicator->rank(), group.communicator->ranks());
      return onebitInvalidArgument;
    }
    if (group.communicator->binding().device != binding.device) {
      Warn("%s: the communicator that was joined is on device %d, but device %d is current",
           who.c_str(), group.communicator->binding().device, binding.device);
      return onebitInvalidUsage;
    }
    communicator = group.communicator;
  } else {
    communicator =
        std::make_shared<Communicator>(*this, std::move(binding), info.rank, info.nranks);
  }
  *endpoint = std::make_unique<NcclEndpoint>(this, info, std::move(communicator));
  return onebitSuccess;
}

}  // namespace onebit::nccl
