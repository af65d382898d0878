// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Counters of communicators and compressors, in bytes and calls.
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/comm_group.h"

namespace onebit::testing {
namespace {

constexpr size_t kCount = 5000;
constexpr int kRanks = 4;

class StatsTest : public ::testing::TestWithParam<bool> {
 protected:
  CommGroup group_{kRanks, GetParam() ? kPatientOneExchange : kPatient};
};

TEST_P(StatsTest, BytesSentAreTheWireBytesOfEachCall) {
  group_.Run([&](int rank) {
    const onebitComm_t comm = group_.comm(rank);
    const onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    const UniqueCompressor compressor = NewCompressor(comm, kCount, onebitFloat32, config);
    std::vector<float> values(kCount, 1.0f);
    uint64_t bytes = 0;
    for (int call = 1; call <= 5; ++call) {
      ASSERT_EQ(onebitAllReduce(values.data(), values.data(), kCount, onebitFloat32, onebitAvg,
                                compressor.get(), comm, nullptr),
                onebitSuccess);
      bytes += StatsOf(compressor.get()).wire_bytes;
      EXPECT_EQ(StatsOf(comm).bytes_sent, bytes);
    }
    // Two exchanges: one message to each peer in each. Chunks have 1280 elements, the last 1160.
    const bool is_last = rank == kRanks - 1;
    const uint64_t own = 64 + 4 + (is_last ? 145 : 160);
    const uint64_t scatter = 3 * (64 + 4) + (is_last ? 3 * 160 : 2 * 160 + 145);
    const uint64_t one_exchange = 3 * (64 + 4 * 4 + 625);
    EXPECT_EQ(StatsOf(compressor.get()).wire_bytes, GetParam() ? one_exchange : scatter + 3 * own);
    EXPECT_EQ(StatsOf(comm).messages_sent, 5u * (GetParam() ? 3 : 6));
  });
}

TEST_P(StatsTest, CountCallsByKind) {
  group_.Run([&](int rank) {
    const onebitComm_t comm = group_.comm(rank);
    const onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    const UniqueCompressor compressor = NewCompressor(comm, kCount, onebitFloat16, config);
    std::vector<uint16_t> values(kCount, 0x3c00);
    for (int call = 0; call < 3; ++call) {
      ASSERT_EQ(onebitAllReduce(values.data(), values.data(), kCount, onebitFloat16, onebitAvg,
                                compressor.get(), comm, nullptr),
                onebitSuccess);
    }
    ASSERT_EQ(onebitBroadcast(values.data(), values.data(), 7, onebitFloat16, 1, comm, nullptr),
              onebitSuccess);
    ASSERT_EQ(onebitBarrier(comm, nullptr), onebitSuccess);
    const onebitCommStats_t stats = StatsOf(comm);
    EXPECT_EQ(stats.size, sizeof(stats));
    EXPECT_EQ(stats.compressed_calls, 3u);
    EXPECT_EQ(stats.dense_calls, 2u);
    EXPECT_EQ(stats.failed_calls, 0u);
    EXPECT_EQ(stats.nonfinite_calls, 0u);
    EXPECT_EQ(stats.logical_bytes, 3 * 2 * kCount + 2 * 7);
    EXPECT_GT(stats.codec_ns, 0u);
    EXPECT_GT(stats.call_ns, stats.codec_ns);
    const onebitCompressorStats_t compressor_stats = StatsOf(compressor.get());
    EXPECT_EQ(compressor_stats.epoch, 3u);
    EXPECT_EQ(compressor_stats.exchanges, GetParam() ? 1u : 2u);
    EXPECT_EQ(compressor_stats.segments, 1u);
  });
}

// 4 bytes of worker residual per element, and as much for the elements served; twice.
TEST_P(StatsTest, ResidualBytesAreWhatTheHeaderSays) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  const uint64_t served = GetParam() ? kCount : 1280;
  const auto bytes = [&] {
    return StatsOf(NewCompressor(group_.comm(0), kCount, onebitFloat32, config).get())
        .residual_bytes;
  };
  EXPECT_EQ(bytes(), 2 * 4 * (kCount + served));
  config.transactional = 0;
  EXPECT_EQ(bytes(), 4 * (kCount + served));
  config.residualType = onebitBfloat16;
  EXPECT_EQ(bytes(), 2 * (kCount + served));
  config.serverResidual = 0;
  EXPECT_EQ(bytes(), 2 * kCount);
  config.mode = onebitModePlain;
  EXPECT_EQ(bytes(), 0u);
}

TEST_P(StatsTest, FailedCallsAreCountedAndSendNoMore) {
  const std::vector<Outcome> outcomes = group_.Call([&](int rank) {
    std::vector<float> values(100);
    return onebitAllReduce(values.data(), values.data(), rank == 0 ? 100 : 99, onebitFloat32,
                           onebitSum, nullptr, group_.comm(rank), nullptr);
  });
  uint64_t failed_calls = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(outcomes[static_cast<size_t>(rank)].result, onebitMismatch);
    failed_calls += StatsOf(group_.comm(rank)).failed_calls;
    EXPECT_EQ(StatsOf(group_.comm(rank)).dense_calls, 0u);
  }
  // On every rank that took part; one that came too late took none.
  EXPECT_GE(failed_calls, 2u);
  EXPECT_LE(failed_calls, 4u);
}

INSTANTIATE_TEST_SUITE_P(Exchanges, StatsTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "One" : "Two"; });

TEST(StatsOfOneRankTest, NothingIsSent) {
  CommGroup group(1);
  const onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  const UniqueCompressor compressor = NewCompressor(group.comm(0), 10, onebitFloat32, config);
  std::vector<float> values(10, 1.5f);
  const std::vector<float> before = values;
  ASSERT_EQ(onebitAllReduce(values.data(), values.data(), 10, onebitFloat32, onebitAvg,
                            compressor.get(), group.comm(0), nullptr),
            onebitSuccess);
  ASSERT_EQ(onebitBarrier(group.comm(0), nullptr), onebitSuccess);
  EXPECT_EQ(values, before);
  EXPECT_EQ(StatsOf(group.comm(0)).bytes_sent, 0u);
  EXPECT_EQ(StatsOf(group.comm(0)).compressed_calls, 1u);
  EXPECT_EQ(StatsOf(compressor.get()).epoch, 0u) << "the residuals stayed untouched";
  EXPECT_EQ(StatsOf(compressor.get()).exchanges, 0u);
  EXPECT_EQ(StatsOf(compressor.get()).wire_bytes, 0u);
}

}  // namespace
}  // namespace onebit::testing
