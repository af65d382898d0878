// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// An optimizer's arithmetic on the host: runs the CPU's kernels immediately.
#pragma once

#include <cstring>

#include "kernels/reference/elements.h"
#include "optim/arithmetic.h"

namespace onebit::optim {

class HostArithmetic : public Arithmetic {
 public:
  HostArithmetic() : Arithmetic({}, nullptr) {}

  Result<Memory> AllocateResults(size_t bytes) const override { return Allocate(bytes, "results"); }

  Status Begin(onebitStream_t /*stream*/) override { return OkStatus(); }
  Status BeginAlone() override { return OkStatus(); }
  void End() override {}
  onebitStream_t stream() const override { return nullptr; }
  Status Await(onebitComm_t /*comm*/) override { return OkStatus(); }
  Status Check() const override { return OkStatus(); }
  void Drain() override {}

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

 private:
  void RunKernel(Kernel kernel, const void* params) override;
};

}  // namespace onebit::optim
