// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Many tensors of one rank, and their allreduces one by one or as one group.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "onebit/onebit.h"
#include "perf/common/codec_choice.h"
#include "perf/common/comm_handles.h"
#include "perf/common/cuda_device.h"

namespace onebit::perf {

struct TensorShapes {
  int tensors = 400;
  int least_elements = 1024;
  int most_elements = 102'400;
  int seed = 1;  // what sizes depend on
  CodecChoice compression = {.mode = Mode::kEf};
};

// Draws sizes evenly over their logarithm, as a model has them. Tensors are in host memory, or on
// the current CUDA device with a stream of its own.
class Tensors {
 public:
  Tensors(const TensorShapes& shapes, onebitComm_t comm, bool has_cuda);

  // Both return when the results are there.
  void CallAll();
  void CallGroup();

  size_t elements() const { return elements_; }
  // Both must have no call in progress.
  bool HasResultsOf(const Tensors& other) const;

 private:
  struct Tensor {
    size_t count = 0;
    std::vector<float> input;
    std::vector<float> output;
    CudaBuffer device_input;   // without memory on the host
    CudaBuffer device_output;  // empty on the host
    CompressorHandle compressor;
  };

  Tensor MakeTensor(size_t count) const;
  void Enqueue();
  void Await() const;
  std::vector<float> ResultOf(const Tensor& tensor) const;

  onebitComm_t comm_;
  CodecChoice compression_;
  std::optional<CudaStream> stream_;  // none on the host
  std::vector<Tensor> tensors_;
  size_t elements_ = 0;
};

}  // namespace onebit::perf
