// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// An optimizer's arithmetic on a CUDA device: kernels on the caller's stream.
#pragma once

#include <memory>
#include <optional>

#include "kernels/cuda/kernel_table.h"
#include "optim/arithmetic.h"

namespace onebit::optim {

class DeviceArithmetic final : public Arithmetic {
 public:
  static Result<std::unique_ptr<Arithmetic>> Create(const Devices& devices, int device,
                                                    size_t count);
  ~DeviceArithmetic() override;

  Result<Memory> AllocateResults(size_t bytes) const override;
  Status Begin(onebitStream_t stream) override;
  Status BeginAlone() override { return Begin(own_.get()); }
  void End() override;
  onebitStream_t stream() const override { return stream_; }
  Status Await(onebitComm_t comm) override;
  Status Check() const override { return failure_; }
  void Drain() override;

  void Copy(void* to, const void* from, size_t bytes) override;
  void Clear(void* memory, size_t bytes) override;
  void ClearOutside(const uint8_t* mask, size_t count, float* v) override;
  Status Round(const float* values, size_t count, kernels::DataType type, void* out) override;

 private:
  // Device memory for counters of kernels, and for outputs that nobody reads.
  struct Words {
    unsigned long long set_bits = 0;
    uint32_t faults = 0;
    uint32_t unused = 0;
  };

  DeviceArithmetic(const Devices& devices, int device)
      : Arithmetic({MemoryKind::kDevice, device}, &devices), devices_(devices) {}

  void RunKernel(Kernel kernel, const void* params) override;
  void Launch(kernels::cuda::Kernel kernel, const void* params);
  void Sum(Kernel kernel, kernels::SumParams params);
  void Lamb(Kernel kernel, kernels::LambParams params);
  void CountNonzero(kernels::MaskParams params);
  Words* words() const { return reinterpret_cast<Words*>(words_.data()); }

  const Devices& devices_;
  std::optional<DeviceScope> scope_;  // between Begin and End
  DeviceStream own_;
  DeviceEvent awaited_;
  DeviceEvent last_;      // follows all work enqueued before the last End
  Memory words_, tiles_;  // shared by launches, one after the other
  onebitStream_t stream_ = nullptr;
  bool has_last_ = false;
  Status failure_;  // the first error since Begin
};

}  // namespace onebit::optim
