// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Heap memory runs out while a communicator is in use: an error that says so, peers that name the
// rank, and no other loss.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/faults/fault_group.h"
#include "tests/faults/heap_case.h"
#include "tests/support/faulty_transport.h"
#include "tests/support/sanitizers.h"

namespace onebit::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr CallKind kEf{.name = "ef", .mode = onebitModeEf};
constexpr uint64_t kPatientMs = 20'000;

class HeapTest : public ::testing::TestWithParam<HeapParameter> {
 protected:
  static FaultGroup NewGroup() {
    return FaultGroup(GetParam().transport, kEf, CountOf(kEf, MessageSize::kEager), kPatientMs);
  }

  // Makes the next call on every rank, in place.
  static StarvedGroupCall AllReduceWithout(uint64_t before, const FaultGroup& group, int number,
                                           bool is_dense, bool is_repeated = false) {
    std::vector<std::vector<float>> values;
    for (int rank = 0; rank < kCaseRanks; ++rank) {
      values.push_back(FaultGroup::InputOf(rank, number, group.count()));
    }
    const auto call = [&](int rank) {
      std::vector<float>& mine = values[static_cast<size_t>(rank)];
      return onebitAllReduce(mine.data(), mine.data(), mine.size(), onebitFloat32, onebitAvg,
                             is_dense ? nullptr : group.compressor(rank), group.comm(rank),
                             nullptr);
    };
    const auto repeat = [&] {
      onebitResult_t state = onebitSuccess;
      onebitCommGetAsyncError(group.comm(kStarvedRank), &state);
      return state == onebitSuccess && is_repeated ? call(kStarvedRank) : state;
    };
    return CallAllWithout(before, GetParam().shortage, call, repeat);
  }

  // Each rank has the residuals of its last success.
  static void ExpectWholeResiduals(const FaultGroup& group) {
    const auto& expected = ReferenceOf(kEf, MessageSize::kEager).residuals;
    for (int rank = 0; rank < kCaseRanks; ++rank) {
      const uint64_t epoch = group.epoch(rank);
      ASSERT_LT(epoch, expected.size());
      EXPECT_TRUE(ResidualsOf(group.compressor(rank)) == expected[epoch][static_cast<size_t>(rank)])
          << "rank " << rank << ", epoch " << epoch;
    }
  }
};

TEST_P(HeapTest, CompressorCreationFailsAndWorksNext) {
  const FaultGroup group = NewGroup();
  const auto sweep = [&] {
    return ForEachAllocation([&](uint64_t before) {
      onebitCompressor_t compressor = nullptr;
      const auto create = [&] {
        return onebitCompressorCreate(&compressor, group.comm(kStarvedRank), 4096, onebitFloat32,
                                      nullptr);
      };
      const StarvedCall starved = CallWithout(before, GetParam().shortage, create);
      if (starved.has_struck) {
        EXPECT_EQ(starved.result, onebitOutOfMemory) << before << ": " << starved.text;
        EXPECT_EQ(compressor, nullptr);
        EXPECT_EQ(create(), onebitSuccess) << before;
      }
      onebitCompressorDestroy(compressor);
      return starved.has_struck;
    });
  };
  EXPECT_GT(sweep(), 0u);
  const int64_t live = LiveAllocations();
  EXPECT_GT(sweep(), 0u);
  EXPECT_EQ(LiveAllocations(), live);
}

// Either the call has not begun on the rank without memory, and can be repeated while the others
// wait, or it is an error on all ranks that names the rank. Compressors have allocated their memory
// before.
TEST_P(HeapTest, FirstCallCanBeRepeatedOrFailsOnAllRanks) {
  for (const bool is_dense : {false, true}) {
    const auto body = [&](uint64_t before) {
      const FaultGroup group = NewGroup();
      const StarvedGroupCall calls = AllReduceWithout(before, group, 0, is_dense, true);
      for (const Outcome& outcome : calls.all) {
        EXPECT_FALSE(HasRunIntoDeadline(outcome)) << before << ": " << outcome.text;
        if (outcome.result == onebitSuccess) continue;
        EXPECT_THAT(outcome.text, AnyOf(HasSubstr("rank " + std::to_string(kStarvedRank)),
                                        HasSubstr("out of memory"), HasSubstr("no memory")))
            << before;
      }
      ExpectWholeResiduals(group);
      return calls.starved.has_struck;
    };
    EXPECT_EQ(ForEachAllocation(body) > 0, is_dense);
  }
}

// The rank has no memory to report another error.
TEST_P(HeapTest, ErrorsAreErrorsWithoutMemory) {
  const auto body = [&](uint64_t before) {
    FaultGroup group = NewGroup();
    for (const CallsOfRank& calls : group.Call(1)) EXPECT_EQ(calls.result, onebitSuccess);
    // The rank without memory receives the damaged message.
    group.faults().Arm(
        {.kind = Fault::Kind::kFlipHeader, .rank = 0, .message = 0, .bit = 200, .exchange = 1});
    const StarvedGroupCall calls = AllReduceWithout(before, group, 1, false);
    for (int rank = 0; rank < kCaseRanks; ++rank) {
      const Outcome& outcome = calls.all[static_cast<size_t>(rank)];
      EXPECT_NE(outcome.result, onebitSuccess);
      EXPECT_FALSE(HasRunIntoDeadline(outcome)) << before << ": " << outcome.text;
      if (rank == kStarvedRank) continue;
      EXPECT_THAT(outcome.text, HasSubstr("rank " + std::to_string(kStarvedRank))) << before;
    }
    ExpectWholeResiduals(group);
    return calls.starved.has_struck;
  };
  EXPECT_GT(ForEachAllocation(body), 0u);
}

// In the steady state nothing is allocated, so nothing can fail.
TEST_P(HeapTest, LaterCallsNeedNone) {
  FaultGroup group = NewGroup();
  for (const CallsOfRank& calls : group.Call(1)) EXPECT_EQ(calls.result, onebitSuccess);
  const StarvedGroupCall calls = AllReduceWithout(0, group, 1, false);
  EXPECT_FALSE(calls.starved.has_struck);
  for (const Outcome& outcome : calls.all) EXPECT_EQ(outcome.result, onebitSuccess);
  ExpectWholeResiduals(group);
}

INSTANTIATE_TEST_SUITE_P(Shortages, HeapTest, ::testing::ValuesIn(HeapParameters()),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace onebit::testing

#if ONEBIT_HAS_SANITIZER
// UCX 1.13 leaks parts of a shared-memory endpoint that it cannot create because the peer has
// ended.
extern "C" [[gnu::visibility("default")]] const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libuct.so\n"; }
#endif
