// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Scalar models of allreduce, for the checker of a sweep.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "perf/common/collective.h"
#include "perf/common/comm_handles.h"

namespace onebit::perf {

// Keeps the result of each call, which is the same on every rank.
class AllReduceReference : public Reference {
 public:
  explicit AllReduceReference(const Case& row) : row_(row) {}

  void Advance(std::span<const void* const> inputs) override {
    Buffer output(row_.count * ElementBytes(row_.type));
    Simulate(inputs, output.data());
    expected_.push_back(std::move(output));
  }
  const void* Expected(size_t call, int /*rank*/) const override { return expected_[call].data(); }

  void Observe(std::span<const void* const>, const void*) override {}
  uint64_t CountLostElements() override { return 0; }

 protected:
  virtual void Simulate(std::span<const void* const> inputs, void* output) = 0;

  const Case row_;

 private:
  std::vector<Buffer> expected_;
};

// The model of the library's allreduce in the mode of the options.
std::unique_ptr<Reference> MakeAllReduceReference(const Case& row, const Options& options);

}  // namespace onebit::perf
