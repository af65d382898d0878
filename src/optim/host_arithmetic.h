// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// An optimizer's arithmetic on the host: calls of the CPU's kernels, each at once.
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels/reference/elements.h"
#include "optim/arithmetic.h"

namespace onebit::optim {

class HostArithmetic final : public Arithmetic {
 public:
  HostArithmetic() : Arithmetic({}, nullptr) {}

  Result<Memory> AllocateResults(size_t bytes) const override { return Allocate(bytes, "results"); }

  Status Begin(onebitStream_t /*stream*/) override { return OkStatus(); }
  Status BeginAlone() override { return OkStatus(); }
  void End() override {}
  onebitStream_t stream() const override { return nullptr; }
  Status Await(onebitComm_t /*comm*/) override { return OkStatus(); }
  Status Check() const override { return OkStatus(); }
  void Settle() override {}

  void Copy(void* to, const void* from, size_t bytes) override {
    if (bytes != 0) std::memcpy(to, from, bytes);
  }
  void Clear(void* memory, size_t bytes) override {
    if (bytes != 0) std::memset(memory, 0, bytes);
  }
  void ClearOutside(const uint8_t* mask, size_t count, float* v) override {
    for (size_t i = 0; i < count; ++i) {
      if ((mask[i / 8] >> (i % 8) & 1) == 0) v[i] = 0;
    }
  }
  Status Round(const float* values, size_t count, kernels::DataType type, void* out) override {
    for (size_t i = 0; i < count; ++i) kernels::reference::StoreElement(values[i], type, i, out);
    return OkStatus();
  }

  void SumOfSquares(const void* values, kernels::DataType type, size_t count,
                    double* sum) override {
    *sum = kernels::cpu::SumOfSquares(values, type, count);
  }
  void SumOfMagnitudes(const float* values, size_t count, double* sum) override {
    *sum = kernels::cpu::SumOfMagnitudes(values, kernels::DataType::kF32, count);
  }
  void MaskOfNonzero(const float* v, size_t count, uint8_t* mask, uint64_t* set_bits) override {
    *set_bits = kernels::cpu::MaskOfNonzero(v, count, mask);
  }
  void AdamDense(const kernels::AdamUpdate& update) override { kernels::cpu::AdamDense(update); }
  void AdamFrozen(const kernels::AdamUpdate& update) override { kernels::cpu::AdamFrozen(update); }
  void LocalMomentum(const float* m, const void* g, kernels::DataType g_type, float g_scale,
                     float beta1, float one_minus_beta1, const uint8_t* mask, size_t count,
                     float* out) override {
    kernels::cpu::LocalMomentum(m, g, g_type, g_scale, beta1, one_minus_beta1, mask, count, out);
  }
  void LambDense(const kernels::LambUpdate& update, kernels::LambNorms* norms) override {
    *norms = kernels::cpu::LambDense(update);
  }
  void LambFrozen(const kernels::LambUpdate& update, kernels::LambNorms* norms) override {
    *norms = kernels::cpu::LambFrozen(update);
  }
  void ZeroOneLocal(const kernels::ZeroOneUpdate& update) override {
    kernels::cpu::ZeroOneLocal(update);
  }
  void ZeroOneAccumulate(const kernels::ZeroOneUpdate& update, float* out) override {
    kernels::cpu::ZeroOneAccumulate(update, out);
  }
  void ZeroOneSync(const kernels::ZeroOneUpdate& update) override {
    kernels::cpu::ZeroOneSync(update);
  }
  void RefreshVariance(const float* v, const void* input, kernels::DataType type, float input_scale,
                       float beta2, float one_minus_beta2, size_t count, float* out) override {
    kernels::cpu::RefreshVariance(v, input, type, input_scale, beta2, one_minus_beta2, count, out);
  }
};

}  // namespace onebit::optim
