// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Saved states of compressors: a run with as many ranks continues bit for bit, a run with another
// number of ranks owes as much as before, and ranks that do not fit together report it.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/handles.h"
#include "tests/state/state_job.h"
#include "tests/support/deadlines.h"
#include "tests/support/faulty_transport.h"
#include "tests/support/resealed_state.h"

namespace onebit::testing {
namespace {

using ::testing::HasSubstr;

const StateSubject kSubjects[] = {
    {.name = "Ef"},
    {.name = "Sum", .op = onebitSum},
    {.name = "OneExchange", .is_one_exchange = true},
    {.name = "OneExchangeSum", .op = onebitSum, .is_one_exchange = true},
    {.name = "Bf16Residuals", .residual_type = onebitBfloat16},
    {.name = "Bf16OneExchange", .residual_type = onebitBfloat16, .is_one_exchange = true},
    {.name = "TensorBlock", .block = ONEBIT_BLOCK_TENSOR},
    {.name = "OneGeneration", .is_transactional = false},
    {.name = "WithoutServer", .has_server_residual = false},
    {.name = "FewerElementsThanRanks", .count = 3},
    {.name = "Empty", .count = 0},
    {.name = "Sign", .mode = onebitModePlain},
    {.name = "Fp4", .codec = onebitCodecFp4},
    {.name = "Int2Sum", .op = onebitSum, .codec = onebitCodecInt2},
    {.name = "Uint8mmBf16OneExchange",
     .residual_type = onebitBfloat16,
     .is_one_exchange = true,
     .codec = onebitCodecUint8mm},
    {.name = "Int8Plain", .mode = onebitModePlain, .codec = onebitCodecInt8},
    {.name = "Bf16", .block = ONEBIT_UNDEF_INT, .codec = onebitCodecBf16},
    {.name = "Bf16SumOneExchange",
     .op = onebitSum,
     .is_one_exchange = true,
     .block = ONEBIT_UNDEF_INT,
     .codec = onebitCodecBf16},
    {.name = "TopkOneHop",
     .has_server_residual = false,
     .block = 320,
     .codec = onebitCodecTopk,
     .hops = 1},
    {.name = "TopkTwoHopsSum", .op = onebitSum, .block = 320, .codec = onebitCodecTopk, .hops = 2},
    {.name = "RandkOneHopSum",
     .op = onebitSum,
     .has_server_residual = false,
     .block = 320,
     .codec = onebitCodecRandk,
     .hops = 1},
    {.name = "RandkTwoHopsBf16",
     .residual_type = onebitBfloat16,
     .block = 320,
     .codec = onebitCodecRandk,
     .hops = 2},
    {.name = "RandkPlain",
     .mode = onebitModePlain,
     .block = 320,
     .codec = onebitCodecRandk,
     .hops = 2},
};

std::string NameOfSubject(const ::testing::TestParamInfo<StateSubject>& info) {
  return info.param.name;
}

class RankStateTest : public ::testing::TestWithParam<StateSubject> {};

TEST_P(RankStateTest, RunContinuesBitForBit) {
  StateJob straight(4, GetParam());
  StateJob saved(4, GetParam());
  straight.CallsSucceed(3);
  saved.CallsSucceed(3);
  const std::vector<Blob> states = saved.Export(onebitStateRank);
  StateJob resumed(4, GetParam(), 3);
  resumed.Import(states);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(resumed.residuals(rank), straight.residuals(rank)) << "rank " << rank;
    EXPECT_EQ(StatsOf(resumed.compressor(rank)).epoch, 3u);
  }
  for (int call = 0; call < 3; ++call) {
    straight.CallsSucceed(1);
    resumed.CallsSucceed(1);
    EXPECT_EQ(resumed.output(), straight.output()) << "call " << call;
  }
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(resumed.residuals(rank), straight.residuals(rank)) << "rank " << rank;
  }
}

TEST_P(RankStateTest, UsedCompressorGoesBack) {
  StateJob job(3, GetParam());
  job.CallsSucceed(2);
  const std::vector<Blob> states = job.Export(onebitStateRank);
  std::vector<Residuals> before;
  for (int rank = 0; rank < 3; ++rank) before.push_back(job.residuals(rank));
  for (const int calls : {1, 2}) {  // each generation
    job.CallsSucceed(calls);
    job.Import(states);
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(job.residuals(rank), before[static_cast<size_t>(rank)]);
      EXPECT_EQ(StatsOf(job.compressor(rank)).epoch, 2u);
    }
  }
  EXPECT_EQ(job.Export(onebitStateRank), states);
}

TEST_P(RankStateTest, RevertTakesBackTheLastCall) {
  if (!GetParam().is_transactional) GTEST_SKIP() << "needs two generations";
  const bool has_feedback = GetParam().mode == onebitModeEf;
  StateJob job(3, GetParam());
  StateJob spared(3, GetParam());
  const auto revert = [&] {
    for (int rank = 0; rank < 3; ++rank) {
      ASSERT_EQ(onebitCompressorRevert(job.compressor(rank)), onebitSuccess);
    }
  };
  revert();  // there is no call yet
  for (const int calls : {1, 1, 2}) {
    job.CallsSucceed(calls);
    spared.CallsSucceed(calls);
    const std::vector<Blob> states = job.Export(onebitStateRank);
    job.CallsSucceed(1);
    spared.SkipCall();
    revert();
    if (has_feedback) {
      EXPECT_EQ(job.Export(onebitStateRank), states);
      revert();  // there is no second generation to go back to
      EXPECT_EQ(job.Export(onebitStateRank), states);
    }
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(job.residuals(rank), spared.residuals(rank)) << "rank " << rank;
    }
  }
  job.CallsSucceed(1);
  spared.CallsSucceed(1);
  if (has_feedback) {
    EXPECT_EQ(job.output(), spared.output());
  }
}

INSTANTIATE_TEST_SUITE_P(Subjects, RankStateTest, ::testing::ValuesIn(kSubjects), NameOfSubject);

TEST(RankStateImportTest, OpComesAlong) {
  StateJob job(2, {.name = "Sum", .op = onebitSum});
  job.CallsSucceed(1);
  StateJob resumed(2, {.name = "Avg"});
  resumed.Import(job.Export(onebitStateRank));
  for (const Outcome& outcome : resumed.Call()) {
    EXPECT_EQ(outcome.result, onebitInvalidUsage);
    EXPECT_THAT(outcome.text, HasSubstr("was used with another op"));
  }
}

TEST(RankStateImportTest, AnotherCodecIsRefused) {
  StateJob job(2, {.name = "Fp4", .codec = onebitCodecFp4});
  job.CallsSucceed(1);
  const auto states = job.Export(onebitStateRank);
  StateJob other(2, {.name = "Int8", .codec = onebitCodecInt8});
  const Outcome outcome = ImportHere(other.compressor(0), states[0]);
  EXPECT_EQ(outcome.result, onebitMismatch);
  EXPECT_THAT(outcome.text, HasSubstr("codec fp4 in the state, int8 here"));
}

// What is owed does not depend on how it was lost.
TEST(GlobalStateImportTest, AnotherCodecContinuesWithWhatIsOwed) {
  StateJob signs(3, {.name = "Ef"});
  signs.CallsSucceed(2);
  StateJob codes(2, {.name = "Fp4", .codec = onebitCodecFp4});
  const Blob state = signs.Export(onebitStateGlobal)[0];
  for (int rank = 0; rank < 2; ++rank) {
    const Outcome outcome = ImportHere(codes.compressor(rank), state);
    ASSERT_EQ(outcome.result, onebitSuccess) << outcome.text;
  }
  const std::vector<Pending> before = signs.pending();
  const std::vector<Pending> after = codes.pending();
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_NEAR(after[i].sum, before[i].sum, 1e-5 * (before[i].magnitude + 1)) << i;
  }
  codes.CallsSucceed(1);
}

TEST(GlobalStateImportTest, SparsePacketsContinueWithWhatIsOwed) {
  StateJob codes(3, {.name = "Fp4", .codec = onebitCodecFp4});
  codes.CallsSucceed(2);
  StateJob sparse(2, {.name = "Topk", .block = 320, .codec = onebitCodecTopk, .hops = 2});
  const Blob state = codes.Export(onebitStateGlobal)[0];
  for (int rank = 0; rank < 2; ++rank) {
    const Outcome outcome = ImportHere(sparse.compressor(rank), state);
    ASSERT_EQ(outcome.result, onebitSuccess) << outcome.text;
  }
  const std::vector<Pending> before = codes.pending();
  const std::vector<Pending> after = sparse.pending();
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_NEAR(after[i].sum, before[i].sum, 1e-5 * (before[i].magnitude + 1)) << i;
  }
  sparse.CallsSucceed(1);
}

TEST(RankStateImportTest, AnotherKIsRefused) {
  StateJob job(2, {.name = "Topk", .block = 320, .codec = onebitCodecTopk, .hops = 2});
  job.CallsSucceed(1);
  const auto states = job.Export(onebitStateRank);
  StateJob other(2, {.name = "Topk", .block = 640, .codec = onebitCodecTopk, .hops = 2});
  const Outcome outcome = ImportHere(other.compressor(0), states[0]);
  EXPECT_EQ(outcome.result, onebitMismatch);
  EXPECT_THAT(outcome.text, HasSubstr("k 5 in the state, 10 here"));
}

// The state of an unused compressor resets the op as well.
TEST(RankStateImportTest, UnusedStateIsZero) {
  const StateSubject sum = {.name = "Sum", .op = onebitSum};
  const StateJob fresh(2, sum);
  const auto states = fresh.Export(onebitStateRank);
  StateJob job(2, sum);
  job.CallsSucceed(3);
  job.Import(states);
  EXPECT_EQ(job.residuals(0), fresh.residuals(0));
  EXPECT_FALSE(job.compressor(0)->planned.compressor.op().has_value());
  EXPECT_EQ(job.compressor(0)->planned.compressor.age(), 0);
}

// If replicas of the server residual differed, results would.
TEST(RankStateImportTest, StateOfAnotherStepOnSomeRanksIsReported) {
  StateJob job(3, {.name = "OneExchange", .is_one_exchange = true});
  job.CallsSucceed(2);
  const auto states = job.Export(onebitStateRank);
  job.CallsSucceed(1);
  ASSERT_EQ(ImportHere(job.compressor(0), states[0]).result, onebitSuccess);
  for (const Outcome& outcome : job.Call()) {
    EXPECT_EQ(outcome.result, onebitMismatch) << outcome.text;
  }
}

// The checksums are correct, but the identity announces longer residuals.
TEST(RankStateImportTest, ResidualsOfAnotherLengthAreRefused) {
  const StateJob job(1, {.name = "Ef"});
  const Blob good = job.Export(onebitStateRank)[0];
  for (const SectionTag cut : {SectionTag::kWorker, SectionTag::kServer}) {
    const Outcome outcome = ImportHere(job.compressor(0), Resealed(good, cut, [](Blob* content) {
                                         content->resize(content->size() - sizeof(float));
                                       }));
    EXPECT_EQ(outcome.result, onebitCorrupt);
    EXPECT_THAT(outcome.text, HasSubstr("its residuals do not fit its identity"));
  }
}

// STATE.md gives the offsets.
TEST(RankStateImportTest, ImpossibleFieldsOfAnIdentityAreNamed) {
  const StateJob job(1, {.name = "Ef"});
  const Blob good = job.Export(onebitStateRank)[0];
  const auto import_with = [&](size_t at, int value) {
    return ImportHere(job.compressor(0), Resealed(good, SectionTag::kIdentity, [&](Blob* content) {
                        (*content)[at] = static_cast<std::byte>(value);
                      }));
  };
  struct Wrong {
    size_t at;
    int value;
    const char* text;
  };
  for (const Wrong& wrong :
       {Wrong{32, 1, "the rank in its identity"},  // 1 of 1
        Wrong{43, 128, "the flags in its identity"}, Wrong{40, 99, "the datatype in its identity"},
        Wrong{45, 1, "the hosts in its identity"}, Wrong{47, 1, "the hosts in its identity"}}) {
    const Outcome outcome = import_with(wrong.at, wrong.value);
    EXPECT_EQ(outcome.result, onebitCorrupt) << wrong.at;
    EXPECT_THAT(outcome.text, HasSubstr(wrong.text));
  }
  const Outcome outcome = import_with(41, static_cast<int>(kernels::ScaleRule::kL1));
  EXPECT_EQ(outcome.result, onebitMismatch);
  EXPECT_THAT(outcome.text, HasSubstr("scaleRule l1 in the state, l2 here"));
}

// The state of a rank that rounds at random says which scales it had, which is no difference.
TEST(RankStateImportTest, FormerStochasticRoundingIsAccepted) {
  StateJob job(2, {.name = "Int8s", .mode = onebitModePlain, .codec = onebitCodecInt8Stochastic});
  job.CallsSucceed(2);
  std::vector<Blob> states = job.Export(onebitStateRank);
  for (Blob& state : states) {
    state = Resealed(state, SectionTag::kIdentity, [&](Blob* content) {
      EXPECT_EQ((*content)[41], std::byte{0x70});
      (*content)[41] = std::byte{0x40};
    });
  }
  job.CallsSucceed(1);
  job.Import(states);
  EXPECT_EQ(StatsOf(job.compressor(0)).epoch, 2u);
}

TEST(RankStateImportTest, ResidualsThatAreNotFiniteAreRefused) {
  for (const bool is_server : {false, true}) {
    const StateJob job(1, {.name = "Ef"});
    const Compressor& state = job.compressor(0)->planned.compressor;
    auto* residual = const_cast<std::byte*>(is_server ? state.server_in(7) : state.worker_in(7));
    const float nan = std::nanf("");
    std::memcpy(residual, &nan, sizeof(nan));
    const Blob blob = job.Export(onebitStateRank)[0];
    const Outcome outcome = ImportHere(StateJob(1, {.name = "Ef"}).compressor(0), blob);
    EXPECT_EQ(outcome.result, onebitCorrupt);
    EXPECT_THAT(outcome.text, HasSubstr("is not finite in the compressor's residualType"));
  }
}

TEST(RankStateExportTest, WorksWithoutACommunicator) {
  StateJob job(2, {.name = "Ef"});
  job.CallsSucceed(2);
  const auto before = job.Export(onebitStateRank);
  job.DestroyComms();
  EXPECT_EQ(job.Export(onebitStateRank), before);
  EXPECT_EQ(ImportHere(job.compressor(1), before[1]).result, onebitSuccess);
}

// Residuals that a failed call wrote can be rolled forward to. An import discards them.
TEST(RankStateImportTest, NothingIsLeftOfAFailedCall) {
  FaultyTransport transport;
  StateJob job(2, {.name = "Ef"}, 0, &transport.transport());
  job.CallsSucceed(1);
  const auto states = job.Export(onebitStateRank);
  transport.Arm({.kind = Fault::Kind::kFlipHeader, .rank = 0, .message = 0, .bit = 200});
  job.Call();
  ASSERT_TRUE(job.compressor(1)->planned.compressor.can_roll_forward());
  job.Import(states);
  EXPECT_FALSE(job.compressor(1)->planned.compressor.can_roll_forward());
  EXPECT_EQ(job.Export(onebitStateRank), states);
}

// A change of the number of ranks.
struct Reshard {
  int from;
  int to;
};

class GlobalStateTest : public ::testing::TestWithParam<StateSubject> {
 protected:
  // Saves a run of `from` ranks and loads it into a run of `to` ranks with other settings; expects
  // the pending values to be the same, up to `extra` of rounding.
  static void ExpectConserved(const Reshard& ranks, const StateSubject& target, double extra) {
    SCOPED_TRACE(::testing::Message() << ranks.from << " to " << ranks.to << " " << target.name);
    StateJob job(ranks.from, GetParam());
    job.CallsSucceed(5);
    const std::vector<Blob> states = job.Export(onebitStateGlobal);
    for (const Blob& state : states) ASSERT_EQ(state, states[0]);
    StateJob resumed(ranks.to, target);
    resumed.Import(std::vector<Blob>(static_cast<size_t>(ranks.to), states[0]));

    const std::vector<Pending> before = job.pending();
    const std::vector<Pending> after = resumed.pending();
    ASSERT_EQ(after.size(), before.size());
    const double rounding = (ranks.from + 4) * std::ldexp(1.0, -24) + extra;
    size_t nonzero = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      ASSERT_LE(std::abs(after[i].sum - before[i].sum), rounding * before[i].magnitude)
          << "element " << i << ": " << before[i].sum;
      nonzero += before[i].sum != 0 ? 1 : 0;
    }
    EXPECT_GE(nonzero, before.size() * 9 / 10) << "something is pending";
    for (int rank = 0; rank < ranks.to; ++rank) {
      EXPECT_EQ(StatsOf(resumed.compressor(rank)).epoch, 5u);
    }
    resumed.CallsSucceed(2);
  }
};

constexpr Reshard kReshards[] = {{4, 1}, {4, 3}, {4, 4}, {4, 6}, {4, 9}, {2, 5}};

TEST_P(GlobalStateTest, WhatIsPendingIsConserved) {
  for (const Reshard& ranks : kReshards) ExpectConserved(ranks, GetParam(), 0);
}

// The target has other exchanges, blocks and chunks.
TEST_P(GlobalStateTest, SettingsMayDiffer) {
  StateSubject target = GetParam();
  target.is_one_exchange = !target.is_one_exchange;
  target.block = target.hops == ONEBIT_UNDEF_INT ? 128 : 640;
  target.chunk_alignment = 8;
  target.is_transactional = false;
  for (const Reshard& ranks : {Reshard{4, 3}, Reshard{3, 5}}) ExpectConserved(ranks, target, 0);
}

// Each of two bf16 residuals loses up to 2^-8 of itself.
TEST_P(GlobalStateTest, Bf16ResidualsHaveTheirOwnBound) {
  StateSubject target = GetParam();
  target.residual_type = onebitBfloat16;
  for (const Reshard& ranks : {Reshard{4, 3}, Reshard{4, 4}, Reshard{3, 6}}) {
    ExpectConserved(ranks, target, std::ldexp(1.0, -8));
  }
}

const StateSubject kReshardSubjects[] = {
    {.name = "Ef", .count = 1001},
    {.name = "Sum", .count = 1001, .op = onebitSum},
    {.name = "OneExchange", .count = 1001, .is_one_exchange = true},
    {.name = "OneExchangeSum", .count = 1001, .op = onebitSum, .is_one_exchange = true},
    {.name = "Fp4", .count = 1001, .codec = onebitCodecFp4},
    {.name = "Int2Sum", .count = 1001, .op = onebitSum, .codec = onebitCodecInt2},
    {.name = "TopkOneHopSum",
     .count = 1001,
     .op = onebitSum,
     .has_server_residual = false,
     .block = 320,
     .codec = onebitCodecTopk,
     .hops = 1},
    {.name = "TopkTwoHopsSum",
     .count = 1001,
     .op = onebitSum,
     .block = 320,
     .codec = onebitCodecTopk,
     .hops = 2},
    {.name = "FewerElementsThanRanks", .count = 5},
    {.name = "WithoutServer", .count = 1001, .has_server_residual = false},
    {.name = "Empty", .count = 0},
};
INSTANTIATE_TEST_SUITE_P(Subjects, GlobalStateTest, ::testing::ValuesIn(kReshardSubjects),
                         NameOfSubject);

TEST(GlobalStateExportTest, Bf16ResidualsAreSavedInFull) {
  StateSubject subject = {.name = "Bf16", .residual_type = onebitBfloat16};
  StateJob job(3, subject);
  job.CallsSucceed(3);
  const auto states = job.Export(onebitStateGlobal);
  subject.residual_type = onebitFloat32;
  StateJob resumed(2, subject);
  resumed.Import({states[0], states[0]});
  const auto before = job.pending();
  const auto after = resumed.pending();
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_LE(std::abs(after[i].sum - before[i].sum), 1e-6 * before[i].magnitude);
  }
}

// Larger than one piece of the sum.
TEST(GlobalStateExportTest, TensorOfSeveralPieces) {
  const StateSubject subject = {.name = "Large", .count = (1 << 20) + 12'345};
  StateJob job(3, subject);
  job.CallsSucceed(1);
  const auto states = job.Export(onebitStateGlobal);
  StateJob resumed(2, subject);
  resumed.Import({states[0], states[0]});
  const auto before = job.pending();
  const auto after = resumed.pending();
  for (size_t i = 0; i < before.size(); ++i) {
    ASSERT_LE(std::abs(after[i].sum - before[i].sum), 1e-6 * before[i].magnitude) << i;
  }
}

TEST(GlobalStateExportTest, SignModeHasASmallState) {
  const StateSubject subject = {.name = "Sign", .mode = onebitModePlain};
  StateJob job(3, subject);
  job.CallsSucceed(2);
  const auto states = job.Export(onebitStateGlobal);
  EXPECT_LT(states[0].size(), 200u);
  StateJob resumed(2, subject);
  resumed.Import({states[0], states[0]});
  EXPECT_EQ(StatsOf(resumed.compressor(0)).epoch, 2u);
  resumed.CallsSucceed(1);
}

TEST(GlobalStateExportTest, UnusedCompressorsAreZero) {
  const StateSubject subject = {.name = "Ef"};
  const StateJob job(3, subject);
  const auto states = job.Export(onebitStateGlobal);
  StateJob resumed(2, subject);
  resumed.CallsSucceed(2);
  resumed.Import({states[0], states[0]});
  for (const Pending& pending : resumed.pending()) EXPECT_EQ(pending.magnitude, 0);
  EXPECT_EQ(StatsOf(resumed.compressor(0)).epoch, 0u);
}

// The values may have another type, because residuals are in their unit.
TEST(GlobalStateImportTest, DatatypeMayDiffer) {
  StateJob job(2, {.name = "Ef", .count = 100});
  job.CallsSucceed(2);
  const auto states = job.Export(onebitStateGlobal);
  const CommGroup group(1);
  const onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  const UniqueCompressor half = NewCompressor(group.comm(0), 100, onebitFloat16, config);
  EXPECT_EQ(ImportHere(half.get(), states[0]).result, onebitSuccess);
}

// With two exchanges, calls do not notice that a rank was reset.
TEST(GlobalStateExportTest, DifferentHistoriesAreReportedAndBreakNothing) {
  StateJob job(3, {.name = "Ef"});
  job.CallsSucceed(2);
  onebitCompressorReset(job.compressor(1));
  for (const Outcome& outcome : job.TryExport(onebitStateGlobal)) {
    EXPECT_EQ(outcome.result, onebitMismatch);
    EXPECT_THAT(outcome.text, HasSubstr("since the residuals were zero"));
  }
  for (const int rank : {0, 2}) onebitCompressorReset(job.compressor(rank));
  job.CallsSucceed(1);
  job.Export(onebitStateGlobal);
}

TEST(GlobalStateExportTest, MeanThatOverflowsIsReportedOnAllRanks) {
  StateJob job(3, {.name = "Ef"});
  job.CallsSucceed(1);
  for (const int rank : {0, 1}) {
    const float huge = 3e38f;
    std::memcpy(const_cast<std::byte*>(job.compressor(rank)->planned.compressor.worker_in(7)),
                &huge, sizeof(huge));
  }
  for (const Outcome& outcome : job.TryExport(onebitStateGlobal)) {
    EXPECT_EQ(outcome.result, onebitInvalidUsage);
    EXPECT_THAT(outcome.text, HasSubstr("too large for their mean"));
  }
  for (int rank = 0; rank < 3; ++rank) onebitCompressorReset(job.compressor(rank));
  job.CallsSucceed(1);
}

// If the target cannot hold a residual its own ones stay.
TEST(GlobalStateImportTest, ResidualTooLargeForTheTargetIsRefused) {
  const StateSubject sum = {.name = "Sum", .op = onebitSum};
  const auto state_with = [&](float value) {
    StateJob job(2, sum);
    job.CallsSucceed(1);
    for (const int rank : {0, 1}) {
      std::byte* worker =
          const_cast<std::byte*>(job.compressor(rank)->planned.compressor.worker_in(7));
      const float share = rank == 0 ? value : 0;
      std::memcpy(worker, &share, sizeof(share));
    }
    return job.Export(onebitStateGlobal)[0];
  };
  const StateJob fits(1, sum);
  EXPECT_EQ(ImportHere(fits.compressor(0), state_with(3e38f)).result, onebitSuccess);
  EXPECT_EQ(WorkerResidualOf(fits.compressor(0))[7], 3e38f) << "half the mean, twice the factor";
  StateSubject bf16 = sum;
  bf16.residual_type = onebitBfloat16;
  const StateJob overflows(1, bf16);
  const Outcome outcome = ImportHere(overflows.compressor(0), state_with(3.4e38f));
  EXPECT_EQ(outcome.result, onebitCorrupt);
  EXPECT_THAT(outcome.text, HasSubstr("is not finite in the compressor's residualType"));
  EXPECT_EQ(overflows.residuals(0), StateJob(1, bf16).residuals(0));
  EXPECT_EQ(StatsOf(overflows.compressor(0)).epoch, 0u);
}

// A rank is missing, and the others must not wait for it for ever.
TEST(GlobalStateExportTest, DetachedRankIsAnErrorOnAll) {
  StateJob job(3, {.name = "Ef", .regroup_timeout_ms = ShortTimeoutMs()});
  job.CallsSucceed(1);
  job.DestroyComm(1);
  const auto outcomes = job.TryExport(onebitStateGlobal);
  EXPECT_EQ(outcomes[1].result, onebitDetached) << outcomes[1].text;
  for (const size_t rank : {size_t{0}, size_t{2}}) {
    EXPECT_NE(outcomes[rank].result, onebitSuccess);
    EXPECT_THAT(outcomes[rank].text, HasSubstr("ranks 1 missing"));
  }
}

class GlobalStateFaultTest : public ::testing::Test {
 protected:
  // Exports with a fault: some rank gets an error, and no residual changes. Returns false if there
  // is no such message.
  static bool ExpectErrorAndNoLoss(Fault::Kind kind, uint64_t message, uint64_t timeout_ms) {
    SCOPED_TRACE(::testing::Message() << kind << " " << message);
    FaultyTransport transport;
    StateJob job(3, {.name = "Ef"}, 0, &transport.transport(), timeout_ms);
    job.CallsSucceed(1);
    const auto before = job.Export(onebitStateRank);
    transport.Arm({.kind = kind, .rank = 1, .message = message, .bit = 200});
    const auto outcomes = job.TryExport(onebitStateGlobal);
    const bool has_struck = transport.has_struck();
    transport.Arm({});
    int failed = 0;
    for (const Outcome& outcome : outcomes) {
      failed += outcome.result == onebitSuccess ? 0 : 1;
      EXPECT_TRUE(kind == Fault::Kind::kDrop || !HasRunIntoDeadline(outcome)) << outcome.text;
    }
    EXPECT_EQ(failed > 0, has_struck);
    EXPECT_EQ(job.Export(onebitStateRank), before);
    return has_struck;
  }
};

TEST_F(GlobalStateFaultTest, DamagedMessageIsAnError) {
  uint64_t message = 0;
  while (ExpectErrorAndNoLoss(Fault::Kind::kFlipHeader, message, 20'000)) ++message;
  EXPECT_GE(message, 8u) << "two sums of two exchanges with two peers";
}

TEST_F(GlobalStateFaultTest, RankThatCannotSendIsAnError) {
  for (const uint64_t message : {0, 3, 4, 7}) {
    EXPECT_TRUE(ExpectErrorAndNoLoss(Fault::Kind::kRefuse, message, 20'000));
  }
}

TEST_F(GlobalStateFaultTest, LostMessageIsAnErrorInTime) {
  for (const uint64_t message : {0, 5}) {
    EXPECT_TRUE(ExpectErrorAndNoLoss(Fault::Kind::kDrop, message, ShortTimeoutMs()));
  }
}

}  // namespace
}  // namespace onebit::testing
