// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Opens libonebit-cuda.so once the program has loaded CUDA's driver, and never before.
#pragma once

#include "device/devices.h"

namespace onebit {

class DeviceLoader {
 public:
  static const Devices* Find(Devices::FoldersFunction folders);
  static const Devices* FindFor(const void* buffer, Devices::FoldersFunction folders);
  static Status Obstacle();

 private:
  static Result<const Devices*> Open(Devices::FoldersFunction folders);
  static Result<const Devices*> Start(const DeviceFunctions* functions);
};

}  // namespace onebit
