// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// An optimizer's arithmetic on a CUDA device: kernels on a stream of the caller.
#pragma once

#include <memory>
#include <optional>

#include "kernels/cuda/params.h"
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
  void Settle() override;

  void Copy(void* to, const void* from, size_t bytes) override;
  void Clear(void* memory, size_t bytes) override;
  void ClearOutside(const uint8_t* mask, size_t count, float* v) override;
  Status Round(const float* values, size_t count, kernels::DataType type, void* out) override;

  void SumOfSquares(const void* values, kernels::DataType type, size_t count, double* sum) override;
  void SumOfMagnitudes(const float* values, size_t count, double* sum) override;
  void MaskOfNonzero(const float* v, size_t count, uint8_t* mask, uint64_t* set_bits) override;
  void AdamDense(const kernels::AdamUpdate& update) override;
  void AdamFrozen(const kernels::AdamUpdate& update) override;
  void LocalMomentum(const float* m, const void* g, kernels::DataType g_type, float g_scale,
                     float beta1, float one_minus_beta1, const uint8_t* mask, size_t count,
                     float* out) override;
  void LambDense(const kernels::LambUpdate& update, kernels::LambNorms* norms) override;
  void LambFrozen(const kernels::LambUpdate& update, kernels::LambNorms* norms) override;
  void ZeroOneLocal(const kernels::ZeroOneUpdate& update) override;
  void ZeroOneAccumulate(const kernels::ZeroOneUpdate& update, float* out) override;
  void ZeroOneSync(const kernels::ZeroOneUpdate& update) override;
  void RefreshVariance(const float* v, const void* input, kernels::DataType type, float input_scale,
                       float beta2, float one_minus_beta2, size_t count, float* out) override;

 private:
  // In device memory: what kernels count in, or write without anybody reading it.
  struct Words {
    unsigned long long set_bits = 0;
    uint32_t verdict = 0;
    uint32_t unused = 0;
  };

  DeviceArithmetic(const Devices& devices, int device)
      : Arithmetic({MemoryKind::kDevice, device}, &devices), devices_(devices) {}

  void Launch(kernels::cuda::Kernel kernel, const void* params);
  void Sum(kernels::cuda::Kernel kernel, const void* values, kernels::DataType type, size_t count,
           double* sum);
  void Lamb(kernels::cuda::Kernel kernel, const kernels::LambUpdate& update,
            kernels::LambNorms* norms);
  Words* words() const { return reinterpret_cast<Words*>(words_.data()); }

  const Devices& devices_;
  std::optional<DeviceScope> scope_;  // between Begin and End
  DeviceStream own_;
  DeviceEvent awaited_;
  DeviceEvent last_;      // behind all that was enqueued before the last End
  Memory words_, tiles_;  // of launches, which take turns
  onebitStream_t stream_ = nullptr;
  bool has_last_ = false;
  Status failure_;  // the first, since Begin
};

}  // namespace onebit::optim
