// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/device_steps.h"

#include <atomic>
#include <cstring>

namespace onebit {
namespace {

// Kernels of a step take milliseconds, so only a hung device takes longer.
constexpr uint64_t kDeviceTimeoutMs = 60'000;

}  // namespace

Result<std::unique_ptr<DeviceSteps>> DeviceSteps::Create(const Devices& devices, int device) {
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(devices, device));
  std::unique_ptr<DeviceSteps> steps(new DeviceSteps(devices, device));
  ONEBIT_ASSIGN_OR_RETURN(steps->stream_, DeviceStream::Create(devices));
  for (uint32_t i = 0; i < kMostOutstanding; ++i) {
    ONEBIT_ASSIGN_OR_RETURN(DeviceEvent event, DeviceEvent::Create(devices));
    steps->events_.push_back(std::move(event));
  }
  steps->steps_.resize(kMostOutstanding);
  const MemoryLocation location{MemoryKind::kDevice, device};
  ONEBIT_ASSIGN_OR_RETURN(
      steps->verdicts_,
      Memory::CreatePinned(devices, device, kMostOutstanding * sizeof(uint32_t), "verdicts"));
  ONEBIT_ASSIGN_OR_RETURN(
      steps->checksum_, Memory::Create(location, &devices, sizeof(kernels::Checksum), "checksums"));
  ONEBIT_ASSIGN_OR_RETURN(
      steps->checksum_copy_,
      Memory::CreatePinned(devices, device, sizeof(kernels::Checksum), "checksums"));
  return steps;
}

// Waits, because kernels may still be using memory that is freed next.
DeviceSteps::~DeviceSteps() {
  const auto scope = DeviceScope::Enter(devices_, device_);
  if (scope.ok() && stream_.get() != nullptr) static_cast<void>(Synchronize());
}

Status DeviceSteps::Reserve(const Plan& plan) {
  ONEBIT_TRY(CheckDevicePlan(plan));
  return tile_sums_.Reserve(
      TileSumsFor(plan, plan.tensor_elements) * sizeof(kernels::cuda::TileSum),
      [this](size_t bytes) { return NewSums(bytes); });
}

Status DeviceSteps::Prepare(const Plan& plan, size_t tensor_elements) {
  return tile_sums_.Prepare(TileSumsFor(plan, tensor_elements) * sizeof(kernels::cuda::TileSum),
                            [this](size_t bytes) { return NewSums(bytes); });
}

Result<Memory> DeviceSteps::NewSums(size_t bytes) const {
  return Memory::Create({MemoryKind::kDevice, device_}, &devices_, bytes, "partial sums");
}

KernelQueue DeviceSteps::queue() const {
  return {.devices = &devices_,
          .stream = stream_.get(),
          .tile_sums = reinterpret_cast<kernels::cuda::TileSum*>(tile_sums_.data())};
}

Status DeviceSteps::Submit(const Call& call, const Step& step, uint32_t index) {
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(devices_, device_));
  const uint64_t slot = submitted_ % kMostOutstanding;
  auto* const verdict = reinterpret_cast<uint32_t*>(verdicts_.data()) + slot;
  std::atomic_ref(*verdict).store(0, std::memory_order_release);
  ONEBIT_TRY(EnqueueStep(queue(), call, step, verdict));
  ONEBIT_TRY(devices_.Record(events_[slot].get(), stream_.get()));
  steps_[slot] = index;
  ++submitted_;
  return OkStatus();
}

Result<bool> DeviceSteps::Take(Done* done) {
  if (submitted_ == taken_) return false;
  const uint64_t slot = taken_ % kMostOutstanding;
  ONEBIT_ASSIGN_OR_RETURN(const bool is_done, devices_.IsDone(events_[slot].get()));
  if (!is_done) return false;
  auto* const verdict = reinterpret_cast<uint32_t*>(verdicts_.data()) + slot;
  *done = {steps_[slot], std::atomic_ref(*verdict).load(std::memory_order_acquire) == 0};
  ++taken_;
  return true;
}

void DeviceSteps::Drop() {
  static_cast<void>(Synchronize());  // an earlier error brought us here and is reported
  taken_ = submitted_;
}

Result<kernels::Checksum> DeviceSteps::HeldChecksum(const Call& call, uint32_t chunk) {
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(devices_, device_));
  auto* const checksum = reinterpret_cast<kernels::Checksum*>(checksum_.data());
  ONEBIT_TRY(devices_.Fill(checksum, 0, sizeof(*checksum), stream_.get()));
  ONEBIT_TRY(EnqueueHeldChecksum(queue(), call, chunk, checksum));
  ONEBIT_TRY(devices_.Copy(checksum_copy_.data(), checksum, sizeof(*checksum), stream_.get()));
  ONEBIT_TRY(Synchronize());
  kernels::Checksum result;
  std::memcpy(&result, checksum_copy_.data(), sizeof(result));
  return result;
}

Status DeviceSteps::FillNan(const Call& call) {
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(devices_, device_));
  return EnqueueNan(queue(), call, nullptr);
}

Status DeviceSteps::Synchronize() { return devices_.Synchronize(stream_.get(), kDeviceTimeoutMs); }

}  // namespace onebit
