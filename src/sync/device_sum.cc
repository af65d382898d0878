// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "sync/device_sum.h"

#include <cstring>

#include "kernels/cuda/params.h"

namespace onebit {

Result<DeviceSum> DeviceSum::Create(const Devices& devices, int device, size_t count) {
  DeviceSum made;
  made.devices_ = &devices;
  made.device_ = device;
  made.count_ = count;
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(devices, device));
  ONEBIT_ASSIGN_OR_RETURN(made.last_, DeviceEvent::Create(devices));
  ONEBIT_ASSIGN_OR_RETURN(made.memory_, Memory::Create({MemoryKind::kDevice, device}, &devices,
                                                       count * sizeof(float), "the sum of a sync"));
  return made;
}

Status DeviceSum::Begin(onebitStream_t stream) {
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(*devices_, device_));
  ONEBIT_ASSIGN_OR_RETURN(const bool is_capturing, devices_->IsCapturing(stream));
  if (is_capturing) {
    return Error(Code::kInvalidUsage,
                 "stream is being captured, but the host decides at every step of a sync whether "
                 "it sends anything, which a graph cannot do");
  }
  if (has_last_) ONEBIT_TRY(devices_->Wait(stream, last_.get()));
  if (!is_forgotten_) return OkStatus();
  ONEBIT_TRY(devices_->Fill(memory_.data(), 0, memory_.size(), stream));
  is_forgotten_ = false;
  return Mark(stream);
}

Status DeviceSum::Add(const float* x, onebitStream_t stream) { return Launch(x, sum(), stream); }

Status DeviceSum::Join(const float* x, float* out, onebitStream_t stream) {
  return Launch(x, out, stream);
}

// Uses the momentum kernel: with factors of 1 it adds exactly, in one pass, and either input may be
// the output.
Status DeviceSum::Launch(const float* x, float* out, onebitStream_t stream) {
  const bool is_in_place = out == x;  // the kernel allows its output to equal g
  const kernels::LocalMomentumParams params = {.m = is_in_place ? sum() : x,
                                               .g = is_in_place ? x : sum(),
                                               .g_type = kernels::DataType::kF32,
                                               .g_scale = 1,
                                               .beta1 = 1,
                                               .one_minus_beta1 = 1,
                                               .mask = nullptr,
                                               .count = count_,
                                               .out = out};
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(*devices_, device_));
  ONEBIT_TRY(devices_->Launch(kernels::cuda::Kernel::kLocalMomentum, &params, stream));
  return Mark(stream);
}

Status DeviceSum::Mark(onebitStream_t stream) {
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(*devices_, device_));
  ONEBIT_TRY(devices_->Record(last_.get(), stream));
  has_last_ = true;
  return OkStatus();
}

// The thread that destroys or loads a sync may have no current device.
Status DeviceSum::Drain() {
  if (!has_last_) return OkStatus();
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(*devices_, device_));
  return AwaitEvent(*devices_, last_, OkStatus);
}

Status DeviceSum::Read(std::byte* out) {
  if (is_forgotten_) {
    if (count_ != 0) std::memset(out, 0, memory_.size());
    return OkStatus();
  }
  ONEBIT_TRY(Drain());
  return CopyNow(*devices_, device_, out, memory_.data(), memory_.size());
}

Status DeviceSum::Write(const std::byte* in) {
  ONEBIT_TRY(Drain());
  ONEBIT_TRY(CopyNow(*devices_, device_, memory_.data(), in, memory_.size()));
  is_forgotten_ = false;
  return OkStatus();
}

}  // namespace onebit
