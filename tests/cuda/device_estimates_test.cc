// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// All-gathers with error feedback on device memory over a host transport. In some of their calls
// ranks compare what they hold, which makes a message longer, so all must agree on these calls.
#include <cstddef>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "tests/cuda/cuda_test_memory.h"
#include "tests/support/comm_group.h"

namespace onebit::testing {
namespace {

using Bytes = std::vector<std::byte>;

constexpr int kRanks = 2;
constexpr size_t kCount = 3000;

std::vector<float> InputOf(int rank, int tensor) {
  std::mt19937 random(static_cast<unsigned>(31 * tensor + rank));
  std::vector<float> values(kCount);
  for (float& value : values) value = static_cast<float>(random()) * 0x1p-31f - 1.0f;
  return values;
}

UniqueCompressor GatherCompressor(onebitComm_t comm, bool is_on_device) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.collective = onebitCollectiveAllGather;
  config.memory = is_on_device ? onebitMemoryDevice : onebitMemoryHost;
  config.block = 512;
  return NewCompressor(comm, kCount, onebitFloat32, config);
}

// A tensor that is gathered, in the memory of its rank.
class Tensor {
 public:
  Tensor(onebitComm_t comm, bool is_on_device, const std::vector<float>& input)
      : comm_(comm),
        is_on_device_(is_on_device),
        compressor_(GatherCompressor(comm, is_on_device)),
        host_input_(input),
        host_output_(kRanks * kCount),
        input_(std::as_bytes(std::span(input))),
        output_(host_output_.size() * sizeof(float)) {}

  onebitCompressor_t compressor() const { return compressor_.get(); }
  void SetFirst(float value) {
    host_input_[0] = value;
    if (is_on_device_) input_.Write(std::as_bytes(std::span(host_input_)));
  }
  void Gather(const CudaStream& stream) {
    const void* const from = is_on_device_ ? input_.data() : host_input_.data();
    void* const to = is_on_device_ ? output_.data() : host_output_.data();
    EXPECT_EQ(onebitAllGather(from, to, kCount, onebitFloat32, compressor_.get(), comm_,
                              is_on_device_ ? stream.handle() : nullptr),
              onebitSuccess)
        << onebitGetLastError(nullptr);
  }
  Bytes Output() const {
    if (is_on_device_) return output_.Read();
    const auto bytes = std::as_bytes(std::span(host_output_));
    return {bytes.begin(), bytes.end()};
  }

 private:
  const onebitComm_t comm_;
  const bool is_on_device_;
  UniqueCompressor compressor_;
  std::vector<float> host_input_;
  std::vector<float> host_output_;
  CudaBuffer input_;
  CudaBuffer output_;
};

// Calls of a group that compares estimates use more of the memory that calls share. Nothing waits
// for them before the next group is enqueued.
TEST(DeviceEstimatesTest, GroupsInARowHaveTheResultsOfTheHost) {
  constexpr int kTensors = 3;
  constexpr int kGroups = 20;
  const auto run = [](bool is_on_device) {
    std::vector<Bytes> outputs(size_t{kRanks} * kTensors);
    CommGroup group(kRanks);
    group.Run([&](int rank) {
      UseCudaDevice(rank);
      const CudaStream stream;
      std::vector<Tensor> tensors;
      for (int i = 0; i < kTensors; ++i) {
        tensors.emplace_back(group.comm(rank), is_on_device, InputOf(rank, i));
      }
      for (int call = 0; call < kGroups; ++call) {
        EXPECT_EQ(onebitGroupStart(), onebitSuccess);
        for (Tensor& tensor : tensors) tensor.Gather(stream);
        EXPECT_EQ(onebitGroupEnd(), onebitSuccess) << onebitGetLastError(nullptr);
      }
      stream.Synchronize();
      onebitResult_t error = onebitSuccess;
      EXPECT_EQ(onebitCommGetAsyncError(group.comm(rank), &error), onebitSuccess);
      EXPECT_EQ(error, onebitSuccess) << onebitGetLastError(group.comm(rank));
      for (int i = 0; i < kTensors; ++i) {
        outputs[static_cast<size_t>(rank * kTensors + i)] =
            tensors[static_cast<size_t>(i)].Output();
      }
      EXPECT_EQ(onebitBarrier(group.comm(rank), nullptr), onebitSuccess);
    });
    return outputs;
  };
  const auto expected = run(false);
  for (int repetition = 0; repetition < 5; ++repetition) {
    SCOPED_TRACE(::testing::Message() << "repetition " << repetition);
    EXPECT_TRUE(run(true) == expected);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace onebit::testing
