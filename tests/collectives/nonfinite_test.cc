// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A value that is not finite, or an overflow inside the call, makes the whole output NaN on every
// rank, is counted, and is forgotten: later calls equal those of a run that never saw it.
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/collectives/allreduce_case.h"
#include "tests/support/residuals.h"

namespace onebit::testing {
namespace {

using kernels::DataType;

constexpr uint32_t kSeed = 7301;

bool IsAllNan(const Tensor& output) {
  const uint32_t f32 = 0x7fc0'0000;
  const uint16_t f16 = output.type() == DataType::kF16 ? 0x7e00 : 0x7fc0;
  const size_t element_bytes = kernels::BytesOf(output.type());
  const void* nan = output.type() == DataType::kF32 ? static_cast<const void*>(&f32) : &f16;
  for (size_t i = 0; i < output.count(); ++i) {
    if (std::memcmp(output.data() + i * element_bytes, nan, element_bytes) != 0) return false;
  }
  return true;
}

// A tensor on all ranks of a group, and a model that sees only its good calls.
class NonfiniteRun {
 public:
  NonfiniteRun(CommGroup& group, const AllReduceCase& c)
      : group_(group), case_(c), model_(c.model) {
    for (int rank = 0; rank < group.ranks(); ++rank) {
      compressors_.push_back(
          NewCompressor(group.comm(rank), c.model.count, ApiType(c.type()), c.config()));
    }
  }

  std::vector<Tensor> RandomInputs(std::mt19937& random) const {
    std::vector<Tensor> inputs;
    for (int rank = 0; rank < group_.ranks(); ++rank) {
      inputs.emplace_back(case_.model.count, case_.type());
      inputs.back().FillNormal(random);
    }
    return inputs;
  }

  void ExpectGoodCall(const std::vector<Tensor>& inputs) {
    std::vector<const void*> pointers;
    for (const Tensor& input : inputs) pointers.push_back(input.data());
    Tensor expected(case_.model.count, case_.type());
    ASSERT_TRUE(model_.Run(pointers, expected.data()));
    Call(inputs, [&](int rank, const Tensor& output) {
      EXPECT_TRUE(output.HasBytesOf(expected)) << "rank " << rank;
    });
  }

  void ExpectNonfiniteCall(const std::vector<Tensor>& inputs) {
    std::vector<Residuals> before;
    std::vector<onebitCompressorStats_t> stats;
    for (const auto& compressor : compressors_) {
      before.push_back(ResidualsOf(compressor.get()));
      stats.push_back(StatsOf(compressor.get()));
    }
    Call(inputs, [&](int rank, const Tensor& output) {
      EXPECT_TRUE(IsAllNan(output)) << "rank " << rank;
      const auto r = static_cast<size_t>(rank);
      ExpectCounted(stats[r], StatsOf(compressors_[r].get()));
      const Residuals after = ResidualsOf(compressors_[r].get());
      if (case_.model.is_transactional) {
        EXPECT_TRUE(after == before[r]) << "rank " << rank;
      } else {
        const Residuals zero{std::vector<std::byte>(after.worker.size()),
                             std::vector<std::byte>(after.server.size())};
        EXPECT_TRUE(after == zero) << "rank " << rank;
      }
    });
    if (!case_.model.is_transactional) model_.Reset();
  }

 private:
  template <typename Check>
  void Call(const std::vector<Tensor>& inputs, Check check) {
    group_.Run([&](int rank) {
      const auto r = static_cast<size_t>(rank);
      Tensor output(case_.model.count, case_.type());
      if (case_.is_in_place) output.CopyFrom(inputs[r]);
      const void* input = case_.is_in_place ? output.data() : inputs[r].data();
      ASSERT_EQ(onebitAllReduce(input, output.data(), case_.model.count, output.api_type(),
                                case_.op(), compressors_[r].get(), group_.comm(rank), nullptr),
                onebitSuccess)
          << onebitGetLastError(nullptr);
      check(rank, output);
    });
  }

  void ExpectCounted(const onebitCompressorStats_t& before, const onebitCompressorStats_t& after) {
    EXPECT_EQ(after.nonfinite_calls, before.nonfinite_calls + 1);
    EXPECT_EQ(after.epoch, before.epoch);
    const bool is_reset = !case_.model.is_transactional && case_.model.has_feedback;
    EXPECT_EQ(after.residual_resets, before.residual_resets + (is_reset ? 1 : 0));
  }

  CommGroup& group_;
  const AllReduceCase& case_;
  model::AllReduceModel model_;
  std::vector<UniqueCompressor> compressors_;
};

// First, last and a middle element of every chunk, and the neighbours of block boundaries.
std::vector<size_t> EdgePositions(const AllReduceCase& c) {
  std::set<size_t> positions;
  for (size_t rank = 0; rank < c.model.ranks; ++rank) {
    const auto chunk = model::ChunkOf(c.model.count, c.model.ranks, c.model.chunk_alignment, rank);
    if (chunk.size() == 0) continue;
    positions.insert({chunk.begin, chunk.begin + chunk.size() / 2, chunk.end - 1});
    if (chunk.size() > 64) positions.insert({chunk.begin + 63, chunk.begin + 64});
  }
  return {positions.begin(), positions.end()};
}

constexpr float kBadValues[] = {std::numeric_limits<float>::quiet_NaN(),
                                std::numeric_limits<float>::infinity(),
                                -std::numeric_limits<float>::infinity()};

class NonfiniteTest : public ::testing::TestWithParam<int> {
 protected:
  std::mt19937 random_{kSeed + static_cast<uint32_t>(GetParam())};
};

TEST_P(NonfiniteTest, BadInputAnywhereIsForgottenByAllRanks) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed + static_cast<uint32_t>(GetParam()));
  const auto ranks = static_cast<size_t>(GetParam());
  CommGroup groups[] = {CommGroup(GetParam()), CommGroup(GetParam(), kPatientOneExchange),
                        CommGroup(GetParam(), {.timeout_ms = 20'000, .segment_elements = 64})};
  for (int i = 0; i < 12; ++i) {
    AllReduceCase c = RandomCase(ranks, i % 4 == 3 ? 9 : 500, random_);
    c.model.mask.clear();
    SCOPED_TRACE(::testing::Message() << "group " << i % 3 << ", " << c);
    NonfiniteRun run(groups[i % 3], c);
    for (const size_t position : EdgePositions(c)) {
      const size_t bad_rank = random_() % ranks;
      const float bad_value = kBadValues[random_() % 3];
      SCOPED_TRACE(::testing::Message()
                   << bad_value << " at element " << position << " of rank " << bad_rank);
      ASSERT_NO_FATAL_FAILURE(run.ExpectGoodCall(run.RandomInputs(random_)));
      std::vector<Tensor> bad = run.RandomInputs(random_);
      bad[bad_rank].Set(position, bad_value);
      ASSERT_NO_FATAL_FAILURE(run.ExpectNonfiniteCall(bad));
      if (HasFailure()) return;
    }
    ASSERT_NO_FATAL_FAILURE(run.ExpectGoodCall(run.RandomInputs(random_)));
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, NonfiniteTest, ::testing::Values(1, 2, 3, 4, 7));

TEST(NonfiniteMaskTest, MaskedBadValueIsNotSeen) {
  for (const int ranks : {1, 3}) {
    SCOPED_TRACE(ranks);
    std::mt19937 random(kSeed);
    AllReduceCase c;
    c.model.ranks = static_cast<size_t>(ranks);
    c.model.count = 300;
    c.model.mask.assign(kernels::BitBytes(c.model.count), 0xff);
    c.model.mask[10] = 0xfe;  // element 80 is masked out
    CommGroup group(ranks);
    NonfiniteRun run(group, c);
    std::vector<Tensor> inputs = run.RandomInputs(random);
    inputs.back().Set(80, std::numeric_limits<float>::quiet_NaN());
    run.ExpectGoodCall(inputs);
    inputs.back().Set(81, std::numeric_limits<float>::quiet_NaN());
    run.ExpectNonfiniteCall(inputs);
  }
}

// Inputs are finite, and an intermediate value is not.
class OverflowTest : public ::testing::TestWithParam<bool> {
 protected:
  CommGroup group_{3, GetParam() ? kPatientOneExchange : kPatient};
  std::mt19937 random_{kSeed};
};

std::vector<Tensor> SameOnAllRanks(const NonfiniteRun& run, std::mt19937& random, float value) {
  std::vector<Tensor> inputs = run.RandomInputs(random);
  for (Tensor& input : inputs) input.Fill(value);
  return inputs;
}

AllReduceCase OverflowCase(DataType type, bool is_sum, size_t block) {
  AllReduceCase c;
  c.model.ranks = 3;
  c.model.count = 1000;
  c.model.type = type;
  c.model.is_sum = is_sum;
  c.model.block = block;
  return c;
}

// With one large element among small ones the mean magnitude is small, so nearly all of it becomes
// residual.
TEST_P(OverflowTest, InputPlusResidual) {
  for (const size_t block : {0, 64, 4096}) {
    for (const bool is_transactional : {true, false}) {
      AllReduceCase c = OverflowCase(DataType::kF32, false, block);
      c.model.rule = kernels::ScaleRule::kL1;
      c.model.is_transactional = is_transactional;
      SCOPED_TRACE(::testing::Message() << c);
      NonfiniteRun run(group_, c);
      std::vector<Tensor> inputs = run.RandomInputs(random_);
      inputs[2].Set(999, 3e38f);
      ASSERT_NO_FATAL_FAILURE(run.ExpectGoodCall(inputs));
      ASSERT_NO_FATAL_FAILURE(run.ExpectNonfiniteCall(inputs));
      ASSERT_NO_FATAL_FAILURE(run.ExpectGoodCall(run.RandomInputs(random_)));
    }
  }
}

// The scale of a sum is n times that of the mean, and must fit the output type.
TEST_P(OverflowTest, ScaleOfASumInTheOutputType) {
  for (const size_t block : {0, 64, 4096}) {
    const std::pair<DataType, float> limits[] = {
        {DataType::kF32, 2e38f}, {DataType::kF16, 40'000.0f}, {DataType::kBf16, 2e38f}};
    for (const auto& [type, value] : limits) {
      for (const bool has_feedback : {false, true}) {
        AllReduceCase c = OverflowCase(type, true, block);
        c.model.has_feedback = has_feedback;
        SCOPED_TRACE(::testing::Message() << c);
        NonfiniteRun run(group_, c);
        ASSERT_NO_FATAL_FAILURE(run.ExpectGoodCall(run.RandomInputs(random_)));
        ASSERT_NO_FATAL_FAILURE(run.ExpectNonfiniteCall(SameOnAllRanks(run, random_, value)));
        ASSERT_NO_FATAL_FAILURE(run.ExpectGoodCall(run.RandomInputs(random_)));
      }
    }
  }
}

// The same values averaged are fine: squares that overflow fp32 are summed again in fp64.
TEST_P(OverflowTest, LargeValuesAloneAreFine) {
  for (const size_t block : {0, 64, 4096}) {
    const AllReduceCase c = OverflowCase(DataType::kF32, false, block);
    SCOPED_TRACE(::testing::Message() << c);
    NonfiniteRun run(group_, c);
    ASSERT_NO_FATAL_FAILURE(run.ExpectGoodCall(SameOnAllRanks(run, random_, 1e38f)));
    ASSERT_NO_FATAL_FAILURE(run.ExpectGoodCall(SameOnAllRanks(run, random_, 1e-40f)));
  }
}

// Only one chunk overflows, at its server. All ranks must hear of it in the second exchange.
TEST_P(OverflowTest, OneChunkOfTheServer) {
  for (const size_t block : {0, 64}) {
    AllReduceCase c = OverflowCase(DataType::kF16, true, block);
    c.model.chunk_alignment = 8;
    SCOPED_TRACE(::testing::Message() << c);
    NonfiniteRun run(group_, c);
    ASSERT_NO_FATAL_FAILURE(run.ExpectGoodCall(run.RandomInputs(random_)));
    std::vector<Tensor> inputs = run.RandomInputs(random_);
    const auto chunk = model::ChunkOf(1000, 3, 8, 1);
    for (Tensor& input : inputs) {
      input.Fill(0);
      for (size_t i = chunk.begin; i < chunk.end; ++i) input.Set(i, 60'000.0f);
    }
    ASSERT_NO_FATAL_FAILURE(run.ExpectNonfiniteCall(inputs));
    ASSERT_NO_FATAL_FAILURE(run.ExpectGoodCall(run.RandomInputs(random_)));
  }
}

// From 2^127 on a bf16 residual could round to infinity, so the format calls such values not
// finite.
TEST_P(OverflowTest, Bfloat16ResidualNearTheLimit) {
  AllReduceCase c = OverflowCase(DataType::kF32, false, 64);
  c.model.residual_type = DataType::kBf16;
  NonfiniteRun run(group_, c);
  ASSERT_NO_FATAL_FAILURE(run.ExpectGoodCall(run.RandomInputs(random_)));
  std::vector<Tensor> inputs = run.RandomInputs(random_);
  inputs[0].Set(500, 0x1p127f);
  ASSERT_NO_FATAL_FAILURE(run.ExpectNonfiniteCall(inputs));
  ASSERT_NO_FATAL_FAILURE(run.ExpectGoodCall(run.RandomInputs(random_)));
}

TEST_P(OverflowTest, CommunicatorCountsNonfiniteCallsAsSuccessful) {
  const AllReduceCase c = OverflowCase(DataType::kF32, false, 64);
  NonfiniteRun run(group_, c);
  std::vector<Tensor> inputs = run.RandomInputs(random_);
  inputs[1].Set(3, std::numeric_limits<float>::infinity());
  run.ExpectNonfiniteCall(inputs);
  run.ExpectGoodCall(run.RandomInputs(random_));
  for (int rank = 0; rank < 3; ++rank) {
    const onebitCommStats_t stats = StatsOf(group_.comm(rank));
    EXPECT_EQ(stats.nonfinite_calls, 1u);
    EXPECT_EQ(stats.compressed_calls, 2u);
    EXPECT_EQ(stats.failed_calls, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Exchanges, OverflowTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "One" : "Two"; });

}  // namespace
}  // namespace onebit::testing
