// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Heap memory that ends at any allocation: an error that says so, peers that name the rank, and no
// loss of anything else.
#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/api/join_ranks.h"
#include "tests/faults/fault_group.h"
#include "tests/support/allocation_failer.h"

namespace onebit::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr double kSoonSeconds = 5;
constexpr int kRank = kStruckRank;  // the one that has no memory
constexpr uint64_t kMostAllocations = 5000;
// Of tests where many an allocation costs a time-out.
constexpr uint64_t kStride = 17;
constexpr CallKind kEf{.name = "ef", .mode = onebitModeEf};

struct Failing {
  bool has_struck = false;
  onebitResult_t result = onebitSuccess;
  std::string text;
};

Failing Without(uint64_t before, Shortage shortage, const std::function<onebitResult_t()>& call) {
  Failing failing;
  {
    const FailingAllocations allocations(before, shortage);
    failing.result = call();
    failing.has_struck = allocations.has_struck();
  }
  if (failing.result != onebitSuccess) failing.text = onebitGetLastError(nullptr);
  return failing;
}

// Calls body(before) for the allocations there are, or one of `stride`; the body says whether there
// was one to fail.
void ForEachAllocation(const std::function<bool(uint64_t before)>& body, uint64_t stride = 1) {
  uint64_t before = 0;
  while (body(before)) {
    ASSERT_LT(before, kMostAllocations);
    if (::testing::Test::HasFailure()) return;
    before += stride;
  }
}

class HeapTest : public ::testing::TestWithParam<Shortage> {
 protected:
  static Shortage shortage() { return GetParam(); }
};

TEST_P(HeapTest, CommInitAllFailsCleanlyAndWorksNext) {
  const auto sweep = [] {
    ForEachAllocation([](uint64_t before) {
      onebitComm_t comms[3] = {};
      const Failing failing =
          Without(before, shortage(), [&] { return onebitCommInitAll(comms, 3, nullptr); });
      if (failing.has_struck) {
        EXPECT_EQ(failing.result, onebitOutOfMemory) << before << ": " << failing.text;
        EXPECT_EQ(comms[0], nullptr);
        EXPECT_EQ(onebitCommInitAll(comms, 3, nullptr), onebitSuccess) << before;
      }
      for (onebitComm_t comm : comms) onebitCommDestroy(comm);
      return failing.has_struck;
    });
  };
  sweep();
  const int64_t live = LiveAllocations();
  sweep();
  EXPECT_EQ(LiveAllocations(), live);
}

INSTANTIATE_TEST_SUITE_P(Shortages, HeapTest,
                         ::testing::Values(Shortage::kOnce, Shortage::kFromThenOn),
                         [](const auto& info) {
                           return info.param == Shortage::kOnce ? "Once" : "FromThenOn";
                         });

struct RanksParameter {
  std::string transport;
  Shortage shortage;
};

class HeapOfARankTest : public ::testing::TestWithParam<RanksParameter> {
 protected:
  static Shortage shortage() { return GetParam().shortage; }
  static FaultGroup NewGroup() {
    return FaultGroup(GetParam().transport, kEf, CountOf(kEf, MessageSize::kEager), 20'000);
  }

  // A call on every rank, of which one has no memory from some point on.
  struct Outcomes {
    Failing failing;
    std::vector<Outcome> all;
  };
  // `then` is what this rank does after onebitOutOfMemory, with memory.
  static Outcomes CallWithout(uint64_t before, const std::function<onebitResult_t(int rank)>& call,
                              const std::function<onebitResult_t()>& then = nullptr) {
    Outcomes outcomes{.failing = {}, .all = std::vector<Outcome>(kCaseRanks)};
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < kCaseRanks; ++rank) {
      threads.emplace_back([&, rank] {
        outcomes.all[static_cast<size_t>(rank)] = CallHere([&] {
          if (rank != kRank) return call(rank);
          outcomes.failing = Without(before, shortage(), [&] { return call(rank); });
          if (outcomes.failing.result == onebitOutOfMemory && then) return then();
          return outcomes.failing.result;
        });
      });
    }
    threads.clear();
    return outcomes;
  }

  static std::vector<std::vector<float>> Inputs(int call) {
    std::vector<std::vector<float>> inputs;
    for (int rank = 0; rank < kCaseRanks; ++rank) {
      inputs.push_back(FaultGroup::InputOf(rank, call, CountOf(kEf, MessageSize::kEager)));
    }
    return inputs;
  }

  // Each rank has what it had after its last success.
  static void ExpectWholeResiduals(const FaultGroup& group) {
    for (int rank = 0; rank < kCaseRanks; ++rank) {
      const uint64_t epoch = group.epoch(rank);
      ASSERT_LT(epoch, ReferenceOf(kEf, MessageSize::kEager).residuals.size());
      EXPECT_TRUE(ResidualsOf(group.compressor(rank)) ==
                  ReferenceOf(kEf, MessageSize::kEager).residuals[epoch][static_cast<size_t>(rank)])
          << "rank " << rank << ", epoch " << epoch;
    }
  }
};

TEST_P(HeapOfARankTest, JoinFailsOnAllRanksAndWorksNext) {
  onebitConfig_t config = LocalConfig();
  const std::string transport = GetParam().transport;
  config.transport = transport.c_str();
  // As long the others wait for a rank that fails before it can say so.
  config.connectTimeoutMs = 600;
  ForEachAllocation(
      [&](uint64_t before) {
        const onebitUniqueId id = NewUniqueId();
        std::vector<onebitComm_t> comms(kCaseRanks);
        const Outcomes outcomes = CallWithout(before, [&](int rank) {
          return onebitCommInitRankConfig(&comms[static_cast<size_t>(rank)], kCaseRanks, id, rank,
                                          &config);
        });
        if (outcomes.failing.has_struck) {
          // What the memory was for may only have been late, and then another rank is the first to
          // fail.
          EXPECT_THAT(outcomes.failing.result,
                      AnyOf(onebitOutOfMemory, onebitSuccess, onebitRemoteError))
              << outcomes.failing.text;
        }
        std::vector<UniqueComm> made;
        for (onebitComm_t comm : comms) made.emplace_back(comm);
        for (int rank = 0; rank < kCaseRanks; ++rank) {
          const Outcome& outcome = outcomes.all[static_cast<size_t>(rank)];
          EXPECT_LT(outcome.seconds, kSoonSeconds) << before << ": " << outcome.text;
          if (rank == kRank || outcome.result == onebitSuccess) continue;
          EXPECT_THAT(outcome.text, HasSubstr("rank " + std::to_string(kRank))) << before;
        }
        // Who was in before the other failed hears of it.
        if (outcomes.failing.result != onebitSuccess) {
          for (const Outcome& outcome :
               CallAll(made, [](onebitComm_t comm) { return onebitBarrier(comm, nullptr); })) {
            EXPECT_LT(outcome.seconds, kSoonSeconds) << before << ": " << outcome.text;
          }
        }
        return outcomes.failing.has_struck;
      },
      kStride);
  JoinGroup(kCaseRanks, config);
}

// The thread of the control channel, which here serves all ranks and rank 0's server.
TEST_P(HeapOfARankTest, ControlThreadWithoutMemoryEndsTheGroup) {
  onebitConfig_t config = LocalConfig();
  const std::string transport = GetParam().transport;
  config.transport = transport.c_str();
  config.connectTimeoutMs = 600;
  ForEachAllocation(
      [&](uint64_t before) {
        std::vector<JoinCall> calls;
        for (int rank = 0; rank < kCaseRanks; ++rank) {
          calls.push_back({.rank = rank, .nranks = kCaseRanks, .config = config});
        }
        const onebitUniqueId id = NewUniqueId();
        const FailingAllocationsOf failing("onebit-control", before, shortage());
        std::vector<UniqueComm> made;
        for (Joined& joined : JoinRanks(id, calls)) {
          EXPECT_LT(joined.outcome.seconds, kSoonSeconds) << before;
          made.push_back(std::move(joined.comm));
        }
        for (const Outcome& outcome :
             CallAll(made, [](onebitComm_t comm) { return onebitBarrier(comm, nullptr); })) {
          EXPECT_LT(outcome.seconds, kSoonSeconds) << before << ": " << outcome.text;
        }
        made.clear();
        return failing.has_struck();
      },
      kStride);
  config.connectTimeoutMs = 20'000;
  JoinGroup(kCaseRanks, config);
}

TEST_P(HeapOfARankTest, CompressorCreationFailsAndWorksNext) {
  const FaultGroup group = NewGroup();
  ForEachAllocation([&](uint64_t before) {
    onebitCompressor_t compressor = nullptr;
    const auto create = [&] {
      return onebitCompressorCreate(&compressor, group.comm(kRank), 4096, onebitFloat32, nullptr);
    };
    const Failing failing = Without(before, shortage(), create);
    if (failing.has_struck) {
      EXPECT_EQ(failing.result, onebitOutOfMemory) << before << ": " << failing.text;
      EXPECT_EQ(compressor, nullptr);
      EXPECT_EQ(create(), onebitSuccess) << before;
    }
    onebitCompressorDestroy(compressor);
    return failing.has_struck;
  });
}

// Either the call did not begin on the rank without memory and can be made again while the others
// wait, or it is an error on all ranks that names the rank.
TEST_P(HeapOfARankTest, FirstCallCanBeRepeatedOrFailsOnAllRanks) {
  for (const bool is_dense : {false, true}) {  // compressors have allocated all before
    ForEachAllocation([&](uint64_t before) {
      const FaultGroup group = NewGroup();
      auto values = Inputs(0);
      const auto call = [&](int rank) {
        std::vector<float>& mine = values[static_cast<size_t>(rank)];
        return onebitAllReduce(mine.data(), mine.data(), mine.size(), onebitFloat32, onebitAvg,
                               is_dense ? nullptr : group.compressor(rank), group.comm(rank),
                               nullptr);
      };
      const Outcomes outcomes = CallWithout(before, call, [&] {
        onebitResult_t state = onebitSuccess;
        onebitCommGetAsyncError(group.comm(kRank), &state);
        return state == onebitSuccess ? call(kRank) : state;
      });
      for (int rank = 0; rank < kCaseRanks; ++rank) {
        const Outcome& outcome = outcomes.all[static_cast<size_t>(rank)];
        EXPECT_LT(outcome.seconds, kSoonSeconds) << before << ": " << outcome.text;
        if (outcome.result == onebitSuccess) continue;
        EXPECT_THAT(outcome.text, AnyOf(HasSubstr("rank " + std::to_string(kRank)),
                                        HasSubstr("out of memory"), HasSubstr("no memory")))
            << before;
      }
      ExpectWholeResiduals(group);
      return outcomes.failing.has_struck;
    });
  }
}

// Whoever has no memory to tell of another error.
TEST_P(HeapOfARankTest, ErrorsAreErrorsWithoutMemory) {
  ForEachAllocation([&](uint64_t before) {
    FaultGroup group = NewGroup();
    for (const CallsOfRank& calls : group.Call(1)) EXPECT_EQ(calls.result, onebitSuccess);
    // The rank without memory is the one that receives the damaged message.
    group.faults().Arm(
        {.kind = Fault::Kind::kFlipHeader, .rank = 0, .message = 0, .bit = 200, .exchange = 1});
    auto values = Inputs(1);
    const Outcomes outcomes = CallWithout(before, [&](int rank) {
      std::vector<float>& mine = values[static_cast<size_t>(rank)];
      return onebitAllReduce(mine.data(), mine.data(), mine.size(), onebitFloat32, onebitAvg,
                             group.compressor(rank), group.comm(rank), nullptr);
    });
    for (int rank = 0; rank < kCaseRanks; ++rank) {
      const Outcome& outcome = outcomes.all[static_cast<size_t>(rank)];
      EXPECT_NE(outcome.result, onebitSuccess);
      EXPECT_LT(outcome.seconds, kSoonSeconds) << before << ": " << outcome.text;
      if (rank == kRank) continue;
      EXPECT_THAT(outcome.text, HasSubstr("rank " + std::to_string(kRank))) << before;
    }
    ExpectWholeResiduals(group);
    return outcomes.failing.has_struck;
  });
}

// In the steady state nothing is allocated, so nothing can fail.
TEST_P(HeapOfARankTest, LaterCallsNeedNone) {
  FaultGroup group = NewGroup();
  for (const CallsOfRank& calls : group.Call(1)) EXPECT_EQ(calls.result, onebitSuccess);
  auto values = Inputs(1);
  const Outcomes outcomes = CallWithout(0, [&](int rank) {
    std::vector<float>& mine = values[static_cast<size_t>(rank)];
    return onebitAllReduce(mine.data(), mine.data(), mine.size(), onebitFloat32, onebitAvg,
                           group.compressor(rank), group.comm(rank), nullptr);
  });
  EXPECT_FALSE(outcomes.failing.has_struck);
  for (const Outcome& outcome : outcomes.all) EXPECT_EQ(outcome.result, onebitSuccess);
  ExpectWholeResiduals(group);
}

std::vector<RanksParameter> RanksParameters() {
  std::vector<RanksParameter> parameters;
  for (const Shortage shortage : {Shortage::kOnce, Shortage::kFromThenOn}) {
    parameters.push_back({"local", shortage});
#if defined(FAULTS_HAVE_UCX)
    parameters.push_back({"ucx", shortage});
#endif
  }
  return parameters;
}

INSTANTIATE_TEST_SUITE_P(Shortages, HeapOfARankTest, ::testing::ValuesIn(RanksParameters()),
                         [](const auto& info) {
                           return info.param.transport +
                                  (info.param.shortage == Shortage::kOnce ? "Once" : "FromThenOn");
                         });

}  // namespace
}  // namespace onebit::testing

int main(int argc, char** argv) {
  setenv("ONEBIT_PLUGIN_PATH", FAULTY_PLUGINS, 1);
  setenv("ONEBIT_DEBUG", "NONE", 0);  // the errors are looked at, not the log
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
