// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/place.h"

#include "transport/settings.h"

namespace onebit::optim {

const Devices* FindDevices() { return Devices::Find(ProcessPluginFolders); }

Result<MemoryPlace> PlaceOf(const void* memory) {
  const Devices* const devices = memory == nullptr ? nullptr : FindDevices();
  if (devices == nullptr) return MemoryPlace{};
  return devices->PlaceOf(memory);
}

Status CheckPlace(const char* name, const void* memory, const MemoryPlace& parameters) {
  if (memory == nullptr) return OkStatus();
  ONEBIT_ASSIGN_OR_RETURN(const MemoryPlace place, PlaceOf(memory));
  if (place == parameters) return OkStatus();
  return Error(Code::kInvalidArgument, "{} is {}, but the parameters are {}", name, Describe(place),
               Describe(parameters));
}

Status CheckResidualPlace(const onebitCompressorConfig_t* config, const MemoryPlace& parameters) {
  if (config == nullptr) return OkStatus();
  const bool fits_memory =
      config->memory == ONEBIT_UNDEF_INT ||
      config->memory == (parameters.is_device() ? onebitMemoryDevice : onebitMemoryHost);
  const bool fits_device = config->device == ONEBIT_UNDEF_INT ||
                           (parameters.is_device() && config->device == parameters.device);
  if (fits_memory && fits_device) return OkStatus();
  return Error(Code::kInvalidArgument,
               "compressor->memory is {} and compressor->device {}, but the parameters are {}, and "
               "residuals are where they are: leave both undefined",
               config->memory, config->device, Describe(parameters));
}

}  // namespace onebit::optim
