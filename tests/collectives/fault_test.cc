// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Damaged, lost, repeated and late messages: the receiver names the cause, the others hear of it,
// nobody hangs, and every rank holds either all or nothing of the call's residuals.
#include <array>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/collectives/fault_run.h"
#include "tests/support/deadlines.h"

namespace onebit::testing {
namespace {

const FaultSubject kDense{.name = "Dense", .mode = std::nullopt};
const FaultSubject kDenseLarge{
    .name = "DenseLarge", .mode = std::nullopt, .count = 20'000, .segment_elements = 4000};
const FaultSubject kSign{.name = "Sign", .mode = onebitModePlain};
const FaultSubject kEf{.name = "Ef", .mode = onebitModeEf};
const FaultSubject kEfOneExchange{
    .name = "EfOneExchange", .mode = onebitModeEf, .one_exchange_elements = 1'000'000};
// No segment is empty.
const FaultSubject kEfSegments{
    .name = "EfSegments", .mode = onebitModeEf, .count = 3072, .segment_elements = 64};
// Packets beyond the eager limit of `local`.
const FaultSubject kEfLarge{.name = "EfLarge", .mode = onebitModeEf, .count = 100'000};
const FaultSubject kEfGroup{.name = "EfGroup", .mode = onebitModeEf, .group_calls = 2};
const FaultSubject kEfOneExchangeGroup{.name = "EfOneExchangeGroup",
                                       .mode = onebitModeEf,
                                       .one_exchange_elements = 1'000'000,
                                       .group_calls = 2};
// The tensor is alone, and ends before the others begin.
const FaultSubject kEfBatches{
    .name = "EfBatches", .mode = onebitModeEf, .group_calls = 2, .group_elements = 64};
const FaultSubject kEfNotTransactional{
    .name = "EfNotTransactional", .mode = onebitModeEf, .is_transactional = false};
const FaultSubject kScatterDense{
    .name = "ReduceScatterDense", .mode = {}, .collective = onebitCollectiveReduceScatter};
const FaultSubject kScatterEf{
    .name = "ReduceScatterEf", .mode = onebitModeEf, .collective = onebitCollectiveReduceScatter};
const FaultSubject kScatterEfSegments{.name = "ReduceScatterEfSegments",
                                      .mode = onebitModeEf,
                                      .count = 1000,
                                      .segment_elements = 256,
                                      .collective = onebitCollectiveReduceScatter};
const FaultSubject kScatterEfGroup{.name = "ReduceScatterEfGroup",
                                   .mode = onebitModeEf,
                                   .group_calls = 2,
                                   .collective = onebitCollectiveReduceScatter};
const FaultSubject kGatherEfGroup{.name = "AllGatherEfGroup",
                                  .mode = onebitModeEf,
                                  .group_calls = 2,
                                  .collective = onebitCollectiveAllGather};
const FaultSubject kGatherEf{
    .name = "AllGatherEf", .mode = onebitModeEf, .collective = onebitCollectiveAllGather};
const FaultSubject kGatherSign{
    .name = "AllGatherSign", .mode = onebitModePlain, .collective = onebitCollectiveAllGather};
const FaultSubject kToAllEf{
    .name = "AllToAllEf", .mode = onebitModeEf, .collective = onebitCollectiveAllToAll};
const FaultSubject kToAllvSign{
    .name = "AllToAllvSign", .mode = onebitModePlain, .collective = onebitCollectiveAllToAllv};

const FaultSubject kTopkOneHop{
    .name = "TopkOneHop", .mode = onebitModeEf, .codec = onebitCodecTopk, .hops = 1};
const FaultSubject kTopkOneHopSegments{.name = "TopkOneHopSegments",
                                       .mode = onebitModeEf,
                                       .count = 3072,
                                       .segment_elements = 1000,
                                       .codec = onebitCodecTopk,
                                       .hops = 1};
const FaultSubject kTopkTwoHops{.name = "TopkTwoHops",
                                .mode = onebitModeEf,
                                .count = 1500,
                                .codec = onebitCodecTopk,
                                .hops = 2};
const FaultSubject kRandkTwoHopsGroup{.name = "RandkTwoHopsGroup",
                                      .mode = onebitModeEf,
                                      .group_calls = 2,
                                      .codec = onebitCodecRandk,
                                      .hops = 2};
const FaultSubject kRandkPlain{
    .name = "RandkPlain", .mode = onebitModePlain, .codec = onebitCodecRandk, .hops = 1};

const FaultSubject kDenseTwoLevels{.name = "DenseTwoLevels",
                                   .mode = std::nullopt,
                                   .count = 20'000,
                                   .segment_elements = 16'000,
                                   .has_two_levels = true};
const FaultSubject kEfTwoLevels{
    .name = "EfTwoLevels", .mode = onebitModeEf, .has_two_levels = true};
const FaultSubject kFp4TwoLevels{.name = "Fp4TwoLevels",
                                 .mode = onebitModeEf,
                                 .count = 5000,
                                 .segment_elements = 960,
                                 .codec = onebitCodecFp4,
                                 .has_two_levels = true};

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
std::string RankText(int rank) { return "rank " + std::to_string(rank); }

class FaultTest : public ::testing::TestWithParam<FaultSubject> {
 protected:
  const FaultSubject& subject() const { return GetParam(); }

  // Messages of a rank in one call.
  uint64_t MessageCount(int rank) const {
    FaultRun run(subject());
    const uint64_t before = StatsOf(run.group().comm(rank)).messages_sent;
    run.Call();
    return StatsOf(run.group().comm(rank)).messages_sent - before;
  }

  // Some of a rank's messages in a call: all if there are few, else the first, last and some
  // between.
  std::vector<uint64_t> SomeMessages(int rank) const { return Some(MessageCount(rank)); }
  std::vector<uint64_t> SomePayloads(int rank) const {
    return Some(MessageCount(rank) - subject().verdicts());
  }
  static std::vector<uint64_t> Some(uint64_t count) {
    std::vector<uint64_t> messages;
    for (uint64_t k = 0; k < count; k += 1 + count / 8) messages.push_back(k);
    if (messages.back() != count - 1) messages.push_back(count - 1);
    return messages;
  }

  // Strikes the second call and expects `result` with `text` at the receiver.
  void ExpectReceiverNames(const Fault& fault, onebitResult_t result, const std::string& text) {
    SCOPED_TRACE(::testing::Message() << fault.kind << " " << fault.bit << ", message "
                                      << fault.message << " of rank " << fault.rank);
    FaultRun run(subject());
    run.Arm(fault);
    const std::vector<Outcome> outcomes = run.Call();
    ASSERT_TRUE(run.transport().has_struck());
    const int receiver = run.transport().struck_peer();
    const Outcome& seen = outcomes[static_cast<size_t>(receiver)];
    EXPECT_EQ(seen.result, result) << seen.text;
    EXPECT_TRUE(Contains(seen.text, text)) << seen.text;
    EXPECT_TRUE(Contains(seen.text, RankText(fault.rank))) << seen.text;
    for (int rank = 0; rank < kFaultRanks; ++rank) {
      const Outcome& outcome = outcomes[static_cast<size_t>(rank)];
      if (rank == receiver || outcome.result == onebitSuccess) continue;
      EXPECT_EQ(outcome.result, result == onebitMismatch ? onebitMismatch : onebitRemoteError);
      const char* relation = result == onebitMismatch ? " sees it: " : " failed first: ";
      EXPECT_TRUE(Contains(outcome.text, RankText(receiver) + relation + seen.text))
          << outcome.text;
    }
    ExpectOldOrNewGeneration(run, outcomes);
    ExpectRefusals(run, outcomes);
  }

  // A rank that succeeded has the new generation; one that failed the old one, complete.
  void ExpectOldOrNewGeneration(const FaultRun& run, const std::vector<Outcome>& outcomes) {
    for (int rank = 0; rank < kFaultRanks && subject().mode; ++rank) {
      const bool has_committed = outcomes[static_cast<size_t>(rank)].result == onebitSuccess;
      EXPECT_EQ(run.stats(rank).epoch, has_committed ? 2u : 1u) << RankText(rank);
    }
    ExpectWholeGenerations(run);
  }

  void ExpectWholeGenerations(const FaultRun& run) {
    if (!subject().mode) return;
    if (generations_.empty()) generations_ = GenerationsOf(subject());
    for (int rank = 0; rank < kFaultRanks; ++rank) {
      const auto r = static_cast<size_t>(rank);
      const uint64_t epoch = run.stats(rank).epoch;
      ASSERT_GE(epoch, 1u) << RankText(rank);
      ASSERT_LE(epoch, generations_.size()) << RankText(rank);
      EXPECT_TRUE(run.residuals(rank) == generations_[epoch - 1][r]) << RankText(rank);
      EXPECT_EQ(run.stats(rank).residual_resets, 0u) << RankText(rank);
    }
  }

  // The communicator is out of use on every rank, also where the call had succeeded.
  void ExpectRefusals(FaultRun& run, const std::vector<Outcome>& outcomes) {
    const std::vector<Outcome> refusals = run.Call();
    for (size_t r = 0; r < refusals.size(); ++r) {
      EXPECT_NE(refusals[r].result, onebitSuccess);
      if (outcomes[r].result == onebitSuccess) continue;
      EXPECT_EQ(refusals[r].result, outcomes[r].result);
      EXPECT_TRUE(Contains(refusals[r].text, outcomes[r].text)) << refusals[r].text;
    }
  }

  Generations generations_;
};

TEST_P(FaultTest, FlippedHeaderBitIsCorrupt) {
  for (const uint64_t message : SomeMessages(1)) {
    for (const size_t bit : {size_t{64}, size_t{100 + message * 37 % 412}, size_t{511}}) {
      ExpectReceiverNames({Fault::Kind::kFlipHeader, 1, message, bit}, onebitCorrupt,
                          "fails its check");
      if (HasFailure()) return;
    }
  }
}

TEST_P(FaultTest, OtherVersionIsAMismatch) {
  for (const uint64_t message : SomeMessages(2)) {
    ExpectReceiverNames({Fault::Kind::kSetVersion, 2, message, 9}, onebitMismatch,
                        "packet has version 9, this library reads 1");
    if (HasFailure()) return;
  }
}

// Dense payloads carry no checksum: lower layers and the application's own numbers guard them.
TEST_P(FaultTest, FlippedPayloadBitIsCorrupt) {
  if (!subject().mode) return;
  for (const uint64_t message : SomePayloads(0)) {
    for (const size_t bit : {0, 31, 77, 100'003}) {
      ExpectReceiverNames({Fault::Kind::kFlipPayload, 0, message, bit}, onebitCorrupt,
                          "damaged in transit");
      if (HasFailure()) return;
    }
  }
}

TEST_P(FaultTest, CutPayloadIsCorrupt) {
  for (const uint64_t message : SomePayloads(1)) {
    ExpectReceiverNames({Fault::Kind::kCutPayload, 1, message}, onebitCorrupt, "payload bytes");
    if (HasFailure()) return;
  }
}

// A repeated message is seen when it comes: in this call, or as the first one of the next.
TEST_P(FaultTest, DuplicateIsAnErrorByTheNextCall) {
  for (const uint64_t message : SomeMessages(0)) {
    SCOPED_TRACE(::testing::Message() << "message " << message);
    FaultRun run(subject());
    run.Arm({Fault::Kind::kDuplicate, 0, message});
    // A rank that has all its messages does not wait for the one that fails, and hears of it in the
    // call after, where there is no verdict, or where rank 1 has given its host all it has to give
    // before it looks at what has come.
    const bool may_end_before =
        (subject().mode == onebitModePlain && subject().codec != onebitCodecSign) ||
        subject().has_two_levels;
    const std::vector<Outcome> outcomes = run.Call(may_end_before ? 3 : 2);
    ASSERT_TRUE(run.transport().has_struck());
    for (const Outcome& outcome : outcomes) {
      EXPECT_NE(outcome.result, onebitSuccess);
      EXPECT_NE(outcome.result, onebitTimeout) << outcome.text;
      EXPECT_TRUE(Contains(outcome.text, "twice or unasked") ||
                  Contains(outcome.text, "call number"))
          << outcome.text;
    }
    ExpectWholeGenerations(run);
    if (HasFailure()) return;
  }
}

TEST_P(FaultTest, LostMessageIsATimeoutThatNamesAnEndOfIt) {
  const uint64_t last = MessageCount(1) - 1;
  for (const uint64_t message : {uint64_t{0}, last}) {
    SCOPED_TRACE(::testing::Message() << "message " << message);
    const uint64_t timeout_ms = ShortTimeoutMs();
    FaultRun run(subject(), timeout_ms);
    run.Arm({Fault::Kind::kDrop, 1, message});
    const std::vector<Outcome> outcomes = run.Call();
    ASSERT_TRUE(run.transport().has_struck());
    const int receiver = run.transport().struck_peer();
    int timeouts = 0;
    for (int rank = 0; rank < kFaultRanks; ++rank) {
      const Outcome& outcome = outcomes[static_cast<size_t>(rank)];
      if (outcome.result == onebitSuccess) {
        EXPECT_NE(rank, receiver);
        continue;
      }
      timeouts += outcome.result == onebitTimeout ? 1 : 0;
      EXPECT_TRUE(outcome.result == onebitTimeout || outcome.result == onebitRemoteError);
      EXPECT_GE(NumberAfter(outcome.text, "no progress for ") + kRounding, timeout_ms / 1000.0)
          << outcome.text;
      EXPECT_TRUE(Contains(outcome.text, "waiting for " + RankText(1)) ||
                  Contains(outcome.text, "waiting for " + RankText(receiver)))
          << outcome.text;
    }
    EXPECT_GE(timeouts, 1);
    ExpectOldOrNewGeneration(run, outcomes);
    ExpectRefusals(run, outcomes);
  }
}

TEST_P(FaultTest, LateMessageIsOnlyLate) {
  for (const uint64_t message : {uint64_t{0}, MessageCount(2) - 1}) {
    FaultRun run(subject());
    run.Arm({.kind = Fault::Kind::kDelay, .rank = 2, .message = message, .delay_ms = 150});
    const std::vector<Outcome> outcomes = run.Call();
    ASSERT_TRUE(run.transport().has_struck());
    for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.result, onebitSuccess);
    ExpectOldOrNewGeneration(run, outcomes);
  }
}

TEST_P(FaultTest, RefusedMessageIsTheSendersError) {
  for (const uint64_t message : SomeMessages(1)) {
    FaultRun run(subject());
    run.Arm({Fault::Kind::kRefuse, 1, message});
    const std::vector<Outcome> outcomes = run.Call();
    ASSERT_TRUE(run.transport().has_struck());
    EXPECT_EQ(outcomes[1].result, onebitSystemError);
    EXPECT_TRUE(Contains(outcomes[1].text, "transport faultylocal failed to send to " +
                                               RankText(run.transport().struck_peer())))
        << outcomes[1].text;
    for (const size_t rank : {0, 2}) {
      if (outcomes[rank].result == onebitSuccess) continue;
      EXPECT_EQ(outcomes[rank].result, onebitRemoteError);
      EXPECT_TRUE(Contains(outcomes[rank].text, "rank 1 failed first: " + outcomes[1].text))
          << outcomes[rank].text;
    }
    ExpectOldOrNewGeneration(run, outcomes);
    ExpectRefusals(run, outcomes);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Subjects, FaultTest,
                         ::testing::Values(kDense, kDenseLarge, kSign, kEf, kEfOneExchange,
                                           kEfSegments, kEfLarge, kEfGroup, kEfOneExchangeGroup,
                                           kEfBatches, kScatterDense, kScatterEf,
                                           kScatterEfSegments, kScatterEfGroup, kGatherEf,
                                           kGatherSign, kGatherEfGroup, kToAllEf, kToAllvSign,
                                           kTopkOneHop, kTopkOneHopSegments, kTopkTwoHops,
                                           kRandkTwoHopsGroup, kRandkPlain, kDenseTwoLevels,
                                           kEfTwoLevels, kFp4TwoLevels),
                         [](const auto& info) { return info.param.name; });

// Every bit of a header, once.
class HeaderBitTest : public FaultTest {};

TEST_P(HeaderBitTest, EveryFlippedBitIsSeen) {
  for (size_t bit = 0; bit < 512; ++bit) {
    const bool is_version = bit / 8 == 4;
    const bool is_magic = bit / 8 < 4;
    ExpectReceiverNames({Fault::Kind::kFlipHeader, 1, 2, bit},
                        is_version ? onebitMismatch : onebitCorrupt,
                        is_version ? "packet has version"
                        : is_magic ? "not a onebit message"
                                   : "fails its check");
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Subjects, HeaderBitTest, ::testing::Values(kEf),
                         [](const auto& info) { return info.param.name; });

// Without a second generation a failed call costs the residuals, which is counted. A rank that was
// through has the new ones, one that had not begun the old ones.
TEST(NotTransactionalFaultTest, FailedCallResetsResidualsAndCountsIt) {
  const Generations generations = GenerationsOf(kEfNotTransactional);
  for (uint64_t message = 0; message < 4; ++message) {
    FaultRun run(kEfNotTransactional);
    run.Arm({Fault::Kind::kFlipPayload, 0, message, 5});
    const std::vector<Outcome> outcomes = run.Call();
    for (int rank = 0; rank < kFaultRanks; ++rank) {
      const auto r = static_cast<size_t>(rank);
      const Residuals residuals = run.residuals(rank);
      const Residuals zero{std::vector<std::byte>(residuals.worker.size()),
                           std::vector<std::byte>(residuals.server.size())};
      const bool has_committed = outcomes[r].result == onebitSuccess;
      const uint64_t resets = run.stats(rank).residual_resets;
      EXPECT_LE(resets, has_committed ? 0u : 1u);
      EXPECT_TRUE(residuals == (has_committed ? generations[1][r]
                                : resets == 1 ? zero
                                              : generations[0][r]));
      if (rank == run.transport().struck_peer()) {
        EXPECT_EQ(resets, 1u);
      }
    }
  }
}

// Errors leave nothing behind in the transport: its end finds no open endpoint (FaultyTransport
// checks that), and the process can go on with new groups.
TEST(FaultAfterlifeTest, NewGroupsWorkAfterFailedOnes) {
  FaultyTransport transport;
  for (int round = 0; round < 10; ++round) {
    CommGroup group(3, kPatient, &transport.transport());
    transport.Arm({Fault::Kind::kFlipHeader, round % 3, 0, 200});
    const auto barrier = [&](int rank) { return onebitBarrier(group.comm(rank), nullptr); };
    const std::vector<Outcome> failures = group.Call(barrier);
    EXPECT_EQ(failures[static_cast<size_t>(transport.struck_peer())].result, onebitCorrupt);
    transport.Arm({});
    CommGroup next(3, kPatient, &transport.transport());
    const std::vector<Outcome> outcomes =
        next.Call([&](int rank) { return onebitBarrier(next.comm(rank), nullptr); });
    for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.result, onebitSuccess);
  }
}

}  // namespace
}  // namespace onebit::testing
