// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// 1-bit sync: local steps send nothing, a sync averages what was added up, nothing is lost over
// time, and a run continues from its state bit for bit.
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/handles.h"
#include "tests/support/comm_group.h"
#include "tests/support/faulty_transport.h"
#include "tests/support/residuals.h"

namespace onebit::testing {
namespace {

using ::testing::HasSubstr;

using Blob = std::vector<std::byte>;

constexpr uint32_t kSeed = 7601;
constexpr size_t kCount = 500;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

onebitSyncSchedule_t Every(int64_t interval) {
  onebitSyncSchedule_t schedule = ONEBIT_SYNC_SCHEDULE_INIT;
  schedule.baseInterval = interval;
  schedule.maxInterval = interval;
  return schedule;
}

// What one rank has after a step.
struct StepResult {
  Outcome outcome;
  int did_sync = -1;
  float weight_sum = -1;
  std::vector<float> out = std::vector<float>(kCount, 77.0f);
};

// The ranks of a communicator with one tensor and its sync.
class SyncJob {
 public:
  explicit SyncJob(int ranks, const onebitSyncSchedule_t& schedule, int first_step = 0,
                   const Transport* transport = nullptr, bool is_one_exchange = false)
      : step_(first_step) {
    if (transport == nullptr) transport = Transport::Get("local").value();
    auto group = Comm::CreateLocalGroup(
        *transport, ranks,
        {.timeout_ms = 20'000, .one_exchange_elements = is_one_exchange ? SIZE_MAX : size_t{0}});
    for (auto& comm : group.value()) comms_.emplace_back(new onebitComm_s(std::move(comm)));
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.block = 64;
    for (const UniqueComm& comm : comms_) {
      compressors_.push_back(NewCompressor(comm.get(), kCount, onebitFloat32, config));
      onebitSync_t sync = nullptr;
      EXPECT_EQ(onebitSyncCreate(&sync, compressors_.back().get(), &schedule), onebitSuccess);
      syncs_.emplace_back(sync);
    }
  }

  int ranks() const { return static_cast<int>(syncs_.size()); }
  onebitSync_t sync(int rank) const { return syncs_[static_cast<size_t>(rank)].get(); }
  onebitComm_t comm(int rank) const { return comms_[static_cast<size_t>(rank)].get(); }
  onebitCompressor_t compressor(int rank) const {
    return compressors_[static_cast<size_t>(rank)].get();
  }

  static std::vector<float> InputOf(int step, int rank) {
    std::mt19937 random(kSeed + static_cast<uint32_t>(100 * step + rank));
    std::normal_distribution<float> normal;
    std::vector<float> values(kCount);
    for (float& value : values) value = normal(random);
    return values;
  }

  // The next step of every rank, with weights of these ranks and inputs as `change` makes them.
  using Change = std::function<void(int rank, std::vector<float>& x, float& weight)>;
  std::vector<StepResult> Step(const Change& change = {}) {
    std::vector<StepResult> results(syncs_.size());
    const int number = step_++;
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks(); ++rank) {
      threads.emplace_back([&, rank] {
        StepResult& mine = results[static_cast<size_t>(rank)];
        std::vector<float> x = InputOf(number, rank);
        float weight = 0.125f * static_cast<float>(1 + number % 3);
        if (change) change(rank, x, weight);
        mine.outcome = CallHere([&] {
          return onebitSyncStep(sync(rank), x.data(), weight, mine.out.data(), &mine.did_sync,
                                &mine.weight_sum, nullptr);
        });
      });
    }
    threads.clear();
    return results;
  }
  // Expects success, and the same on every rank.
  StepResult StepSucceeds(const Change& change = {}) {
    auto results = Step(change);
    for (const StepResult& result : results) {
      EXPECT_EQ(result.outcome.result, onebitSuccess) << result.outcome.text;
      EXPECT_EQ(result.did_sync, results[0].did_sync);
      EXPECT_EQ(result.weight_sum, results[0].weight_sum);
      EXPECT_EQ(std::memcmp(result.out.data(), results[0].out.data(), kCount * sizeof(float)), 0);
    }
    return results[0];
  }
  void RepeatsStep() { --step_; }

  std::vector<Blob> Export() const {
    std::vector<Blob> states;
    for (const UniqueSync& sync : syncs_) {
      size_t bytes = 0;
      EXPECT_EQ(onebitSyncExport(sync.get(), nullptr, &bytes), onebitSuccess);
      states.emplace_back(bytes);
      EXPECT_EQ(onebitSyncExport(sync.get(), states.back().data(), &bytes), onebitSuccess);
    }
    return states;
  }
  Outcome Import(int rank, const Blob& state) const {
    return CallHere([&] { return onebitSyncImport(sync(rank), state.data(), state.size()); });
  }

  // All ranks go over to a communicator of the same ranks.
  void Rebind() {
    std::vector<UniqueComm> made(comms_.size());
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks(); ++rank) {
      threads.emplace_back([&, rank] {
        onebitComm_t handle = nullptr;
        ASSERT_EQ(onebitCommShrink(comm(rank), nullptr, 0, &handle, nullptr, ONEBIT_SHRINK_DEFAULT),
                  onebitSuccess)
            << onebitGetLastError(nullptr);
        made[static_cast<size_t>(rank)].reset(handle);
        int source = -1;
        ASSERT_EQ(onebitCompressorRebind(compressor(rank), handle, &source), onebitSuccess)
            << onebitGetLastError(nullptr);
      });
    }
    threads.clear();
    comms_ = std::move(made);
  }

 private:
  std::vector<UniqueCompressor> compressors_;  // outlive the syncs
  std::vector<UniqueComm> comms_;
  std::vector<UniqueSync> syncs_;
  int step_;
};

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

// A sync is the compressed allreduce of the sums, and nothing else.
TEST(SyncTest, SyncIsTheAllReduceOfWhatWasAddedUp) {
  SyncJob job(3, Every(3));
  SyncJob plain(3, Every(1));  // its compressors only
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

// Outputs, residuals and what is added up together are what came in.
TEST(SyncTest, NothingIsLostOverTime) {
  SyncJob job(4, Every(3));
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
  for (int rank = 0; rank < 4; ++rank) {
    const auto worker = WorkerResidualOf(job.compressor(rank));
    const auto server = ServerResidualOf(job.compressor(rank));
    const size_t begin = job.compressor(rank)->planned.ServedRange().begin;
    for (size_t i = 0; i < kCount; ++i) out[i] += double{worker[i]} / 4;
    for (size_t i = 0; i < server.size(); ++i) out[begin + i] += server[i];
    for (const float value : worker) largest = std::max(largest, std::abs(double{value}));
  }
  for (const double value : in) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < kCount; ++i) EXPECT_NEAR(out[i], in[i], 1e-5 * largest) << i;
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

// The interval is lost, and nothing else.
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
    // As if the interval had not been.
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

TEST(SyncStateTest, RunContinuesBitForBit) {
  for (const int saved_at : {4, 5, 6}) {  // within an interval, and at its ends
    SyncJob straight(3, Every(3));
    SyncJob saved(3, Every(3));
    for (int step = 0; step < saved_at; ++step) {
      straight.StepSucceeds();
      saved.StepSucceeds();
    }
    const auto states = saved.Export();
    SyncJob resumed(3, Every(3), saved_at);
    for (int rank = 0; rank < 3; ++rank) {
      const Outcome outcome = resumed.Import(rank, states[static_cast<size_t>(rank)]);
      ASSERT_EQ(outcome.result, onebitSuccess) << outcome.text;
    }
    EXPECT_EQ(resumed.Export(), states);
    for (int step = 0; step < 7; ++step) {
      const StepResult expected = straight.StepSucceeds();
      const StepResult actual = resumed.StepSucceeds();
      EXPECT_EQ(actual.did_sync, expected.did_sync);
      EXPECT_EQ(actual.weight_sum, expected.weight_sum);
      EXPECT_EQ(actual.out, expected.out);
    }
    EXPECT_EQ(resumed.Export(), straight.Export());
  }
}

TEST(SyncStateTest, DamageAndOtherStatesAreRefusedAndNothingIsTouched) {
  SyncJob job(2, Every(3));
  for (int step = 0; step < 4; ++step) job.StepSucceeds();
  const Blob good = job.Export()[0];
  job.StepSucceeds();
  const auto before = job.Export();
  for (size_t byte = 0; byte < good.size(); ++byte) {
    Blob blob = good;
    blob[byte] ^= std::byte{0x10};
    ASSERT_NE(job.Import(0, blob).result, onebitSuccess) << "byte " << byte;
  }
  for (size_t size = 1; size < good.size(); size += 3) {
    const Blob blob(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
    ASSERT_NE(job.Import(0, blob).result, onebitSuccess) << size << " bytes";
  }
  EXPECT_EQ(job.Import(1, good).result, onebitMismatch) << "that of another rank";
  Outcome outcome = SyncJob(2, Every(2)).Import(0, good);
  EXPECT_EQ(outcome.result, onebitMismatch);
  EXPECT_THAT(outcome.text, HasSubstr("baseInterval 3"));
  outcome =
      CallHere([&] { return onebitCompressorImport(job.compressor(0), good.data(), good.size()); });
  EXPECT_EQ(outcome.result, onebitMismatch);
  EXPECT_THAT(outcome.text, HasSubstr("onebitSyncImport"));
  size_t bytes = 0;
  onebitCompressorExport(job.compressor(0), onebitStateRank, nullptr, &bytes);
  Blob other(bytes);
  onebitCompressorExport(job.compressor(0), onebitStateRank, other.data(), &bytes);
  outcome = job.Import(0, other);
  EXPECT_EQ(outcome.result, onebitMismatch);
  EXPECT_THAT(outcome.text, HasSubstr("onebitCompressorImport"));
  EXPECT_EQ(job.Export(), before);
  EXPECT_EQ(job.Import(0, good).result, onebitSuccess);
}

// A sync that fails can be made again: on every rank, or on none if one has committed it.
TEST(SyncFaultTest, FailedSyncIsRepeatedOrCountsEverywhere) {
  int repeated = 0;
  int rolled_forward = 0;
  for (uint64_t message = 0; message < 100; ++message) {
    SCOPED_TRACE(::testing::Message() << "message " << message);
    FaultyTransport transport;
    SyncJob straight(3, Every(2));
    SyncJob job(3, Every(2), 0, &transport.transport());
    for (int step = 0; step < 3; ++step) {
      straight.StepSucceeds();
      job.StepSucceeds();
    }
    const auto before = job.Export();
    transport.Arm({.kind = Fault::Kind::kFlipHeader, .rank = 1, .message = message, .bit = 200});
    const auto results = job.Step();
    const bool has_struck = transport.has_struck();
    transport.Arm({});
    if (!has_struck) break;
    straight.StepSucceeds();
    int committed = 0;
    for (size_t rank = 0; rank < 3; ++rank) {
      if (results[rank].outcome.result == onebitSuccess) {
        ++committed;
      } else {
        EXPECT_EQ(job.Export()[rank], before[rank]) << "an error changes nothing";
      }
    }
    job.Rebind();
    if (committed == 0) {
      ++repeated;
      job.RepeatsStep();
      job.StepSucceeds();
    } else {
      ++rolled_forward;
    }
    EXPECT_EQ(job.Export(), straight.Export());
    for (int step = 0; step < 4; ++step) {
      EXPECT_EQ(job.StepSucceeds().out, straight.StepSucceeds().out);
    }
  }
  EXPECT_GT(repeated, 0);
  EXPECT_GT(rolled_forward, 0);
}

TEST(SyncFaultTest, LocalStepsNeedNoCommunicator) {
  SyncJob job(2, Every(2));
  onebitCommAbort(job.comm(0));
  for (const StepResult& result : job.Step()) EXPECT_EQ(result.outcome.result, onebitSuccess);
  for (const StepResult& result : job.Step()) {
    EXPECT_NE(result.outcome.result, onebitSuccess);
    EXPECT_THAT(result.outcome.text, HasSubstr("sync at step 1"));
  }
}

class SyncArgumentsTest : public ::testing::Test {
 protected:
  onebitResult_t Create(const onebitSyncSchedule_t& schedule) {
    onebitSync_t sync = nullptr;
    const onebitResult_t result = onebitSyncCreate(&sync, job_.compressor(0), &schedule);
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
  expect_refused([](auto& s) { s.baseInterval = 17; }, "maxInterval is 16, but may be 17 or more");
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
  EXPECT_EQ(onebitSyncExport(job_.sync(0), text, &bytes), onebitInvalidArgument);
  EXPECT_EQ(bytes, before[0].size());
  EXPECT_EQ(onebitSyncImport(job_.sync(0), nullptr, 3), onebitInvalidArgument);
}

}  // namespace
}  // namespace onebit::testing
