// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// 1-bit sync: local steps send nothing, a sync averages what was added up, and nothing is lost over
// time.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sync/sync_job.h"

namespace onebit::testing {
namespace {

using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(SyncTest, LocalStepsSendNothingAndLeaveTheOutputAlone) {
  SyncJob job(3, Every(4));
  for (int step = 0; step < 12; ++step) {
    std::vector<uint64_t> bytes, messages;
    for (int rank = 0; rank < 3; ++rank) {
      bytes.push_back(StatsOf(job.comm(rank)).bytes_sent);
      messages.push_back(StatsOf(job.comm(rank)).messages_sent);
    }
    const StepResult result = job.StepSucceeds();
    const bool is_sync = step % 4 == 3;
    EXPECT_EQ(result.did_sync, is_sync ? 1 : 0) << "step " << step;
    for (int rank = 0; rank < 3; ++rank) {
      const uint64_t sent = StatsOf(job.comm(rank)).bytes_sent - bytes[static_cast<size_t>(rank)];
      EXPECT_EQ(sent, is_sync ? StatsOf(job.compressor(rank)).wire_bytes : 0u) << "step " << step;
      EXPECT_EQ(StatsOf(job.comm(rank)).messages_sent > messages[static_cast<size_t>(rank)],
                is_sync);
    }
    if (is_sync) continue;
    EXPECT_EQ(result.out, StepResult().out);
    EXPECT_EQ(result.weight_sum, -1) << "left alone";
  }
}

// `plain` lends its compressors only.
void ExpectAllReduceOfTheSum(SyncJob& job, SyncJob& plain) {
  plain.DestroySyncs();
  for (int interval = 0; interval < 3; ++interval) {
    std::vector<std::vector<float>> sums(3, std::vector<float>(kCount));
    float weight_sum = 0;
    StepResult result;
    for (int step = 3 * interval; step < 3 * interval + 3; ++step) {
      for (int rank = 0; rank < 3; ++rank) {
        const auto x = SyncJob::InputOf(step, rank);
        for (size_t i = 0; i < kCount; ++i) sums[static_cast<size_t>(rank)][i] += x[i];
      }
      weight_sum += 0.125f * static_cast<float>(1 + step % 3);
      result = job.StepSucceeds();
    }
    EXPECT_EQ(result.weight_sum, weight_sum);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        auto& sum = sums[static_cast<size_t>(rank)];
        EXPECT_EQ(onebitAllReduce(sum.data(), sum.data(), kCount, onebitFloat32, onebitAvg,
                                  plain.compressor(rank), plain.comm(rank), nullptr),
                  onebitSuccess);
      });
    }
    threads.clear();
    EXPECT_EQ(result.out, sums[0]);
  }
}

// A sync is the compressed allreduce of the accumulated values, and nothing else.
TEST(SyncTest, SyncIsTheAllReduceOfWhatWasAddedUp) {
  SyncJob job(3, Every(3));
  SyncJob plain(3, Every(1));
  ExpectAllReduceOfTheSum(job, plain);
}

// Outputs, residuals and accumulated values of 4 ranks add up to the inputs.
void ExpectNothingIsLost(SyncJob& job) {
  std::vector<double> in(kCount), out(kCount);
  for (int step = 0; step < 99; ++step) {
    for (int rank = 0; rank < 4; ++rank) {
      const auto x = SyncJob::InputOf(step, rank);
      for (size_t i = 0; i < kCount; ++i) in[i] += double{x[i]} / 4;
    }
    const StepResult result = job.StepSucceeds();
    for (size_t i = 0; i < kCount && result.did_sync == 1; ++i) out[i] += result.out[i];
  }
  double largest = 0;
  const std::vector<double> pending = job.Pending();
  for (size_t i = 0; i < kCount; ++i) out[i] += pending[i];
  for (const double value : in) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < kCount; ++i) EXPECT_NEAR(out[i], in[i], 1e-5 * largest) << i;
}

TEST(SyncTest, NothingIsLostOverTime) {
  SyncJob job(4, Every(3));
  ExpectNothingIsLost(job);
}

TEST(SyncTest, SparseCodecsOweWhatTheyDoNotSend) {
  for (const onebitCodec_t codec : {onebitCodecTopk, onebitCodecRandk}) {
    for (const int hops : {1, 2}) {
      SCOPED_TRACE(::testing::Message() << "codec " << codec << ", hops " << hops);
      onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
      config.codec = codec;
      config.block = 320;
      config.k = 40;
      config.hops = hops;
      SyncJob job(3, Every(3), 0, nullptr, false, config);
      SyncJob plain(3, Every(1), 0, nullptr, false, config);
      ExpectAllReduceOfTheSum(job, plain);
      SyncJob long_job(4, Every(3), 0, nullptr, false, config);
      ExpectNothingIsLost(long_job);
    }
  }
}

TEST(SyncTest, NextStepsAreThoseThatCome) {
  onebitSyncSchedule_t schedule = ONEBIT_SYNC_SCHEDULE_INIT;
  schedule.warmupSteps = 3;
  schedule.doubleEvery = 4;
  schedule.maxInterval = 4;
  SyncJob job(2, schedule);
  for (int begin = 0; begin < 20; ++begin) {
    std::string next(30, '?');
    ASSERT_EQ(onebitSyncNext(job.sync(0), 20, next.data()), onebitSuccess);
    EXPECT_EQ(next[20], '\0');
    EXPECT_EQ(next[21], '?');
    EXPECT_EQ(next[0] == '1', job.StepSucceeds().did_sync == 1) << next;
    if (begin == 0) {
      EXPECT_EQ(next.substr(0, 20), "1111111.1.1...1...1.");
    }
  }
}

TEST(SyncTest, WeightsThatDifferAreAnErrorOnAllRanks) {
  SyncJob job(3, Every(2));
  job.StepSucceeds();
  const auto results = job.Step([](int rank, auto&, float& weight) {
    if (rank == 1) weight = std::nextafter(weight, 1.0f);
  });
  for (const StepResult& result : results) {
    EXPECT_EQ(result.outcome.result, onebitMismatch) << result.outcome.text;
    EXPECT_THAT(result.outcome.text, HasSubstr("weight sum"));
  }
}

TEST(SyncTest, SyncOfWeightZeroWaits) {
  SyncJob job(2, Every(2));
  const auto weightless = [](int, auto&, float& weight) { weight = 0; };
  for (int step = 0; step < 4; ++step) {
    EXPECT_EQ(job.StepSucceeds(weightless).did_sync, 0) << "step " << step;
  }
  const StepResult result = job.StepSucceeds();
  EXPECT_EQ(result.did_sync, 1);
  EXPECT_EQ(job.StepSucceeds().did_sync, 0) << "counted from that sync";
  EXPECT_EQ(job.StepSucceeds().did_sync, 1);
}

// Only the interval is lost.
TEST(SyncTest, NonfiniteSumSpoilsItsIntervalOnly) {
  for (const bool is_one_exchange : {false, true}) {
    SyncJob job(3, Every(2), 0, nullptr, is_one_exchange);
    for (int step = 0; step < 4; ++step) job.StepSucceeds();
    std::vector<Residuals> before;
    for (int rank = 0; rank < 3; ++rank) before.push_back(ResidualsOf(job.compressor(rank)));
    job.StepSucceeds([](int rank, auto& x, float&) {
      if (rank == 2) x[7] = kNan;
    });
    const StepResult bad = job.StepSucceeds();
    EXPECT_EQ(bad.did_sync, 1);
    for (const float value : bad.out) EXPECT_TRUE(std::isnan(value));
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_TRUE(ResidualsOf(job.compressor(rank)) == before[static_cast<size_t>(rank)]);
    }
    // As if the interval had not existed.
    SyncJob other(3, Every(2), 0, nullptr, is_one_exchange);
    for (int step = 0; step < 4; ++step) other.StepSucceeds();
    const auto same = [](int rank, auto& x, float& weight) {
      x = SyncJob::InputOf(50, rank);
      weight = 1;
    };
    for (int step = 0; step < 2; ++step) {
      const StepResult after = job.StepSucceeds(same);
      EXPECT_EQ(after.out, other.StepSucceeds(same).out);
      if (after.did_sync == 1) {
        EXPECT_EQ(after.weight_sum, 2);
      }
    }
  }
}

class SyncArgumentsTest : public ::testing::Test {
 protected:
  onebitResult_t Create(const onebitSyncSchedule_t& schedule) {
    const UniqueCompressor free =
        NewCompressor(job_.comm(0), 10, onebitFloat32, ONEBIT_COMPRESSOR_CONFIG_INIT);
    onebitSync_t sync = nullptr;
    const onebitResult_t result = onebitSyncCreate(&sync, free.get(), &schedule);
    onebitSyncDestroy(sync);
    return result;
  }
  SyncJob job_{2, Every(4)};
};

TEST_F(SyncArgumentsTest, SchedulesOutOfRangeAreRefused) {
  const auto expect_refused = [&](auto change, const char* text) {
    onebitSyncSchedule_t schedule = ONEBIT_SYNC_SCHEDULE_INIT;
    change(schedule);
    EXPECT_EQ(Create(schedule), onebitInvalidArgument) << text;
    EXPECT_THAT(onebitGetLastError(nullptr), HasSubstr(text));
  };
  expect_refused([](auto& s) { s.size = 3; }, "ONEBIT_SYNC_SCHEDULE_INIT");
  expect_refused([](auto& s) { s.magic = 0; }, "ONEBIT_SYNC_SCHEDULE_INIT");
  expect_refused([](auto& s) { s.warmupSteps = -1; }, "warmupSteps is -1");
  expect_refused([](auto& s) { s.baseInterval = 0; }, "baseInterval is 0");
  expect_refused([](auto& s) { s.doubleEvery = -2; }, "doubleEvery is -2");
  expect_refused([](auto& s) { s.baseInterval = 17; }, "maxInterval is 16, but must be 17 or more");
  EXPECT_EQ(Create(ONEBIT_SYNC_SCHEDULE_INIT), onebitSuccess);
}

TEST_F(SyncArgumentsTest, CompressorsOfOtherCallsAreRefused) {
  const onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  const UniqueCompressor half = NewCompressor(job_.comm(0), 10, onebitFloat16, config);
  onebitSync_t sync = nullptr;
  EXPECT_EQ(onebitSyncCreate(&sync, half.get(), nullptr), onebitInvalidArgument);
  EXPECT_THAT(onebitGetLastError(nullptr), HasSubstr("float16"));
  const UniqueCompressor summed = NewCompressor(job_.comm(0), 10, onebitFloat32, config);
  summed->planned.compressor.set_op(ReduceOp::kSum);
  EXPECT_EQ(onebitSyncCreate(&sync, summed.get(), nullptr), onebitInvalidUsage);
  EXPECT_EQ(onebitSyncCreate(&sync, nullptr, nullptr), onebitInvalidArgument);
  EXPECT_EQ(onebitSyncCreate(nullptr, summed.get(), nullptr), onebitInvalidArgument);
  EXPECT_EQ(onebitSyncDestroy(nullptr), onebitSuccess);
}

// An imported state may come from a compressor that was used with a sum.
TEST_F(SyncArgumentsTest, ResidualsOfASumAreRefusedWhenTheSyncIsDue) {
  for (const int rank : {0, 1}) job_.compressor(rank)->planned.compressor.set_op(ReduceOp::kSum);
  for (int step = 0; step < 3; ++step) job_.StepSucceeds();
  for (const StepResult& result : job_.Step()) {
    EXPECT_EQ(result.outcome.result, onebitInvalidUsage);
    EXPECT_THAT(result.outcome.text,
                HasSubstr("was used with onebitSum; call onebitCompressorReset"));
  }
}

TEST_F(SyncArgumentsTest, CompressorsServeOneSyncAndNothingElse) {
  onebitSync_t second = nullptr;
  EXPECT_EQ(onebitSyncCreate(&second, job_.compressor(0), nullptr), onebitInvalidUsage);
  EXPECT_EQ(second, nullptr);
  std::vector<float> x(kCount);
  EXPECT_EQ(onebitAllReduce(x.data(), x.data(), kCount, onebitFloat32, onebitAvg,
                            job_.compressor(0), job_.comm(0), nullptr),
            onebitInvalidUsage);
  EXPECT_EQ(onebitCompressorDestroy(job_.compressor(0)), onebitInvalidUsage);
  job_.StepSucceeds();
}

TEST_F(SyncArgumentsTest, StepsWithWrongArgumentsChangeNothing) {
  const auto before = job_.Export();
  std::vector<float> x(2 * kCount, 1.0f);
  int did_sync = 5;
  float weight_sum = 5;
  const auto step = [&](const float* in, float weight, float* out) {
    return onebitSyncStep(job_.sync(0), in, weight, out, &did_sync, &weight_sum, nullptr);
  };
  EXPECT_EQ(step(nullptr, 1, x.data()), onebitInvalidArgument);
  EXPECT_EQ(step(x.data(), 1, nullptr), onebitInvalidArgument);
  EXPECT_EQ(step(x.data(), 1, x.data() + 1), onebitInvalidArgument);
  EXPECT_EQ(step(x.data(), -1, x.data()), onebitInvalidArgument);
  EXPECT_EQ(step(x.data(), kNan, x.data()), onebitInvalidArgument);
  EXPECT_EQ(step(x.data(), INFINITY, x.data()), onebitInvalidArgument);
  EXPECT_EQ(onebitSyncStep(nullptr, x.data(), 1, x.data(), &did_sync, &weight_sum, nullptr),
            onebitInvalidArgument);
  EXPECT_EQ(onebitSyncStep(job_.sync(0), x.data(), 1, x.data(), nullptr, &weight_sum, nullptr),
            onebitInvalidArgument);
  EXPECT_EQ(onebitSyncStep(job_.sync(0), x.data(), 1, x.data(), &did_sync, nullptr, nullptr),
            onebitInvalidArgument);
  EXPECT_EQ(onebitSyncStep(job_.sync(0), x.data(), 1, x.data(), &did_sync, &weight_sum,
                           reinterpret_cast<onebitStream_t>(&did_sync)),
            onebitInvalidArgument);
  EXPECT_EQ(did_sync, 5);
  EXPECT_EQ(job_.Export(), before);
  EXPECT_EQ(step(x.data(), 1, x.data()), onebitSuccess);
  char text[2];
  EXPECT_EQ(onebitSyncNext(nullptr, 1, text), onebitInvalidArgument);
  EXPECT_EQ(onebitSyncNext(job_.sync(0), 1, nullptr), onebitInvalidArgument);
  size_t bytes = 3;
  EXPECT_EQ(onebitSyncExport(job_.sync(0), onebitStateRank, text, &bytes), onebitInvalidArgument);
  EXPECT_EQ(bytes, before[0].size());
  EXPECT_EQ(onebitSyncImport(job_.sync(0), nullptr, 3), onebitInvalidArgument);
}

// Without verdicts a NaN would stay in the sums of some ranks.
TEST(SyncRefusalTest, CodesWithoutFeedbackAreRefused) {
  CommGroup group(1);
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.codec = onebitCodecFp4;
  for (const onebitMode_t mode : {onebitModePlain, onebitModeEf}) {
    config.mode = mode;
    const UniqueCompressor compressor = NewCompressor(group.comm(0), 100, onebitFloat32, config);
    onebitSync_t sync = nullptr;
    const onebitResult_t result = onebitSyncCreate(&sync, compressor.get(), nullptr);
    EXPECT_EQ(result, mode == onebitModeEf ? onebitSuccess : onebitInvalidArgument);
    if (sync != nullptr) {
      EXPECT_EQ(onebitSyncDestroy(sync), onebitSuccess);
    }
  }
}

}  // namespace
}  // namespace onebit::testing
