// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "device/device_fills.h"

#include <atomic>
#include <map>
#include <utility>

namespace onebit {
namespace {

constexpr uint64_t kFillTimeoutMs = 60'000;

std::mutex mutex;  // guards the map
// Never destroyed, because communicators may outlive main.
auto& fills_of_devices = *new std::map<int, std::weak_ptr<DeviceFills>>;
std::atomic<int> pending_devices{0};  // those whose fills may not be done

}  // namespace

Result<std::shared_ptr<DeviceFills>> DeviceFills::Share(const Devices& devices, int device) {
  const std::lock_guard lock(mutex);
  std::weak_ptr<DeviceFills>& shared = fills_of_devices[device];
  if (std::shared_ptr<DeviceFills> fills = shared.lock()) return fills;
  std::shared_ptr<DeviceFills> made(new DeviceFills(devices));
  ONEBIT_ASSIGN_OR_RETURN(made->stream_, DeviceStream::Create(devices));
  ONEBIT_ASSIGN_OR_RETURN(made->last_, DeviceEvent::Create(devices));
  shared = made;
  return made;
}

std::shared_ptr<DeviceFills> DeviceFills::Find(int device) {
  const std::lock_guard lock(mutex);
  const auto found = fills_of_devices.find(device);
  return found == fills_of_devices.end() ? nullptr : found->second.lock();
}

// Compressors may outlive the communicators, and later read what is filled here. A device that
// stands still is not waited for: those who abort a communicator are in a hurry.
DeviceFills::~DeviceFills() {
  constexpr uint64_t kHurryMs = 500;
  if (is_pending_) static_cast<void>(devices_.Synchronize(stream_.get(), kHurryMs));
  NoteDone();
}

Status DeviceFills::Zero(void* memory, size_t bytes) {
  const std::lock_guard lock(mutex_);
  ONEBIT_TRY(devices_.Fill(memory, 0, bytes, stream_.get()));
  ONEBIT_TRY(devices_.Record(last_.get(), stream_.get()));
  if (!std::exchange(is_pending_, true)) pending_devices.fetch_add(1, std::memory_order_release);
  return OkStatus();
}

Status DeviceFills::Order(int device, onebitStream_t stream) {
  if (pending_devices.load(std::memory_order_acquire) == 0) return OkStatus();
  const std::shared_ptr<DeviceFills> fills = Find(device);
  return fills == nullptr ? OkStatus() : fills->OrderBefore(stream);
}

Status DeviceFills::OrderBefore(onebitStream_t stream) {
  const std::lock_guard lock(mutex_);
  if (!is_pending_) return OkStatus();
  ONEBIT_ASSIGN_OR_RETURN(const bool is_done, devices_.IsDone(last_.get()));
  if (!is_done) {
    ONEBIT_ASSIGN_OR_RETURN(const bool is_capturing, devices_.IsCapturing(stream));
    if (!is_capturing) return devices_.Wait(stream, last_.get());
    ONEBIT_TRY(devices_.Synchronize(stream_.get(), kFillTimeoutMs));
  }
  NoteDone();
  return OkStatus();
}

void DeviceFills::NoteDone() {
  if (std::exchange(is_pending_, false)) pending_devices.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace onebit
