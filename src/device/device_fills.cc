// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "device/device_fills.h"

#include <atomic>
#include <map>
#include <memory>

namespace onebit {
namespace {

constexpr uint64_t kFillTimeoutMs = 60'000;

std::mutex mutex;  // guards the map
// Never destroyed, because the driver may be gone when the process ends.
auto& fills_of_devices = *new std::map<int, std::unique_ptr<DeviceFills>>;
std::atomic<int> pending_devices{0};  // those whose fills may not be done

}  // namespace

Result<DeviceFills*> DeviceFills::Of(const Devices& devices, int device) {
  const std::lock_guard lock(mutex);
  std::unique_ptr<DeviceFills>& fills = fills_of_devices[device];
  if (fills != nullptr) return fills.get();
  std::unique_ptr<DeviceFills> made(new DeviceFills(devices));
  ONEBIT_ASSIGN_OR_RETURN(made->stream_, DeviceStream::Create(devices));
  ONEBIT_ASSIGN_OR_RETURN(made->last_, DeviceEvent::Create(devices));
  fills = std::move(made);
  return fills.get();
}

Status DeviceFills::Zero(void* memory, size_t bytes) {
  const std::lock_guard lock(mutex_);
  ONEBIT_TRY(devices_.Fill(memory, 0, bytes, stream_.get()));
  ONEBIT_TRY(devices_.Record(last_.get(), stream_.get()));
  if (!is_pending_) pending_devices.fetch_add(1, std::memory_order_release);
  is_pending_ = true;
  return OkStatus();
}

Status DeviceFills::Order(int device, onebitStream_t stream) {
  if (pending_devices.load(std::memory_order_acquire) == 0) return OkStatus();
  DeviceFills* fills = nullptr;
  {
    const std::lock_guard lock(mutex);
    const auto found = fills_of_devices.find(device);
    if (found == fills_of_devices.end()) return OkStatus();
    fills = found->second.get();
  }
  return fills->OrderBefore(stream);
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
  is_pending_ = false;
  pending_devices.fetch_sub(1, std::memory_order_relaxed);
  return OkStatus();
}

}  // namespace onebit
