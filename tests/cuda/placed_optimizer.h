// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// An optimizer of one rank, on host memory or on that of the current device, with all of its
// visible results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "onebit/onebit.hpp"
#include "tests/cuda/cuda_test_memory.h"
#include "tests/optim/optimizer_job.h"

namespace onebit::testing {

enum class Memories { kHost, kDevice };

// Bytes in host or device memory.
class PlacedBuffer {
 public:
  PlacedBuffer(Memories memories, std::vector<std::byte> content);

  void* data();
  std::vector<std::byte> Read() const;
  void Write(const std::vector<std::byte>& content);

 private:
  std::vector<std::byte> host_;
  std::optional<CudaBuffer> device_;
};

// A subject of optimizer_job.h, and the options of its steps.
struct PlacedCase {
  OptimizerSubject subject;
  onebitDataType_t gradient_type = onebitFloat32;
  bool has_segments = true;  // one dense, one with a mask, one without a trust ratio
  bool has_copy = true;
  bool is_list = false;  // each segment brings its own addresses
  double max_grad_norm = 0;
  std::vector<size_t> nan_calls;  // calls in which the last rank's gradient has a NaN

  static constexpr size_t kCount = 6001;
};
std::string Describe(const PlacedCase& one);

// The results of one call.
struct PlacedStep {
  std::vector<std::byte> x, copy;
  onebitStepResult_t result = ONEBIT_STEP_RESULT_INIT;
};

class PlacedOptimizer {
 public:
  // `config_of_compressor` may be null.
  PlacedOptimizer(const PlacedCase& one, onebitComm_t comm, int rank, int ranks, Memories memories,
                  const onebitCompressorConfig_t* config_of_compressor = nullptr);

  onebitOptimizer_t get() const { return optimizer_.get(); }
  void reset() { optimizer_.reset(); }
  onebitStream_t stream() const { return stream_ ? stream_->handle() : nullptr; }
  PlacedBuffer& x() { return *x_; }
  PlacedBuffer& copy() { return *copy_; }

  // Makes call 1, 2, ...; the gradient follows from x.
  onebitResult_t TryStep(size_t call, onebitStepResult_t* result);
  // Throws unless the step succeeds.
  PlacedStep Step(size_t call);
  std::vector<float> M() const { return MomentOf(get(), "m", PlacedCase::kCount); }
  std::vector<float> V() const { return MomentOf(get(), "v", PlacedCase::kCount); }
  std::vector<double> Ratios() const;
  Blob Export(onebitStateKind_t kind = onebitStateRank) const;

 private:
  void Synchronize() const;

  const PlacedCase case_;
  const ToyProblem problem_{.dimension = PlacedCase::kCount, .noise_offset = 5};
  const int rank_, ranks_;
  std::optional<CudaStream> stream_;
  std::unique_ptr<PlacedBuffer> x_, copy_, gradient_;
  std::vector<size_t> counts_;  // of segments
  UniqueOptimizer optimizer_;
};

// Describes the differences except in bytes sent; "" if there are none.
std::string DifferenceOf(const PlacedStep& found, const PlacedStep& expected);

}  // namespace onebit::testing
