// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Launches kernels for the steps of calls on device memory whose codec has a code for each element.
#pragma once

#include <cstddef>
#include <memory>

#include "device/devices.h"
#include "kernels/cuda/kernel_table.h"
#include "kernels/cuda/params.h"
#include "plan/reduce_op.h"
#include "steps/batch.h"

namespace onebit {

struct FaultWords;

// The terms of the sum over hosts where HasHostWeights. `host_sizes`: the ranks on each host,
// in device memory.
inline kernels::cuda::PacketTerms HostTerms(const Call& call, const float* host_sizes) {
  const bool is_sum = call.descriptor.op == ReduceOp::kSum;
  return {.factors = host_sizes, .divisor = is_sum ? 1 : call.plan->ranks};
}

// Work on a stream whose device is current. Owned by a DeviceCompute.
class CodeKernels {
 public:
  explicit CodeKernels(const Devices& devices);
  ~CodeKernels();

  // Forgets what an error has left behind. `host_sizes`: as HostTerms.
  void Begin(onebitStream_t stream, const float* host_sizes);
  // Add the equivalents of ElementCodeOps' functions. What has a kind in common shares launches
  // until Flush, so steps in between must not depend on each other.
  Status Compress(const Call& call, const Step& step, const FaultWords& words);
  Status Reduce(const Call& call, const Step& step, const FaultWords& words);
  Status Average(const Call& call, const Step& step, const FaultWords& words);
  Status Decode(const Call& call, const Step& step, const FaultWords& words);
  Status Flush();

 private:
  struct Lists;

  // Adds a piece to the list of `params`, for launches of this kind.
  template <typename Params, typename Kind>
  Status AddPiece(kernels::cuda::Kernel kernel, const Kind& kind, kernels::cuda::LowBitPiece piece,
                  size_t tile_elements, Params* params);

  const Devices& devices_;
  onebitStream_t stream_ = nullptr;
  const float* host_sizes_ = nullptr;
  const std::unique_ptr<Lists> lists_;  // parameters of launches, kept because they are large
  kernels::cuda::Kernel open_ = kernels::cuda::Kernel::kCount;  // whose list may have pieces
};

}  // namespace onebit
