// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Zeroes new memory of a device without a wait of the host: trainers hold a lock during calls,
// which must not depend on what the device is doing.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>

#include "base/status.h"
#include "device/devices.h"

namespace onebit {

// The fills of one device, on a stream of their own. Communicators that use the device share it,
// and the last one ends it. Thread-safe.
class DeviceFills {
 public:
  // Returns the fills of a device, which must be current; creates them for its first user.
  static Result<std::shared_ptr<DeviceFills>> Share(const Devices& devices, int device);
  // Null if the device has no user.
  static std::shared_ptr<DeviceFills> Find(int device);
  // Lets later work on `stream` wait for all fills of the device so far. The host waits for them if
  // the stream is being captured, because a graph cannot. Takes no lock where there are none.
  static Status Order(int device, onebitStream_t stream);

  ~DeviceFills();
  DeviceFills(const DeviceFills&) = delete;
  DeviceFills& operator=(const DeviceFills&) = delete;

  // Enqueues a fill. The device must be current.
  Status Zero(void* memory, size_t bytes);

 private:
  explicit DeviceFills(const Devices& devices) : devices_(devices) {}
  Status OrderBefore(onebitStream_t stream);
  void NoteDone();

  const Devices& devices_;
  std::mutex mutex_;
  DeviceStream stream_;
  DeviceEvent last_;         // recorded behind the latest fill
  bool is_pending_ = false;  // it may not be done
};

}  // namespace onebit
