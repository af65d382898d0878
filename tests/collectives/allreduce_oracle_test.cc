// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Compares the public API with numbers that a separate fp64 program computed from the papers'
// formulas.
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/comm_group.h"
#include "tests/support/residuals.h"

namespace onebit::testing {
namespace {

struct OracleCall {
  std::vector<std::vector<float>> inputs;  // by rank
  std::vector<double> output;
  std::vector<std::vector<double>> workers;  // residuals by rank; empty: not checked
  std::vector<double> server;                // of all chunks; empty: not checked
};

struct Oracle {
  onebitScaleRule_t rule = onebitScaleL2;
  std::vector<OracleCall> calls;
  double tolerance = 0;

  int ranks() const { return static_cast<int>(calls[0].inputs.size()); }
  size_t count() const { return calls[0].output.size(); }
};

// signs: '+' or '-' per element; one scale for each 8 of them.
std::vector<double> Signed(std::span<const double> scales, const char* signs) {
  std::vector<double> values;
  for (size_t i = 0; signs[i] != '\0'; ++i) {
    values.push_back(signs[i] == '-' ? -scales[i / 8] : scales[i / 8]);
  }
  return values;
}

void ExpectNear(std::span<const float> actual, std::span<const double> expected, double tolerance,
                const char* what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], tolerance) << what << ", element " << i;
  }
}

void RunRank(const Oracle& oracle, onebitComm_t comm, size_t rank) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.scaleRule = oracle.rule;
  config.block = ONEBIT_BLOCK_TENSOR;
  config.chunkAlignment = 8;
  const size_t count = oracle.count();
  const UniqueCompressor compressor = NewCompressor(comm, count, onebitFloat32, config);
  for (size_t number = 0; number < oracle.calls.size(); ++number) {
    SCOPED_TRACE(::testing::Message() << "call " << number + 1 << ", rank " << rank);
    const OracleCall& call = oracle.calls[number];
    std::vector<float> output(count);
    ASSERT_EQ(onebitAllReduce(call.inputs[rank].data(), output.data(), count, onebitFloat32,
                              onebitAvg, compressor.get(), comm, nullptr),
              onebitSuccess)
        << onebitGetLastError(nullptr);
    ExpectNear(output, call.output, oracle.tolerance, "output");
    if (!call.workers.empty()) {
      ExpectNear(WorkerResidualOf(compressor.get()), call.workers[rank], oracle.tolerance,
                 "worker residual");
    }
    if (call.server.empty()) continue;
    // With two exchanges a rank holds its chunk of 8 elements, with one it holds all.
    const bool is_one_exchange = StatsOf(compressor.get()).exchanges == 1;
    const std::span<const double> served(call.server);
    ExpectNear(ServerResidualOf(compressor.get()),
               is_one_exchange ? served : served.subspan(rank * 8, 8), oracle.tolerance,
               "server residual");
  }
}

void ExpectOracle(const Oracle& oracle) {
  for (const CommOptions& options : {kPatient, kPatientOneExchange}) {
    CommGroup group(oracle.ranks(), options);
    group.Run([&](int rank) { RunRank(oracle, group.comm(rank), static_cast<size_t>(rank)); });
  }
}

const std::vector<std::vector<float>> kFirstInputs = {
    {4, -3, 0, 1, -2, 1, -1, 0, 1, 2, -1, 3, 0, -3, 1, -1},
    {-2, 1, 1, -1, 0, 1, 0, 0, 1, -1, 0, 2, -2, 1, 3, -1}};
// The same inputs with their halves swapped.
const std::vector<std::vector<float>> kSecondInputs = {
    {1, 2, -1, 3, 0, -3, 1, -1, 4, -3, 0, 1, -2, 1, -1, 0},
    {1, -1, 0, 2, -2, 1, 3, -1, -2, 1, 1, -1, 0, 1, 0, 0}};

TEST(AllReduceOracleTest, RootMeanSquareScalesOfTheFirstCall) {
  const double scales[] = {1.0192974246, 1.1659223816};
  // The bytes b5 and da, highest bit first, set bit +.
  ExpectOracle({.rule = onebitScaleL2,
                .calls = {{.inputs = kFirstInputs,
                           .output = Signed(scales, "+-++-+-+++-++-+-"),
                           .workers = {},
                           .server = {}}},
                .tolerance = 1e-6});
}

// Every number is dyadic and exact in fp32, so results must be equal.
TEST(AllReduceOracleTest, MeanMagnitudeScalesAreExact) {
  const double first_scales[] = {.6171875, .75};
  const double second_scales[] = {1.0478515625, .8984375};
  ExpectOracle(
      {.rule = onebitScaleL1,
       .calls = {{.inputs = kFirstInputs,
                  .output = Signed(first_scales, "+-++-+-+++-++-+-"),
                  .workers = {{2.5, -1.5, -1.5, -.5, -.5, -.5, .5, -1.5, -.5, .5, .5, 1.5, -1.5,
                               -1.5, -.5, .5},
                              {-.9375, -.0625, -.0625, .0625, -1.0625, -.0625, -1.0625, -1.0625,
                               -.0625, .0625, -1.0625, .9375, -.9375, -.0625, 1.9375, .0625}},
                  .server = {-.3984375, .3984375, .6640625, -.3984375, .3984375, .6640625, .3984375,
                             .6640625, .53125, -.53125, .53125, .53125, -.53125, .53125, .53125,
                             -.53125}},
                 {.inputs = kSecondInputs,
                  .output = Signed(second_scales, "++-+-++-+-++-+++"),
                  .workers = {{1.5, -1.5, -.5, .5, 1.5, -1.5, -.5, -.5, 1.5, -.5, -1.5, .5, -1.5,
                               1.5, .5, -1.5},
                              {-1.0859375, .0859375, 1.0859375, .9140625, -1.9140625, -.2109375,
                               .7890625, -.9140625, -.9140625, -.0859375, 1.0859375, 1.0859375,
                               .2109375, -.2109375, .7890625, -1.0859375}},
                  .server = {.1279296875, -.2236328125, .1376953125, .1279296875, -.1279296875,
                             -.8095703125, .9248046875, .1376953125, .05859375, -.05859375,
                             .05859375, .05859375, -1.20703125, -.79296875, -.79296875,
                             .14453125}}},
       .tolerance = 0});
}

// Ten elements in four chunks of eight: two chunks are empty, and padding is in no scale.
TEST(AllReduceOracleTest, PadsAreInNoScale) {
  const std::vector<std::vector<float>> inputs = {{-3, 4, 0, -4, 3, -1, -5, 2, -2, 5},
                                                  {2, -2, 5, 1, -3, 4, 0, -4, 3, -1},
                                                  {-4, 3, -1, -5, 2, -2, 5, 1, -3, 4},
                                                  {1, -3, 4, 0, -4, 3, -1, -5, 2, -2}};
  const double first_scales[] = {.5415705767, .1967969248};
  const double second_scales[] = {1.9945492066, 1.4050302977};
  ExpectOracle({.rule = onebitScaleL2,
                .calls = {{.inputs = inputs,
                           .output = Signed(first_scales, "-++-+-++-+"),
                           .workers = {},
                           .server = {}},
                          {.inputs = inputs,
                           .output = Signed(second_scales, "--+--+---+"),
                           .workers = {},
                           .server = {}}},
                .tolerance = 1e-6});
}

}  // namespace
}  // namespace onebit::testing
