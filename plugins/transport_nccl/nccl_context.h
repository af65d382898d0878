// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Context: the state that the endpoints of a process share.
#pragma once

#include <onebit/transport.h>

#include <memory>
#include <mutex>

#include "plugins/common/base_context.h"
#include "plugins/common/cuda_driver.h"
#include "plugins/transport_nccl/nccl_api.h"
#include "plugins/transport_nccl/nccl_settings.h"

namespace onebit::nccl {

class NcclEndpoint;

// The driver, device and context of a rank's communicator.
struct DeviceBinding {
  std::shared_ptr<const cuda::Driver> driver;
  CUcontext device_context = nullptr;
  int device = 0;
};

// Created by init, destroyed by finalize. Thread-safe.
class Context : public plugin::BaseContext {
 public:
  // Finds NCCL. Logs the cause of an error.
  static onebitResult_t Create(const onebitTransportHost& host, std::unique_ptr<Context>* context);
  // `context` is null before init.
  static onebitTransportProperties Properties(const Context* context);
  // Throws std::bad_alloc.
  onebitResult_t Open(const onebitTransportCommInfo& info, std::unique_ptr<NcclEndpoint>* endpoint);

  // Finds this thread's current device. Logs the cause of an error, with `who` as the one
  // concerned.
  onebitResult_t FindDeviceBinding(const char* who, DeviceBinding* binding);

  const Options& options() const { return options_; }
  const NcclApi& api() const { return *api_; }
  // Used by code that may outlive the context.
  const std::shared_ptr<const NcclApi>& shared_api() const { return api_; }

 private:
  explicit Context(const onebitTransportHost& host)
      : BaseContext(host, "nccl"), options_(*static_cast<const Options*>(host.settings)) {}

  const Options options_;
  std::shared_ptr<const NcclApi> api_;
  std::mutex mutex_;
  // Guarded by mutex_. Null until first needed, because the program may load it after init.
  std::shared_ptr<const cuda::Driver> driver_;
};

}  // namespace onebit::nccl
