// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Syncs that are saved and loaded, and syncs that fail.
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/faulty_transport.h"
#include "tests/support/resealed_state.h"
#include "tests/sync/sync_job.h"

namespace onebit::testing {
namespace {

using ::testing::HasSubstr;

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

// The run on other ranks continues at the same step, and pays what the former run owed.
TEST(SyncStateTest, GoesOverToOtherRanks) {
  for (const int ranks : {1, 3, 6}) {
    for (const int saved_at : {4, 5, 6}) {
      SCOPED_TRACE(::testing::Message() << ranks << " ranks, saved at " << saved_at);
      SyncJob saved(4, Every(3));
      std::vector<double> in(kCount), out(kCount);
      const auto add = [&](SyncJob& job, int step) {
        for (int rank = 0; rank < job.ranks(); ++rank) {
          const auto x = SyncJob::InputOf(step, rank);
          for (size_t i = 0; i < kCount; ++i) in[i] += double{x[i]} / job.ranks();
        }
        const StepResult result = job.StepSucceeds();
        for (size_t i = 0; i < kCount && result.did_sync == 1; ++i) out[i] += result.out[i];
      };
      for (int step = 0; step < saved_at; ++step) add(saved, step);
      const auto states = saved.Export(onebitStateGlobal);
      for (const Blob& state : states) EXPECT_EQ(state, states[0]);
      SyncJob resumed(ranks, Every(3), saved_at);
      for (int rank = 0; rank < ranks; ++rank) {
        const Outcome outcome = resumed.Import(rank, states[0]);
        ASSERT_EQ(outcome.result, onebitSuccess) << outcome.text;
      }
      std::vector<char> expected(9), actual(9);
      EXPECT_EQ(onebitSyncNext(saved.sync(0), 8, expected.data()), onebitSuccess);
      EXPECT_EQ(onebitSyncNext(resumed.sync(0), 8, actual.data()), onebitSuccess);
      EXPECT_EQ(actual, expected);
      for (int step = saved_at; step < 30; ++step) add(resumed, step);
      const std::vector<double> pending = resumed.Pending();
      for (size_t i = 0; i < kCount; ++i) EXPECT_NEAR(out[i] + pending[i], in[i], 1e-4) << i;
    }
  }
}

TEST(SyncStateTest, GlobalStatesNeedTheSameStep) {
  SyncJob job(2, Every(3));
  std::vector<float> x(kCount), out(kCount);
  int did_sync = 0;
  float weight_sum = 0;
  EXPECT_EQ(onebitSyncStep(job.sync(0), x.data(), 1, out.data(), &did_sync, &weight_sum, nullptr),
            onebitSuccess);
  std::vector<Outcome> outcomes(2);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      size_t bytes = 0;
      onebitSyncExport(job.sync(rank), onebitStateGlobal, nullptr, &bytes);
      Blob state(bytes);
      outcomes[static_cast<size_t>(rank)] = CallHere([&] {
        return onebitSyncExport(job.sync(rank), onebitStateGlobal, state.data(), &bytes);
      });
    });
  }
  threads.clear();
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.result, onebitMismatch);
    EXPECT_THAT(outcome.text, HasSubstr("steps of the sync"));
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
      job.Import(0, Resealed(good, SectionTag::kSync, [](Blob* content) {
                   std::memcpy(content->data() + 16, content->data() + 8, 8);  // last sync = step
                 }));
  EXPECT_EQ(outcome.result, onebitCorrupt);
  EXPECT_THAT(outcome.text, HasSubstr("does not come after last_sync"));
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

// Otherwise the imported interval would end as if its own sync had been committed elsewhere.
TEST(SyncStateTest, AnImportForgetsAFailedSync) {
  SyncJob saved(2, Every(3));
  for (int step = 0; step < 4; ++step) saved.StepSucceeds();
  SyncJob job(2, Every(3));
  for (int step = 0; step < 2; ++step) job.StepSucceeds();
  onebitCommAbort(job.comm(0));
  for (const StepResult& result : job.Step()) EXPECT_NE(result.outcome.result, onebitSuccess);
  const auto states = saved.Export();
  for (const int rank : {0, 1}) {
    const Outcome outcome = job.Import(rank, states[static_cast<size_t>(rank)]);
    EXPECT_EQ(outcome.result, onebitSuccess) << outcome.text;
  }
  const auto steps_of = [](const Blob& state) {  // the count of steps and the last sync
    const auto fields = StateReader::Open(state).value().section(SectionTag::kSync)->first(24);
    return Blob(fields.begin(), fields.end());
  };
  saved.StepSucceeds();
  job.StepSucceeds();
  EXPECT_EQ(steps_of(job.Export()[0]), steps_of(saved.Export()[0]));
}

// A failed sync can be repeated: on every rank, or on none if one has committed it. Counts how
// often ranks repeated a sync after one of its messages was damaged, and how often they rolled
// forward because a rank had committed it.
struct Ends {
  int repeated = 0;
  int rolled_forward = 0;
};

// Damages every message of the sync in turn.
void DamageEachMessage(Ends* ends) {
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
      ++ends->repeated;
      job.RepeatsStep();
      job.StepSucceeds();
    } else {
      ++ends->rolled_forward;
    }
    EXPECT_EQ(job.Export(), straight.Export());
    for (int step = 0; step < 4; ++step) {
      EXPECT_EQ(job.StepSucceeds().out, straight.StepSucceeds().out);
    }
  }
}

TEST(SyncFaultTest, FailedSyncIsRepeatedOrCountsEverywhere) {
  // It depends on timing whether a rank has finished when another one fails.
  Ends ends;
  for (int tries = 0; tries < 50 && (ends.repeated == 0 || ends.rolled_forward == 0); ++tries) {
    DamageEachMessage(&ends);
  }
  EXPECT_GT(ends.repeated, 0);
  EXPECT_GT(ends.rolled_forward, 0);
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

}  // namespace
}  // namespace onebit::testing
