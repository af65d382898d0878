// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/parameter_location.h"

#include "transport/process_settings.h"

namespace onebit::optim {

const Devices* FindDevices() { return Devices::Find(ProcessPluginFolders); }

Result<MemoryLocation> LocationOf(const void* memory) {
  const Devices* const devices = Devices::FindFor(memory, ProcessPluginFolders);
  if (devices == nullptr) return MemoryLocation{};
  return devices->LocationOf(memory);
}

Status CheckLocation(const char* name, const void* memory, const MemoryLocation& parameters) {
  if (memory == nullptr) return OkStatus();
  ONEBIT_ASSIGN_OR_RETURN(const MemoryLocation location, LocationOf(memory));
  if (location == parameters) return OkStatus();
  return Error(Code::kInvalidArgument, "{} is {}, but the parameters are {}", name,
               Describe(location), Describe(parameters));
}

Status CheckResidualLocation(const onebitCompressorConfig_t* config,
                             const MemoryLocation& parameters) {
  if (config == nullptr) return OkStatus();
  const bool fits_memory =
      config->memory == ONEBIT_UNDEF_INT ||
      config->memory == (parameters.is_device() ? onebitMemoryDevice : onebitMemoryHost);
  const bool fits_device = config->device == ONEBIT_UNDEF_INT ||
                           (parameters.is_device() && config->device == parameters.device);
  if (fits_memory && fits_device) return OkStatus();
  return Error(Code::kInvalidArgument,
               "compressor->memory is {} and compressor->device {}, but the parameters are {}, and "
               "residuals must be in the same memory: leave both undefined",
               config->memory, config->device, Describe(parameters));
}

}  // namespace onebit::optim
