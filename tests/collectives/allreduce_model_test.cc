// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Compares the compressed allreduce with the scalar model: bytes must be equal for all options,
// numbers of exchanges and numbers of segments.
#include <map>
#include <memory>
#include <random>

#include <gtest/gtest.h>

#include "tests/collectives/allreduce_case.h"

namespace onebit::testing {
namespace {

constexpr uint32_t kSeed = 7001;
constexpr size_t kCalls = 3;  // enough for residuals to matter twice

class AllReduceModelTest : public ::testing::TestWithParam<int> {
 protected:
  size_t ranks() const { return static_cast<size_t>(GetParam()); }
  std::mt19937 random_{kSeed + static_cast<uint32_t>(GetParam())};
};

TEST_P(AllReduceModelTest, BytesAreTheModelsWithOneAndTwoExchangesAndManySegments) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed + ranks());
  constexpr int kCasesPerCount = 8;
  CommGroup two_exchanges(GetParam());
  CommGroup one_exchange(GetParam(), kPatientOneExchange);
  CommGroup segments(GetParam(), {.timeout_ms = 20'000, .segment_elements = 64});
  for (const size_t count : {0, 1, 7, 8, 9, 63, 64, 65, 1000, 4097}) {
    for (int i = 0; i < kCasesPerCount; ++i) {
      const AllReduceCase c = RandomCase(ranks(), count, random_);
      const ModelRun run = RunModel(c, kCalls, random_);
      for (CommGroup* group : {&two_exchanges, &one_exchange, &segments}) {
        SCOPED_TRACE(group == &two_exchanges  ? "two exchanges"
                     : group == &one_exchange ? "one exchange"
                                              : "segments of 64");
        ExpectModelRun(*group, c, run);
        if (HasFailure()) return;
      }
    }
  }
}

// Hosts with equal and other numbers of ranks, one after another and not.
TEST(AllReduceOnHostsTest, BytesAreTheModelsInTwoLevels) {
  std::mt19937 random(kSeed);
  for (const char* const letters : {"aabb", "abab", "aab", "aaaabbc", "abcabc"}) {
    const model::HostLayout hosts = LayoutOf(MapOfHosts(letters));
    CommGroup whole(OnHosts(letters, kPatient));
    CommGroup segments(OnHosts(
        letters, {.timeout_ms = 20'000, .one_exchange_elements = 0, .segment_elements = 64}));
    for (const size_t count : {1, 9, 64, 1000, 4097}) {
      for (int i = 0; i < 8; ++i) {
        AllReduceCase c = RandomCase(hosts.hosts(), count, random);
        c.model.hosts = hosts;
        if (c.model.block == 0) c.model.block = 320;
        SCOPED_TRACE(::testing::Message() << letters << " seed " << kSeed);
        const ModelRun run = RunModel(c, kCalls, random);
        ExpectModelRun(whole, c, run);
        ExpectModelRun(segments, c, run);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(AllReduceModelTest, BytesAreTheModelsForEverySegmentLength) {
  const AllReduceCase c = [&] {
    AllReduceCase large = RandomCase(ranks(), 50'001, random_);
    large.model.block = 64;
    large.model.mask.clear();
    return large;
  }();
  const ModelRun run = RunModel(c, kCalls, random_);
  for (const uint64_t segment_elements : {64, 1000, 5000, 100'000}) {
    SCOPED_TRACE(::testing::Message() << "segments of " << segment_elements);
    CommGroup group(GetParam(), {.timeout_ms = 20'000, .segment_elements = segment_elements});
    ExpectModelRun(group, c, run);
  }
}

// Segments are long enough to be handed to threads, of which there may be more than cores.
TEST_P(AllReduceModelTest, BytesAreTheModelsForEveryNumberOfComputeThreads) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed + ranks());
  for (int i = 0; i < 3; ++i) {
    const AllReduceCase c = RandomCase(ranks(), 150'001, random_);
    const ModelRun run = RunModel(c, kCalls, random_);
    for (const uint32_t threads : {0, 1, 3}) {
      for (const uint64_t segment_elements : {16'384, 1'000'000}) {
        SCOPED_TRACE(::testing::Message()
                     << threads << " threads, segments of " << segment_elements);
        CommGroup group(GetParam(), {.timeout_ms = 20'000,
                                     .segment_elements = segment_elements,
                                     .compute_threads = threads});
        ExpectModelRun(group, c, run);
        if (HasFailure()) return;
      }
    }
  }
}

// The transport `local` offers packets of this size instead of copying them.
TEST_P(AllReduceModelTest, BytesAreTheModelsForLargePackets) {
  AllReduceCase c = RandomCase(ranks(), 150'000, random_);
  c.model.block = 4096;
  const ModelRun run = RunModel(c, 2, random_);
  CommGroup two_exchanges(GetParam());
  CommGroup one_exchange(GetParam(), kPatientOneExchange);
  ExpectModelRun(two_exchanges, c, run);
  ExpectModelRun(one_exchange, c, run);
}

INSTANTIATE_TEST_SUITE_P(Ranks, AllReduceModelTest, ::testing::Range(1, 10));

// The mask may change between calls; residuals of elements that leave are dropped.
TEST(AllReduceMaskTest, ChangedMaskIsTheModels) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  constexpr size_t kCount = 300;
  AllReduceCase c;
  c.model.ranks = 3;
  c.model.count = kCount;
  c.model.block = 64;
  model::AllReduceModel model(c.model);
  CommGroup group(3);
  std::vector<UniqueCompressor> compressors;
  for (int rank = 0; rank < 3; ++rank) {
    compressors.push_back(NewCompressor(group.comm(rank), kCount, onebitFloat32, c.config()));
  }
  for (int call = 0; call < 6; ++call) {
    std::vector<uint8_t> mask(kernels::BitBytes(kCount));
    for (uint8_t& byte : mask) byte = static_cast<uint8_t>(random());
    if (call == 3) mask.clear();
    model.SetMask(mask);
    std::vector<Tensor> inputs;
    std::vector<const void*> pointers;
    for (int rank = 0; rank < 3; ++rank) {
      inputs.emplace_back(kCount, c.type());
      inputs.back().FillNormal(random);
      pointers.push_back(inputs.back().data());
    }
    Tensor expected(kCount, c.type());
    model.Run(pointers, expected.data());
    group.Run([&](int rank) {
      const auto r = static_cast<size_t>(rank);
      const onebitCompressor_t compressor = compressors[r].get();
      ASSERT_EQ(onebitCompressorSetMask(compressor, mask.empty() ? nullptr : mask.data()),
                onebitSuccess);
      ASSERT_EQ(onebitAllReduce(inputs[r].data(), inputs[r].data(), kCount, onebitFloat32,
                                onebitAvg, compressor, group.comm(rank), nullptr),
                onebitSuccess);
      EXPECT_TRUE(inputs[r].HasBytesOf(expected)) << "call " << call;
    });
  }
}

}  // namespace
}  // namespace onebit::testing
