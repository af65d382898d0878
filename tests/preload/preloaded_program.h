// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A program of NCCL with the interposer in front, on the stand-ins for NCCL and CUDA. Its ranks are
// threads, so rules name communicators.
#pragma once

#include <barrier>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "tests/cuda/cuda_test_memory.h"
#include "tests/preload/gradients.h"
#include "tests/support/nccl/nccl_stand_in.h"

namespace onebit::testing {

inline constexpr int kRanks = 3;
inline constexpr int kStart = 2;  // of the rules

struct Rank {
  int rank;
  ncclComm_t comm;
  const CudaStream& stream;
  std::barrier<>& everybody;
};

// Runs `body` on each rank, on a thread and a device of its own. A body that ends the communicator
// sets it to null.
void RunNamed(const char* name, const std::function<void(Rank&)>& body);

// Waits until NCCL reports an error of the communicator, and returns it.
ncclResult_t AwaitAsyncError(ncclComm_t comm);

std::vector<float> FloatsIn(const CudaBuffer& buffer);

class Tensor {
 public:
  Tensor(const Rank& self, int number, size_t count)
      : values_(GradientOf(self.rank, number, count)),
        average_(AverageGradient(kRanks, number, count)),
        buffer_(values_.size() * sizeof(float)) {}

  // Averages the same values again, in place.
  ncclResult_t AllReduce(const Rank& self, ncclRedOp_t op = ncclAvg) {
    buffer_.Write(std::as_bytes(std::span(values_)));
    return ncclAllReduce(buffer_.data(), buffer_.data(), values_.size(), ncclFloat32, op, self.comm,
                         self.stream.get());
  }
  ncclResult_t AllReduce(const Rank& self, const ncclCollConfig_t& config) {
    buffer_.Write(std::as_bytes(std::span(values_)));
    return ncclAllReduceConfig(buffer_.data(), buffer_.data(), values_.size(), ncclFloat32, ncclAvg,
                               self.comm, self.stream.get(), &config);
  }
  std::vector<float> Result(const Rank& self) const {
    self.stream.Synchronize();
    return FloatsIn(buffer_);
  }
  double ErrorOfResult(const Rank& self) const { return RelativeError(Result(self), average_); }
  const std::vector<float>& average() const { return average_; }

 private:
  const std::vector<float> values_;
  const std::vector<float> average_;
  CudaBuffer buffer_;
};

// A tensor whose average is scattered over the ranks, again and again.
class ScatteredTensor {
 public:
  static constexpr size_t kPart = 8192;  // elements of a rank

  ScatteredTensor(const Rank& self, int number);
  // Without a configuration the plain form of the call.
  ncclResult_t ReduceScatter(const Rank& self, const ncclCollConfig_t* config = nullptr) const;
  double ErrorOfResult(const Rank& self) const;

 private:
  const std::vector<float> average_;  // of this rank's part
  const CudaBuffer send_;
  const CudaBuffer recv_;
};

inline onebitTestNcclCounts RealCounts() {
  onebitTestNcclCounts counts;
  onebitTestNcclGetCounts(&counts);
  return counts;
}
inline uint64_t RealAllReduces() { return RealCounts().all_reduces; }

}  // namespace onebit::testing
