// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The accumulator of a sync in device memory.
#pragma once

#include <cstddef>

#include "base/status.h"
#include "device/await.h"
#include "device/memory.h"

namespace onebit {

// A vector u of fp32 sums, zero at first. Work is enqueued on the caller's streams, in the order of
// the calls even across streams. Move-only; not thread-safe.
class DeviceSum {
 public:
  static Result<DeviceSum> Create(const Devices& devices, int device, size_t count);
  DeviceSum(DeviceSum&&) noexcept = default;
  DeviceSum& operator=(DeviceSum&&) noexcept = default;

  // Must precede Add and Join on this stream.
  Status Begin(onebitStream_t stream);
  // u += x.
  Status Add(const float* x, onebitStream_t stream);
  // out = u + x, where out may be x.
  Status Join(const float* x, float* out, onebitStream_t stream);
  // u = 0; the next use clears it.
  void Forget() { is_forgotten_ = true; }
  // Waits for everything enqueued on `stream`, like AwaitEvent.
  template <typename FindFailure>
  Status Await(onebitStream_t stream, FindFailure find_failure) {
    ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(*devices_, device_));
    ONEBIT_TRY(Mark(stream));
    return AwaitEvent(*devices_, last_, find_failure);
  }
  // Waits for everything that this object has enqueued.
  Status Drain();

  // Copies u to and from host memory, and waits for that.
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
  DeviceEvent last_;  // recorded after the last work
  bool has_last_ = false;
  bool is_forgotten_ = false;
};

}  // namespace onebit
