// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Records of calls: the differences found, the ones tolerated, and the bound on memory.
#include "comm/record_comparer.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "comm/control_message.h"
#include "comm/local_control.h"
#include "comm/record_ring.h"

namespace onebit {
namespace {

CallRecord RecordOf(uint64_t sequence, uint32_t digest = 7, std::string text = "allreduce") {
  return {.sequence = sequence, .digest = digest, .text = std::move(text)};
}

std::vector<CallRecord> RecordsOf(uint64_t first, size_t count) {
  std::vector<CallRecord> records;
  for (size_t i = 0; i < count; ++i) records.push_back(RecordOf(first + i));
  return records;
}

std::string Added(RecordComparer& records, uint32_t rank, const RecordBatch& calls) {
  const auto failure = records.Add(rank, calls);
  if (!failure) return "equal";
  EXPECT_EQ(failure->rank, static_cast<int>(rank));
  EXPECT_TRUE(failure->is_of_group);
  EXPECT_FALSE(failure->is_loss);
  return Format("{} {}", static_cast<int>(failure->cause.code()), failure->cause.text());
}

TEST(RecordComparerTest, EqualCallsAreEqualInWhateverOrderRanksSendThem) {
  RecordComparer records(3);
  EXPECT_EQ(Added(records, 2, {0, RecordsOf(0, 5)}), "equal");
  EXPECT_EQ(Added(records, 0, {0, RecordsOf(0, 2)}), "equal");
  EXPECT_EQ(Added(records, 1, {0, RecordsOf(0, 4)}), "equal");
  EXPECT_EQ(records.unmatched(), 3u) << "calls 2 to 4, for which rank 0 has sent no records";
  EXPECT_EQ(Added(records, 0, {0, RecordsOf(2, 3)}), "equal");
  EXPECT_EQ(records.unmatched(), 1u);
  EXPECT_EQ(Added(records, 1, {0, RecordsOf(4, 1)}), "equal");
  EXPECT_EQ(records.unmatched(), 0u);
  EXPECT_EQ(records.not_compared(), 0u);
}

TEST(RecordComparerTest, ADifferenceNamesBothRanksAndBothCalls) {
  RecordComparer records(3);
  EXPECT_EQ(
      Added(records, 2, {0, {RecordOf(0), RecordOf(1, 8, "allreduce 1 of 1024 float32, avg")}}),
      "equal");
  EXPECT_EQ(Added(records, 0, {0, {RecordOf(0), RecordOf(1, 9, "broadcast 1 of 8 float32")}}),
            "100 the ranks' calls differ: call 1 is allreduce 1 of 1024 float32, avg on rank 2 and "
            "broadcast 1 of 8 float32 on rank 0");
}

TEST(RecordComparerTest, DigestsThatDifferUnderOneTextAreADifference) {
  RecordComparer records(2);
  EXPECT_EQ(Added(records, 0, {0, {RecordOf(0, 0x17)}}), "equal");
  EXPECT_EQ(Added(records, 1, {0, {RecordOf(0, 0x18)}}),
            "100 the ranks' calls differ: call 0 is allreduce on ranks 0 and 1, but with different "
            "settings (digests 00000017 and 00000018)");
}

TEST(RecordComparerTest, TextsAloneAreNoDifference) {
  RecordComparer records(2);
  EXPECT_EQ(Added(records, 0, {0, {RecordOf(0, 1, "a")}}), "equal");
  EXPECT_EQ(Added(records, 1, {0, {RecordOf(0, 1, "b")}}), "equal");
}

TEST(RecordComparerTest, LongTextsAreCut) {
  RecordComparer records(2);
  EXPECT_EQ(Added(records, 0, {0, {RecordOf(0, 1, std::string(5000, 'x'))}}), "equal");
  const std::string difference = Added(records, 1, {0, {RecordOf(0, 2, std::string(5000, 'y'))}});
  EXPECT_NE(difference.find(std::string(kMaxCallTextBytes, 'x') + " on rank 0 and " +
                            std::string(kMaxCallTextBytes, 'y') + " on rank 1"),
            std::string::npos)
      << difference;
}

TEST(RecordComparerTest, GapsRepeatsAndNonsenseAreRefused) {
  const auto added_after_two = [](uint64_t skipped, uint64_t sequence) {
    RecordComparer records(2);
    EXPECT_EQ(Added(records, 1, {0, RecordsOf(0, 2)}), "equal");
    return Added(records, 1, {skipped, {RecordOf(sequence)}});
  };
  EXPECT_EQ(added_after_two(0, 3),
            "101 rank 1 reports call 3 after 0 unreported ones when call 2 was due");
  EXPECT_EQ(added_after_two(0, 1),
            "101 rank 1 reports call 1 after 0 unreported ones when call 2 was due");
  EXPECT_EQ(added_after_two(5, 8),
            "101 rank 1 reports call 8 after 5 unreported ones when call 2 was due");
  EXPECT_EQ(added_after_two(UINT64_MAX, 1).substr(0, 3), "101");
  EXPECT_EQ(added_after_two(UINT64_MAX - 2, UINT64_MAX).substr(0, 3), "101");
  EXPECT_EQ(added_after_two(UINT64_MAX - 3, UINT64_MAX - 1), "equal");
}

TEST(RecordComparerTest, AGapWithinAMessageIsRefused) {
  RecordComparer records(2);
  EXPECT_EQ(Added(records, 0, {0, {RecordOf(0), RecordOf(2)}}).substr(0, 3), "101");
}

TEST(RecordComparerTest, SkippedCallsAreCountedAndWhatFollowsIsCompared) {
  RecordComparer records(2);
  EXPECT_EQ(Added(records, 0, {0, RecordsOf(0, 10)}), "equal");
  EXPECT_EQ(Added(records, 1, {6, {RecordOf(6)}}), "equal");
  EXPECT_EQ(records.unmatched(), 3u);
  EXPECT_EQ(records.not_compared(), 6u);
  EXPECT_EQ(Added(records, 1, {1, {RecordOf(8, 99, "other")}}).substr(0, 3), "100");
}

TEST(RecordComparerTest, ARankThatIsFarAheadTakesNoMoreMemory) {
  constexpr uint64_t kMost = RecordComparer::kMostUnmatched;
  RecordComparer records(2);
  EXPECT_EQ(Added(records, 0, {0, RecordsOf(0, 3 * kMost)}), "equal");
  EXPECT_EQ(records.unmatched(), kMost);
  EXPECT_EQ(records.not_compared(), 2 * kMost);
  // The other rank catches up: the first calls are compared, dropped ones are not.
  std::vector<CallRecord> calls = RecordsOf(0, 3 * kMost);
  calls[2 * kMost].digest = 99;
  EXPECT_EQ(Added(records, 1, {0, calls}), "equal");
  EXPECT_EQ(records.unmatched(), 0u);
  // From there on all calls are compared.
  EXPECT_EQ(Added(records, 0, {0, RecordsOf(3 * kMost, 1)}), "equal");
  EXPECT_EQ(Added(records, 1, {0, {RecordOf(3 * kMost, 99)}}).substr(0, 3), "100");
}

TEST(RecordComparerTest, ADifferenceAtTheEdgeOfTheMemoryIsFound) {
  constexpr uint64_t kMost = RecordComparer::kMostUnmatched;
  RecordComparer records(2);
  EXPECT_EQ(Added(records, 0, {0, RecordsOf(0, kMost)}), "equal");
  EXPECT_EQ(Added(records, 1, {0, RecordsOf(0, kMost - 1)}), "equal");
  EXPECT_EQ(Added(records, 1, {0, {RecordOf(kMost - 1, 99)}}).substr(0, 3), "100");
}

CallDescriptor CallOf(uint64_t sequence, uint64_t count = 8) {
  return {.sequence = sequence, .collective = Collective::kAllReduce, .count = count};
}

TEST(RecordRingTest, CallsComeOutInTheirOrderInMessagesThatFit) {
  RecordRing ring;
  EXPECT_TRUE(ring.is_empty());
  EXPECT_FALSE(ring.Take().has_value());
  uint64_t taken = 0;
  size_t messages = 0;
  for (uint64_t round = 1; round <= 3; ++round) {
    for (uint64_t i = taken; i < round * RecordRing::kCapacity; ++i) {
      ASSERT_TRUE(ring.Post(CallOf(i, i % 13)));
    }
    while (const auto message = ring.Take()) {
      ++messages;
      EXPECT_EQ(message->skipped, 0u);
      EXPECT_LE(Encode(RankMessage(*message)).size(), kMostRankMessageBytes);
      for (const CallRecord& record : message->records) {
        ASSERT_EQ(record.sequence, taken);
        EXPECT_EQ(record.digest, DigestOf(CallOf(taken, taken % 13), 0));
        EXPECT_EQ(record.text, Describe(CallOf(taken, taken % 13)));
        ++taken;
      }
    }
    EXPECT_EQ(taken, round * RecordRing::kCapacity);
    EXPECT_TRUE(ring.is_empty());
  }
  EXPECT_LT(messages, taken / 50) << "many travel together";
}

TEST(RecordRingTest, AnOverflowIsReportedOnceAndCountedWhereItLeftAGap) {
  constexpr uint64_t kMost = RecordRing::kCapacity;
  RecordRing ring;
  for (uint64_t i = 0; i < kMost; ++i) EXPECT_TRUE(ring.Post(CallOf(i)));
  EXPECT_FALSE(ring.Post(CallOf(kMost)));
  for (uint64_t i = 1; i < 5; ++i) EXPECT_TRUE(ring.Post(CallOf(kMost + i))) << "reported once";
  RecordComparer records(1);
  const auto first = ring.Take();
  EXPECT_EQ(Added(records, 0, *first), "equal");
  EXPECT_TRUE(ring.Post(CallOf(kMost + 5)));
  EXPECT_TRUE(ring.Post(CallOf(kMost + 6)));
  uint64_t skipped = 0;
  uint64_t taken = first->records.size();
  while (const auto message = ring.Take()) {
    skipped += message->skipped;
    taken += message->records.size();
    EXPECT_EQ(Added(records, 0, *message), "equal");
  }
  EXPECT_EQ(skipped, 5u);
  EXPECT_EQ(taken, kMost + 2);
}

TEST(RecordRingTest, WhatWasClearedDoesNotComeOut) {
  RecordRing ring;
  for (uint64_t i = 0; i < 3; ++i) EXPECT_TRUE(ring.Post(CallOf(i)));
  ring.Clear();
  EXPECT_TRUE(ring.is_empty());
  EXPECT_FALSE(ring.Take().has_value());
}

TEST(RecordRingTest, OneThreadMayFillItWhileAnotherEmptiesIt) {
  constexpr uint64_t kCalls = 20'000;
  RecordRing ring;
  std::atomic<bool> is_filled{false};
  std::jthread filler([&] {
    for (uint64_t i = 0; i < kCalls; ++i) static_cast<void>(ring.Post(CallOf(i, i)));
    is_filled.store(true);
  });
  RecordComparer records(1);
  uint64_t seen = 0;  // taken, or counted as skipped
  bool is_last = false;
  while (!is_last) {
    is_last = is_filled.load();
    while (const auto message = ring.Take()) {
      EXPECT_EQ(Added(records, 0, *message), "equal");
      seen += message->skipped + message->records.size();
      EXPECT_EQ(message->records.back().digest, DigestOf(CallOf(seen - 1, seen - 1), 0));
    }
  }
  EXPECT_GE(seen, RecordRing::kCapacity);
  EXPECT_LE(seen, kCalls);
}

// Counts failures.
class Listener final : public FailureListener {
 public:
  void OnRemoteFailure() override { ++heard; }
  int heard = 0;
};

void Post(Control& control, const CallDescriptor& call) {
  EXPECT_TRUE(control.PostCall(call));
  control.SendCalls();
}

TEST(LocalCallsTest, EveryRankHearsOfADifferenceAlsoTheOneThatShowsIt) {
  Listener listeners[3];
  const auto group = std::make_shared<LocalGroup>(3);
  std::vector<std::unique_ptr<LocalControl>> controls;
  for (int rank = 0; rank < 3; ++rank) {
    controls.push_back(std::make_unique<LocalControl>(group, rank, &listeners[rank]));
    controls.back()->RecordCalls();
  }
  Post(*controls[1], CallOf(0, 1));
  EXPECT_FALSE(controls[1]->first_failure().has_value());
  Post(*controls[2], CallOf(0, 2));
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(listeners[rank].heard, 1);
    const Status status =
        DescribeFailure(*controls[static_cast<size_t>(rank)]->first_failure(), rank);
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_EQ(
        status.text(),
        Format(
            "rank {}: the ranks' calls differ: call 0 is allreduce 0 of 1 float32, sum, dense on "
            "rank 1 and allreduce 0 of 2 float32, sum, dense on rank 2",
            rank));
  }
  // Later calls change nothing.
  Post(*controls[0], CallOf(0, 2));
  Post(*controls[2], CallOf(0, 2));
  EXPECT_EQ(listeners[0].heard, 1);
}

TEST(LocalCallsTest, AnEarlierFailureStays) {
  const auto group = std::make_shared<LocalGroup>(2);
  LocalControl first(group, 0, nullptr);
  LocalControl second(group, 1, nullptr);
  first.RecordCalls();
  second.RecordCalls();
  first.Report({.rank = 0, .is_loss = false, .cause = Error(Code::kCorrupt, "earlier")});
  Post(first, CallOf(0, 1));
  Post(second, CallOf(0, 2));
  EXPECT_EQ(second.first_failure()->cause.text(), "earlier");
}

}  // namespace
}  // namespace onebit
