// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The outer optimizer on a small problem of four ranks against the trajectories of a float64
// program.
#include <array>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "onebit/onebit.hpp"
#include "perf/common/tool_error.h"
#include "perf/train_text/outer_optimizer.h"

namespace onebit::train {
namespace {

constexpr int kRanks = 4;
constexpr size_t kElements = 32;
constexpr size_t kHalf = kElements / 2;
constexpr int kSteps = 60;
using Values = std::array<float, kElements>;

/** A quadratic whose minimum differs between ranks, with noise, and Adam on it. */
class Toy {
 public:
  Toy(int rank, int offset) : rank_(rank), offset_(offset) {
    for (int k = 0; k < static_cast<int>(kElements); ++k) {
      x[static_cast<size_t>(k)] = static_cast<float>((5 * k + 1) % 11 - 5) / 2;
    }
  }

  void Step() {
    ++step_;
    for (size_t i = 0; i < kElements; ++i) {
      const int k = static_cast<int>(i);
      const double minimum = ((7 * k + 11 * rank_ + 3) % 13 - 6) / 4.0;
      const double noise = ((31 * step_ + 17 * k + 13 * rank_ + offset_) % 29 - 14) / 64.0;
      const double gradient = (0.5 + 0.25 * (k % 5)) * (x[i] - minimum) + noise;
      m_[i] = 0.9 * m_[i] + 0.1 * gradient;
      v_[i] = 0.97 * v_[i] + 0.03 * gradient * gradient;
      const double root = std::sqrt(v_[i] / (1 - std::pow(0.97, step_))) + 1e-8;
      x[i] -= static_cast<float>(0.05 * m_[i] / (1 - std::pow(0.9, step_)) / root);
    }
  }

  Values x{};

 private:
  int rank_, offset_, step_ = 0;
  std::array<double, kElements> m_{}, v_{};
};

/** The results of a rank. */
struct Outcome {
  Values global{};
  Values own{};
  std::vector<OuterOptimizer::Sent> sent;
  uint64_t skipped = 0;
};

/** Trains on threads; `spoil` may change parameters before an outer step. */
template <typename Spoil>
std::vector<Outcome> Train(const OuterRule& rule, int offset, const onebitCompressorConfig_t* codec,
                           int ranks, int steps, bool is_flushed, Spoil spoil) {
  std::vector<UniqueComm> comms(static_cast<size_t>(ranks));
  EXPECT_EQ(MakeComms(comms), onebitSuccess);
  std::vector<Outcome> outcomes(comms.size());
  const auto run = [&](int rank) {
    Toy toy(rank, offset);
    const std::array<size_t, 2> tensors = {kHalf, kHalf};
    OuterOptimizer outer(rule, comms[static_cast<size_t>(rank)].get(), tensors, toy.x, codec);
    for (int step = 1; step <= steps; ++step) {
      toy.Step();
      spoil(rank, step, toy.x);
      outer.Step();
    }
    if (is_flushed) outer.Flush();
    Outcome& outcome = outcomes[static_cast<size_t>(rank)];
    std::ranges::copy(outer.values(), outcome.global.begin());
    outcome.own = toy.x;
    outcome.sent = outer.SentByFragments();
    outcome.skipped = outer.skipped();
  };
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
  }
  return outcomes;
}

std::vector<Outcome> Train(const OuterRule& rule, int offset, const onebitCompressorConfig_t* codec,
                           int ranks = kRanks, int steps = kSteps, bool is_flushed = false) {
  return Train(rule, offset, codec, ranks, steps, is_flushed, [](int, int, Values&) {});
}

OuterRule Published() { return {.every = 6, .merge = 0}; }

OuterRule Streaming() { return {.every = 6, .merge = 0.5, .fragments = 2, .overlap = 2}; }

onebitCompressorConfig_t CodecOf(onebitCodec_t codec, onebitMode_t mode) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.codec = codec;
  config.mode = mode;
  config.chunkAlignment = 8;
  return config;
}

class OuterOptimizerTest : public testing::Test {
 protected:
  /** Compares a run with one of the file; all ranks must have the same global parameters. */
  static void Expect(const std::string& name, const OuterRule& rule,
                     const onebitCompressorConfig_t* codec) {
    std::ifstream file(ONEBIT_DILOCO_ORACLES);
    const nlohmann::json oracle = nlohmann::json::parse(file)[name];
    const std::vector<Outcome> outcomes = Train(rule, oracle["off"], codec);
    for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.global, outcomes[0].global) << name;
    for (size_t i = 0; i < kElements; ++i) {
      EXPECT_NEAR(outcomes[0].global[i], oracle["x_g"][i].get<double>(), 1e-4) << name << " " << i;
      EXPECT_NEAR(outcomes[0].own[i], oracle["x_0"][i].get<double>(), 1e-4) << name << " " << i;
    }
  }
};

TEST_F(OuterOptimizerTest, FollowsTheReference) {
  Expect("dense_P1", Published(), nullptr);
  Expect("dense_P2_tau2_a5", Streaming(), nullptr);
  OuterRule rebase = Streaming();
  rebase.is_rebase = true;
  Expect("dense_P2_tau2_rebase", rebase, nullptr);
  const onebitCompressorConfig_t sign = CodecOf(onebitCodecSign, onebitModeEf);
  Expect("sign_P1", Published(), &sign);
}

TEST_F(OuterOptimizerTest, ArrivesAtTheParametersAtRateOne) {
  OuterRule rule = Published();
  rule.rate = 1;
  rule.momentum = 0;
  const auto round = [](int, int step, Values& x) {  // differences of sixteenths are exact
    if (step < 6) return;
    for (float& value : x) value = std::round(16 * value) / 16;
  };
  const std::vector<Outcome> outcomes = Train(rule, 0, nullptr, 1, 6, false, round);
  EXPECT_EQ(outcomes[0].global, outcomes[0].own);
  EXPECT_NE(outcomes[0].own, Toy(0, 0).x);
}

TEST_F(OuterOptimizerTest, FlushLeavesAllRanksWithTheGlobalParameters) {
  for (const onebitMode_t mode : {onebitModeEf, onebitModePlain}) {
    const onebitCompressorConfig_t codec = CodecOf(onebitCodecFp4, mode);
    const std::vector<Outcome> outcomes = Train(Streaming(), 0, &codec, kRanks, 10, true);
    for (const Outcome& outcome : outcomes) {
      EXPECT_EQ(outcome.global, outcomes[0].global);
      EXPECT_EQ(outcome.own, outcome.global);
      ASSERT_EQ(outcome.sent.size(), 2U);
      EXPECT_EQ(outcome.sent[0].averages, 2U);  // after steps 3 and 9
      EXPECT_EQ(outcome.sent[1].averages, 1U);
    }
  }
}

TEST_F(OuterOptimizerTest, SkipsAveragesThatAreNotFinite) {
  const onebitCompressorConfig_t fp4 = CodecOf(onebitCodecFp4, onebitModePlain);
  for (const onebitCompressorConfig_t* codec : {&fp4, static_cast<decltype(&fp4)>(nullptr)}) {
    const auto spoil = [](int rank, int step, Values& x) {
      if (rank == 1 && step == 12) x[3] = std::nanf("");
    };
    const std::vector<Outcome> whole = Train(Published(), 0, codec, kRanks, 11);
    const std::vector<Outcome> spoilt = Train(Published(), 0, codec, kRanks, 12, false, spoil);
    for (const Outcome& outcome : spoilt) {
      EXPECT_EQ(outcome.skipped, 1U);
      EXPECT_EQ(outcome.global, whole[0].global);
      EXPECT_NE(outcome.own, outcome.global);
    }
  }
}

TEST(DivideTensorsTest, BalancesWholeTensors) {
  const std::vector<size_t> sizes = {1, 90, 5, 5, 40, 60, 1};
  EXPECT_EQ(DivideTensors(sizes, 1), std::vector<size_t>({7}));
  EXPECT_EQ(DivideTensors(sizes, 2), std::vector<size_t>({4, 7}));
  EXPECT_EQ(DivideTensors(sizes, 3), std::vector<size_t>({2, 5, 7}));
  EXPECT_EQ(DivideTensors(sizes, 7), std::vector<size_t>({1, 2, 3, 4, 5, 6, 7}));
}

}  // namespace
}  // namespace onebit::train
