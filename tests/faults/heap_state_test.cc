// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Heap memory runs out while a state is saved or loaded: an error that says so on the rank, peers
// that do not wait, and unchanged residuals.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/faults/fault_group.h"
#include "tests/faults/heap_case.h"

namespace onebit::testing {
namespace {

using ::testing::HasSubstr;

using Blob = std::vector<std::byte>;

constexpr CallKind kEf{.name = "ef", .mode = onebitModeEf};
constexpr uint64_t kPatientMs = 20'000;

class HeapStateTest : public ::testing::TestWithParam<HeapParameter> {
 protected:
  // A group that has made one call.
  static FaultGroup NewGroup() {
    FaultGroup group(GetParam().transport, kEf, CountOf(kEf, MessageSize::kEager), kPatientMs);
    for (const CallsOfRank& calls : group.Call(1)) EXPECT_EQ(calls.result, onebitSuccess);
    return group;
  }
  static Blob RoomFor(const FaultGroup& group, onebitStateKind_t kind) {
    size_t bytes = 0;
    EXPECT_EQ(onebitCompressorExport(group.compressor(kStarvedRank), kind, nullptr, &bytes),
              onebitSuccess);
    return Blob(bytes);
  }
};

// An error on the rank, and on the others an error that names it if they need one; nobody waits for
// it. If nothing was sent before the error, the communicator stays usable.
TEST_P(HeapStateTest, GlobalExportFailsAtOnce) {
  uint64_t repeated = 0;
  const auto body = [&](uint64_t before) {
    const FaultGroup group = NewGroup();
    std::vector<Blob> states(kCaseRanks, RoomFor(group, onebitStateGlobal));
    const auto call = [&](int rank) {
      Blob& state = states[static_cast<size_t>(rank)];
      size_t bytes = state.size();
      return onebitCompressorExport(group.compressor(rank), onebitStateGlobal, state.data(),
                                    &bytes);
    };
    const StarvedGroupCall calls = CallAllWithout(before, GetParam().shortage, call);
    EXPECT_EQ(calls.starved.result == onebitSuccess, !calls.starved.has_struck) << before;
    bool are_comms_in_order = calls.starved.has_struck;
    for (int rank = 0; rank < kCaseRanks; ++rank) {
      const Outcome& outcome = calls.all[static_cast<size_t>(rank)];
      EXPECT_FALSE(HasRunIntoDeadline(outcome)) << before << ": " << outcome.text;
      onebitResult_t state = onebitSuccess;
      onebitCommGetAsyncError(group.comm(rank), &state);
      are_comms_in_order &= state == onebitSuccess && outcome.result != onebitSuccess;
      if (outcome.result == onebitSuccess || rank == kStarvedRank) continue;
      EXPECT_THAT(outcome.text, HasSubstr("rank " + std::to_string(kStarvedRank))) << before;
    }
    if (are_comms_in_order) {
      ++repeated;
      const StarvedGroupCall again = CallAllWithout(UINT64_MAX, GetParam().shortage, call);
      for (const Outcome& outcome : again.all) {
        EXPECT_EQ(outcome.result, onebitSuccess) << before << ": " << outcome.text;
      }
      EXPECT_EQ(states[0], states[kStarvedRank]) << before;
    }
    const auto& expected = ReferenceOf(kEf, MessageSize::kEager).residuals[1];
    for (int rank = 0; rank < kCaseRanks; ++rank) {
      EXPECT_TRUE(ResidualsOf(group.compressor(rank)) == expected[static_cast<size_t>(rank)]);
    }
    return calls.starved.has_struck;
  };
  EXPECT_GT(ForEachAllocation(body), 0u);
  EXPECT_GT(repeated, 0u);
}

TEST_P(HeapStateTest, StateOfOneRankNeedsNone) {
  const FaultGroup group = NewGroup();
  Blob state = RoomFor(group, onebitStateRank);
  size_t bytes = state.size();
  const StarvedCall starved = CallWithout(0, GetParam().shortage, [&] {
    return onebitCompressorExport(group.compressor(kStarvedRank), onebitStateRank, state.data(),
                                  &bytes);
  });
  EXPECT_EQ(starved.result, onebitSuccess);
  EXPECT_FALSE(starved.has_struck);
  const StarvedCall load = CallWithout(0, GetParam().shortage, [&] {
    return onebitCompressorImport(group.compressor(kStarvedRank), state.data(), bytes);
  });
  EXPECT_EQ(load.result, onebitSuccess);
  EXPECT_FALSE(load.has_struck);
}

// A rank without the memory to report anything makes the others wait for the time-out, because the
// control channel has no other way to reach them. So only temporary shortages are tested.
std::vector<HeapParameter> PassingShortages() {
  std::vector<HeapParameter> parameters = HeapParameters();
  std::erase_if(parameters, [](const auto& one) { return one.shortage != Shortage::kOnce; });
  return parameters;
}
INSTANTIATE_TEST_SUITE_P(Shortages, HeapStateTest, ::testing::ValuesIn(PassingShortages()),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace onebit::testing
