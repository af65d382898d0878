// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The accumulator of a sync in the memory of a device.
#pragma once

#include <cstddef>

#include "base/status.h"
#include "device/await.h"
#include "device/memory.h"

namespace onebit {

// Sums of fp32 elements, zero at first. Work is enqueued on streams of the caller, whichever they
// are, in the order of the calls. Move-only; one thread at a time.
class DeviceSum {
 public:
  static Result<DeviceSum> Create(const Devices& devices, int device, size_t count);
  DeviceSum(DeviceSum&&) noexcept = default;
  DeviceSum& operator=(DeviceSum&&) noexcept = default;

  // Before Add and Join.
  Status Begin(onebitStream_t stream);
  // u += x.
  Status Add(const float* x, onebitStream_t stream);
  // out = u + x, where out may be x.
  Status Join(const float* x, float* out, onebitStream_t stream);
  // u = 0, by the next that uses it.
  void Forget() { is_forgotten_ = true; }
  // Waits for all that was enqueued on a stream; as AwaitEvent.
  template <typename FindFailure>
  Status Await(onebitStream_t stream, FindFailure find_failure) {
    ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(*devices_, device_));
    ONEBIT_TRY(Mark(stream));
    return AwaitEvent(*devices_, last_, find_failure);
  }
  // Waits for all that was enqueued here.
  Status Settle();

  // To and from host memory. These wait.
  Status Read(std::byte* out);
  Status Write(const std::byte* in);

 private:
  DeviceSum() = default;
  float* sum() const { return reinterpret_cast<float*>(memory_.data()); }
  Status Launch(const float* x, float* out, onebitStream_t stream);
  Status Mark(onebitStream_t stream);

  const Devices* devices_ = nullptr;
  int device_ = 0;
  size_t count_ = 0;
  Memory memory_;
  DeviceEvent last_;  // behind what was enqueued last
  bool has_last_ = false;
  bool is_forgotten_ = false;
};

}  // namespace onebit
