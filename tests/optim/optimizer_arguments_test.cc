// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Wrong arguments: an error that names the mistake, and nothing changed.
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/optim/training.h"

namespace onebit::testing {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// Expects an invalid argument whose text contains `word`.
void ExpectInvalid(onebitResult_t result, const std::string& word) {
  EXPECT_EQ(result, onebitInvalidArgument) << word;
  const std::string text = onebitGetLastError(nullptr);
  EXPECT_NE(text.find(word), std::string::npos) << "no '" << word << "' in: " << text;
}

class OneBitAdamArgumentsTest : public ::testing::Test {
 protected:
  OneBitAdamArgumentsTest() { Check(onebitCommInitAll(&comm_, 1, nullptr)); }
  ~OneBitAdamArgumentsTest() override { onebitCommDestroy(comm_); }

  void ExpectConfigInvalid(const std::string& word,
                           const std::function<void(onebitOptimizerConfig_t&)>& change) {
    onebitOptimizerConfig_t config = ONEBIT_OPTIMIZER_CONFIG_INIT;
    change(config);
    onebitOptimizer_t optimizer = nullptr;
    ExpectInvalid(onebitOptimizerCreate(&optimizer, comm_, x_.size(), x_.data(), &config), word);
    EXPECT_EQ(optimizer, nullptr);
  }

  void ExpectSegmentsInvalid(const std::string& word, std::vector<onebitSegment_t> segments) {
    ExpectConfigInvalid(word, [&](onebitOptimizerConfig_t& config) {
      config.segments = segments.data();
      config.segmentCount = segments.size();
    });
  }

  static onebitSegment_t SegmentOf(size_t offset, size_t count) {
    onebitSegment_t segment = ONEBIT_SEGMENT_INIT;
    segment.offset = offset;
    segment.count = count;
    return segment;
  }

  onebitComm_t comm_ = nullptr;
  std::vector<float> x_ = std::vector<float>(16, 1.0f);
};

TEST_F(OneBitAdamArgumentsTest, CreateChecksPointers) {
  onebitOptimizer_t optimizer = nullptr;
  ExpectInvalid(onebitOptimizerCreate(nullptr, comm_, 16, x_.data(), nullptr), "optimizer");
  ExpectInvalid(onebitOptimizerCreate(&optimizer, nullptr, 16, x_.data(), nullptr), "comm");
  ExpectInvalid(onebitOptimizerCreate(&optimizer, comm_, 16, nullptr, nullptr), "parameters");
  EXPECT_EQ(optimizer, nullptr);
  Check(onebitOptimizerCreate(&optimizer, comm_, 0, nullptr, nullptr));
  Check(onebitOptimizerDestroy(optimizer));
  Check(onebitOptimizerDestroy(nullptr));
}

TEST_F(OneBitAdamArgumentsTest, CreateChecksNumbers) {
  using Config = onebitOptimizerConfig_t;
  for (const double bad : {1.0, 2.0, -0.5, kNan, kInf}) {
    ExpectConfigInvalid("beta1", [&](Config& config) { config.beta1 = bad; });
    ExpectConfigInvalid("beta2", [&](Config& config) { config.beta2 = bad; });
  }
  for (const double bad : {-0.5, kNan, kInf, 1e39}) {  // the last is infinite in fp32
    ExpectConfigInvalid("eps", [&](Config& config) { config.eps = bad; });
    ExpectConfigInvalid("weightDecay", [&](Config& config) { config.weightDecay = bad; });
    ExpectConfigInvalid("varianceFloor", [&](Config& config) { config.varianceFloor = bad; });
  }
  ExpectConfigInvalid("eps", [](Config& config) { config.eps = 0; });
  ExpectConfigInvalid("eps", [](Config& config) { config.eps = 1e-60; });  // 0 in fp32
  ExpectConfigInvalid("freezeStep", [](Config& config) { config.freezeStep = 0; });
  ExpectConfigInvalid("freezeStep", [](Config& config) { config.freezeStep = -2; });
  ExpectConfigInvalid("lrWarmupSteps", [](Config& config) { config.lrWarmupSteps = -1; });
  ExpectConfigInvalid("biasCorrection", [](Config& config) { config.biasCorrection = 2; });
  ExpectConfigInvalid("algorithm", [](Config& config) { config.algorithm = 7; });
  ExpectConfigInvalid("beta2", [](Config& config) { config.beta2 = 0.9999999; });  // automatic
  ExpectConfigInvalid("size", [](Config& config) { config.size = 8; });
  ExpectConfigInvalid("CONFIG_INIT", [](Config& config) { config.magic = 0; });
}

TEST_F(OneBitAdamArgumentsTest, CreateChecksCompressor) {
  onebitCompressorConfig_t compressor = ONEBIT_COMPRESSOR_CONFIG_INIT;
  const auto use = [&](onebitOptimizerConfig_t& config) { config.compressor = &compressor; };
  compressor.block = 7;
  ExpectConfigInvalid("block", use);
  compressor = ONEBIT_COMPRESSOR_CONFIG_INIT;
  const uint8_t mask[2] = {0xff, 0xff};
  compressor.mask = mask;
  ExpectConfigInvalid("mask", use);
  compressor.size = 8;
  ExpectConfigInvalid("compressor->size", use);
  compressor = ONEBIT_COMPRESSOR_CONFIG_INIT;
  compressor.cutCount = 1;
  ExpectConfigInvalid("cutCount", use);
  compressor.cutCount = 0;
  compressor.block = ONEBIT_BLOCK_TENSOR;
  ExpectConfigInvalid("onebitScalesSegment", [&](onebitOptimizerConfig_t& config) {
    use(config);
    config.scales = onebitScalesSegment;
  });
  ExpectConfigInvalid("scales is 3", [](onebitOptimizerConfig_t& config) { config.scales = 3; });
  // The structure ended before cuts at first, and those bytes are not looked at.
  compressor.block = 64;
  compressor.cutCount = 1;
  compressor.size = offsetof(onebitCompressorConfig_t, cuts);
  onebitOptimizerConfig_t config = ONEBIT_OPTIMIZER_CONFIG_INIT;
  use(config);
  onebitOptimizer_t optimizer = nullptr;
  Check(onebitOptimizerCreate(&optimizer, comm_, x_.size(), x_.data(), &config));
  Check(onebitOptimizerDestroy(optimizer));
}

TEST_F(OneBitAdamArgumentsTest, MembersThatNothingWouldUseAreErrors) {
  const auto with = [](onebitAlgorithm_t algorithm, auto set) {
    return [algorithm, set](onebitOptimizerConfig_t& config) {
      config.algorithm = algorithm;
      if (algorithm == onebitAlgorithmZeroOneAdam) config.varFreezeStep = 10;
      set(config);
    };
  };
  for (const onebitAlgorithm_t other : {onebitAlgorithmOneBitAdam, onebitAlgorithmZeroOneAdam}) {
    ExpectConfigInvalid("minCoeff", with(other, [](auto& c) { c.minCoeff = 0.1; }));
    ExpectConfigInvalid("maxCoeff", with(other, [](auto& c) { c.maxCoeff = 2; }));
    ExpectConfigInvalid("coeffBeta", with(other, [](auto& c) { c.coeffBeta = 0.5; }));
    ExpectConfigInvalid("factorMin", with(other, [](auto& c) { c.factorMin = 0.9; }));
    ExpectConfigInvalid("factorMax", with(other, [](auto& c) { c.factorMax = 2; }));
    ExpectConfigInvalid("factorThreshold", with(other, [](auto& c) { c.factorThreshold = 0.2; }));
  }
  for (const onebitAlgorithm_t other : {onebitAlgorithmOneBitAdam, onebitAlgorithmOneBitLamb}) {
    ExpectConfigInvalid("varFreezeStep", with(other, [](auto& c) { c.varFreezeStep = 10; }));
    ExpectConfigInvalid("varUpdateScaler", with(other, [](auto& c) { c.varUpdateScaler = 8; }));
    ExpectConfigInvalid("localStepScaler", with(other, [](auto& c) { c.localStepScaler = 8; }));
    ExpectConfigInvalid("localStepClipper", with(other, [](auto& c) { c.localStepClipper = 8; }));
    ExpectConfigInvalid("localStepStart", with(other, [](auto& c) { c.localStepStart = 8; }));
    ExpectConfigInvalid("rateTied", with(other, [](auto& c) { c.rateTied = 1; }));
    ExpectConfigInvalid("denseStepFeedsMomentum",
                        with(other, [](auto& c) { c.denseStepFeedsMomentum = 1; }));
  }
  const auto zero_one = [&](auto set) { return with(onebitAlgorithmZeroOneAdam, set); };
  ExpectConfigInvalid("freezeStep", zero_one([](auto& c) { c.freezeStep = 10; }));
  ExpectConfigInvalid("biasCorrection", zero_one([](auto& c) { c.biasCorrection = 1; }));
  ExpectConfigInvalid("varFreezeStep",
                      zero_one([](auto& c) { c.varFreezeStep = ONEBIT_UNDEF_STEP; }));
  const auto deepspeed = [&](auto set) {
    return [set](onebitOptimizerConfig_t& config) {
      config.variant = onebitVariantDeepSpeed;
      config.freezeStep = 10;
      set(config);
    };
  };
  ExpectConfigInvalid("biasCorrection", deepspeed([](auto& c) { c.biasCorrection = 1; }));
  ExpectConfigInvalid("freezeStep", deepspeed([](auto& c) { c.freezeStep = ONEBIT_UNDEF_STEP; }));
  ExpectConfigInvalid("lrWarmupSteps", deepspeed([](auto& c) { c.lrWarmupSteps = 5; }));
}

TEST_F(OneBitAdamArgumentsTest, CreateChecksTrustRatios) {
  const auto lamb = [](auto set) {
    return [set](onebitOptimizerConfig_t& config) {
      config.algorithm = onebitAlgorithmOneBitLamb;
      set(config);
    };
  };
  ExpectConfigInvalid("minCoeff", lamb([](auto& c) { c.minCoeff = 11; }));
  ExpectConfigInvalid("maxCoeff", lamb([](auto& c) { c.maxCoeff = kNan; }));
  ExpectConfigInvalid("coeffBeta", lamb([](auto& c) { c.coeffBeta = 1; }));
  ExpectConfigInvalid("factorMin", lamb([](auto& c) { c.factorMin = 0; }));
  ExpectConfigInvalid("factorMin", lamb([](auto& c) { c.factorMax = 0.25; }));
  ExpectConfigInvalid("factorThreshold", lamb([](auto& c) { c.factorThreshold = 1; }));
}

TEST_F(OneBitAdamArgumentsTest, CreateChecksSegments) {
  ExpectSegmentsInvalid("15 elements", {SegmentOf(0, 15)});
  ExpectSegmentsInvalid("17 elements", {SegmentOf(0, 17)});
  ExpectSegmentsInvalid("segments[0].offset", {SegmentOf(1, 15)});
  ExpectSegmentsInvalid("segments[1].offset", {SegmentOf(0, 8), SegmentOf(9, 7)});  // a gap
  ExpectSegmentsInvalid("segments[1].offset", {SegmentOf(0, 9), SegmentOf(8, 8)});  // an overlap
  ExpectSegmentsInvalid("segments[1].count", {SegmentOf(0, 8), SegmentOf(8, SIZE_MAX)});
  onebitSegment_t segment = SegmentOf(0, 16);
  segment.flags = 64;
  ExpectSegmentsInvalid("segments[0].flags", {segment});
  segment = SegmentOf(0, 16);
  segment.lrScale = -2;
  ExpectSegmentsInvalid("segments[0].lrScale", {segment});
  segment = SegmentOf(0, 16);
  segment.weightDecay = kNan;
  ExpectSegmentsInvalid("segments[0].weightDecay", {segment});
  segment = SegmentOf(0, 16);
  segment.size = 4;
  ExpectSegmentsInvalid("segments[0].size", {segment});
  ExpectConfigInvalid("segments is NULL", [](auto& config) { config.segmentCount = 3; });
}

TEST_F(OneBitAdamArgumentsTest, CreateChecksCopy) {
  std::vector<uint16_t> copy(17);
  ExpectConfigInvalid("parameterCopyType",
                      [&](auto& config) { config.parameterCopy = copy.data(); });
  ExpectConfigInvalid("parameterCopyType", [&](auto& config) {
    config.parameterCopy = copy.data();
    config.parameterCopyType = onebitFloat32;
  });
  ExpectConfigInvalid("parameterCopy is not aligned", [&](auto& config) {
    config.parameterCopy = reinterpret_cast<char*>(copy.data()) + 1;
    config.parameterCopyType = onebitFloat16;
  });
}

TEST_F(OneBitAdamArgumentsTest, StepChecksAndChangesNothing) {
  const OptimizerHandle handle = MakeOptimizer(comm_, x_, DefaultOptimizer());
  const onebitOptimizer_t optimizer = handle.get();
  std::vector<float> gradient(16, 0.5f);
  const std::vector<float> gradient_before = gradient;
  const std::vector<float> x_before = x_;
  onebitStepResult_t result = ONEBIT_STEP_RESULT_INIT;
  const auto step = [&](double lr, double grad_scale, double max_grad_norm) {
    return onebitOptimizerStep(optimizer, gradient.data(), onebitFloat32, lr, grad_scale,
                               max_grad_norm, &result, nullptr);
  };
  for (const double bad : {-0.1, kNan, kInf, 1e300})
    ExpectInvalid(step(bad, 1, 0), "learning_rate");
  for (const double bad : {0.0, -1.0, kNan, kInf, 1e300, 1e-60}) {
    ExpectInvalid(step(0.1, bad, 0), "grad_scale");
  }
  for (const double bad : {-1.0, kNan}) ExpectInvalid(step(0.1, 1, bad), "max_grad_norm");
  ExpectInvalid(
      onebitOptimizerStep(nullptr, gradient.data(), onebitFloat32, 0.1, 1, 0, &result, nullptr),
      "optimizer");
  EXPECT_EQ(onebitOptimizerStep(optimizer, nullptr, onebitFloat32, 0.1, 1, 0, &result, nullptr),
            onebitInvalidUsage);  // none were handed over
  ExpectInvalid(onebitOptimizerStep(optimizer, reinterpret_cast<char*>(gradient.data()) + 2,
                                    onebitFloat32, 0.1, 1, 0, &result, nullptr),
                "gradients");
  ExpectInvalid(onebitOptimizerStep(optimizer, gradient.data(), static_cast<onebitDataType_t>(3),
                                    0.1, 1, 0, &result, nullptr),
                "datatype");
  ExpectInvalid(onebitOptimizerStep(optimizer, gradient.data(), onebitFloat32, 0.1, 1, 0, &result,
                                    reinterpret_cast<onebitStream_t>(gradient.data())),
                "stream");
  result.size = 4;
  ExpectInvalid(step(0.1, 1, 0), "result->size");

  EXPECT_EQ(gradient, gradient_before);
  EXPECT_EQ(x_, x_before);
  EXPECT_EQ(result.step, 0u);
  const onebitOptimizerStats_t stats = StatsOf(handle);
  EXPECT_EQ(stats.step, 0u);
  EXPECT_EQ(stats.skipped, 0u);

  // Still usable, with a null result as well.
  Check(
      onebitOptimizerStep(optimizer, gradient.data(), onebitFloat32, 0.1, 1, 0, nullptr, nullptr));
  EXPECT_EQ(StatsOf(handle).step, 1u);
  EXPECT_NE(x_, x_before);
}

TEST_F(OneBitAdamArgumentsTest, StatsAndStateCheckPointers) {
  const OptimizerHandle handle = MakeOptimizer(comm_, x_, DefaultOptimizer());
  onebitOptimizerStats_t stats{};
  ExpectInvalid(onebitOptimizerGetStats(handle.get(), nullptr), "stats");
  ExpectInvalid(onebitOptimizerGetStats(handle.get(), &stats), "size");
  stats.size = sizeof(stats);
  ExpectInvalid(onebitOptimizerGetStats(nullptr, &stats), "optimizer");
  Check(onebitOptimizerGetStats(handle.get(), &stats));
  EXPECT_EQ(stats.size, sizeof(stats));
  EXPECT_GE(stats.state_bytes, 16u * 8);
}

}  // namespace
}  // namespace onebit::testing
