// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// All-gathers with error feedback on device memory over a host transport. In some of their calls
// ranks compare what they hold, which makes a message longer, so all must agree on these calls.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <span>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include "tests/cuda/cuda_test_memory.h"
#include "tests/support/comm_group.h"
#include "tests/support/exported_state.h"

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
    if (onebitAllGather(from, to, kCount, onebitFloat32, compressor_.get(), comm_,
                        is_on_device_ ? stream.handle() : nullptr) != onebitSuccess) {
      throw std::runtime_error(onebitGetLastError(nullptr));
    }
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

// Messages and results of calls of which all but a few are finite.
struct Outcomes {
  std::vector<uint64_t> sent;  // by rank 0 in each call, if it is on the host
  std::vector<Bytes> outputs[kRanks];
};

constexpr int kCalls = 300;  // more than a replica age counts
constexpr int kResetBehind = 280;

Outcomes GatherOften(std::span<const bool> is_on_device, const std::set<int>& nan_calls) {
  Outcomes outcomes;
  CommGroup group(kRanks);
  group.Run([&](int rank) {
    UseCudaDevice(rank);
    const onebitComm_t comm = group.comm(rank);
    const bool is_here = is_on_device[static_cast<size_t>(rank)];
    const bool counts_bytes = rank == 0 && !is_here;
    const CudaStream stream;
    const std::vector<float> input = InputOf(rank, 0);
    const auto gather = [&](Tensor& tensor) {
      const uint64_t before = StatsOf(comm).bytes_sent;
      tensor.Gather(stream);
      if (counts_bytes) outcomes.sent.push_back(StatsOf(comm).bytes_sent - before);
    };
    const auto keep_output = [&](const Tensor& tensor) {
      stream.Synchronize();
      outcomes.outputs[rank].push_back(tensor.Output());
    };
    Tensor tensor(comm, is_here, input);
    for (int call = 0; call < kCalls; ++call) {
      const bool is_nan = nan_calls.contains(call);
      if (is_nan) stream.Synchronize();
      if (is_nan && rank == 1) tensor.SetFirst(std::numeric_limits<float>::quiet_NaN());
      gather(tensor);
      if (is_nan || call % 40 == 0) keep_output(tensor);
      if (is_nan) tensor.SetFirst(input[0]);
      if (call == kResetBehind) {
        EXPECT_EQ(onebitCompressorReset(tensor.compressor()), onebitSuccess);
      }
    }
    keep_output(tensor);
    // Another compressor goes on with its state.
    const Bytes state = StateOf(tensor.compressor());
    Tensor next(comm, is_here, input);
    EXPECT_EQ(onebitCompressorImport(next.compressor(), state.data(), state.size()), onebitSuccess)
        << onebitGetLastError(nullptr);
    for (int call = 0; call < 20; ++call) gather(next);
    keep_output(next);
    EXPECT_EQ(onebitBarrier(comm, nullptr), onebitSuccess) << onebitGetLastError(nullptr);
  });
  return outcomes;
}

// The calls whose messages are longer than those of the first call.
std::vector<size_t> LongCalls(const std::vector<uint64_t>& sent) {
  std::vector<size_t> longer;
  for (size_t call = 0; call < sent.size(); ++call) {
    if (sent[call] > sent[0]) longer.push_back(call);
  }
  return longer;
}

constexpr bool kHosts[kRanks] = {false, false};

// Calls are counted from a reset or an import on, modulo 255 as replica ages are.
TEST(DeviceEstimatesTest, HostsCompareThemInEverySixteenthCall) {
  std::vector<size_t> expected;
  for (size_t call = 16; call < 255; call += 16) expected.push_back(call);
  expected.push_back(255 + 16);
  expected.push_back(kResetBehind + 1 + 16);
  expected.push_back(kCalls + 32 - (kCalls - kResetBehind - 1));
  EXPECT_EQ(LongCalls(GatherOften(kHosts, {}).sent), expected);
}

TEST(DeviceEstimatesTest, RanksOnHostsAndDevicesCompareThemInTheSameCalls) {
  const std::set<int> nan_calls[] = {{}, {7, kCalls - 10}};
  constexpr bool kPlaces[][kRanks] = {{true, false}, {false, true}, {true, true}};
  for (const std::set<int>& nans : nan_calls) {
    const Outcomes expected = GatherOften(kHosts, nans);
    for (const auto& places : kPlaces) {
      SCOPED_TRACE(::testing::Message() << nans.size() << " calls with NaN, ranks on devices: "
                                        << places[0] << " " << places[1]);
      const Outcomes outcomes = GatherOften(places, nans);
      for (int rank = 0; rank < kRanks; ++rank) {
        EXPECT_TRUE(outcomes.outputs[rank] == expected.outputs[rank]) << "rank " << rank;
      }
      EXPECT_TRUE(places[0] || outcomes.sent == expected.sent);
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace onebit::testing
