// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// States that an optimizer must refuse: damaged ones, and those of something else. A refusal leaves
// it unchanged.
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/digest.h"
#include "base/state_blob.h"
#include "tests/optim/optimizer_job.h"
#include "tests/support/exported_state.h"
#include "tests/support/resealed_state.h"

namespace onebit::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Loading `blob` must be refused with this text, and change nothing.
void ExpectRefused(const OptimizerSubject& subject, const Blob& blob, onebitResult_t result,
                   const ::testing::Matcher<std::string>& text) {
  RunRanks(1, [&](onebitComm_t comm, int) {
    OptimizerRank target(subject, comm, 0);
    target.StepUntil(1, 6);
    const Blob before = target.Export();
    EXPECT_EQ(target.TryImport(blob), result);
    EXPECT_THAT(onebitGetLastError(nullptr), text);
    EXPECT_EQ(target.Export(), before);
  });
}

Blob StateOf(const OptimizerSubject& subject, onebitStateKind_t kind = onebitStateRank) {
  Blob state;
  RunRanks(1, [&](onebitComm_t comm, int) {
    OptimizerRank optimizer(subject, comm, 0);
    optimizer.StepUntil(1, 9);
    state = optimizer.Export(kind);
  });
  return state;
}

OptimizerSubject Adam() { return SubjectOf("adam", onebitAlgorithmOneBitAdam); }
OptimizerSubject ZeroOne() { return SubjectOf("zero_one", onebitAlgorithmZeroOneAdam); }

class OptimizerStateRefusalTest : public ::testing::TestWithParam<OptimizerSubject> {};

TEST_P(OptimizerStateRefusalTest, AnyDamageIsFoundAndNothingIsTouched) {
  for (const onebitStateKind_t kind : {onebitStateRank, onebitStateGlobal}) {
    const Blob good = StateOf(GetParam(), kind);
    RunRanks(1, [&](onebitComm_t comm, int) {
      OptimizerRank target(GetParam(), comm, 0);
      target.StepUntil(1, 6);
      const Blob before = target.Export();
      for (size_t byte = 0; byte < good.size(); ++byte) {
        for (const int bit : {0, 7}) {
          Blob blob = good;
          blob[byte] ^= std::byte{1} << bit;
          ASSERT_NE(target.TryImport(blob), onebitSuccess) << "byte " << byte;
        }
      }
      for (size_t size = 0; size < good.size(); ++size) {
        // A copy of exactly this size, so that a sanitizer sees a read past its end.
        const auto blob = std::make_unique<std::byte[]>(size);
        std::memcpy(blob.get(), good.data(), size);
        ASSERT_EQ(onebitOptimizerImport(target.get(), blob.get(), size), onebitCorrupt)
            << size << " bytes";
      }
      Blob longer = good;
      longer.push_back(std::byte{0});
      EXPECT_EQ(target.TryImport(longer), onebitCorrupt);
      EXPECT_EQ(target.Export(), before);
      EXPECT_EQ(target.TryImport(good), onebitSuccess);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Subjects, OptimizerStateRefusalTest, ::testing::ValuesIn(AllOptimizers()),
                         [](const auto& info) { return info.param.name; });

TEST(OptimizerStateOfOthersTest, EveryDifferenceIsNamed) {
  const Blob state = StateOf(Adam());
  OptimizerSubject other = Adam();
  other.config.beta2 = 0.95;
  other.config.freezeStep = 5;
  other.counts = {10, 0, 15};
  ExpectRefused(other, state, onebitMismatch,
                AllOf(HasSubstr("beta2 0.9 in the state, 0.95 here"),
                      HasSubstr("freezeStep 4 in the state, 5 here"),
                      HasSubstr("segments[0].count 9 in the state, 10 here"),
                      HasSubstr("segments[2].count 16 in the state, 15 here")));
  other = Adam();
  other.config.freezeStep = ONEBIT_FREEZE_AUTOMATIC;
  other.config.lrWarmupSteps = 2;
  ExpectRefused(other, state, onebitMismatch,
                AllOf(HasSubstr("freezeStep 4 in the state, automatic here"),
                      HasSubstr("lrWarmupSteps 1 in the state, 2 here")));
  other.counts = {9, 16};
  ExpectRefused(other, state, onebitMismatch, HasSubstr("segmentCount 3 in the state, 2 here"));
  other.counts = {9, 0, 17};
  ExpectRefused(other, state, onebitMismatch, HasSubstr("count 25 in the state, 26 here"));
  // The second of {9, 16, 0} is compressed.
  other = Adam();
  other.counts = {9, 16, 0};
  ExpectRefused(other, state, onebitMismatch, HasSubstr("segments[1].count 0 in the state, 16"));
  ExpectRefused(SubjectOf("", onebitAlgorithmOneBitAdam, onebitVariantDeepSpeed), state,
                onebitMismatch, HasSubstr("variant paper in the state, deepspeed here"));
  ExpectRefused(ZeroOne(), state, onebitMismatch,
                HasSubstr("algorithm 1-bit adam in the state, 0/1 adam here"));
}

TEST(OptimizerStateOfOthersTest, EveryMemberOfAPolicyIsCompared) {
  const Blob state = StateOf(ZeroOne());
  const std::vector<std::pair<const char*, std::function<void(onebitOptimizerConfig_t&)>>> changes =
      {{"varFreezeStep 5 in the state, 4 here", [](auto& c) { c.varFreezeStep = 4; }},
       {"varUpdateScaler 1 in the state, 7 here", [](auto& c) { c.varUpdateScaler = 7; }},
       {"localStepScaler 2 in the state, 7 here", [](auto& c) { c.localStepScaler = 7; }},
       {"localStepClipper 3 in the state, 7 here", [](auto& c) { c.localStepClipper = 7; }},
       {"localStepStart 5 in the state, 7 here", [](auto& c) { c.localStepStart = 7; }},
       {"denseStepFeedsMomentum 0 in the state, 1 here",
        [](auto& c) { c.denseStepFeedsMomentum = 1; }},
       {"rateTied 0 in the state, 1 here", [](auto& c) {
          c.rateTied = 1;
          c.localStepScaler = ONEBIT_UNDEF_STEP;
        }}};
  for (const auto& [text, change] : changes) {
    OptimizerSubject other = ZeroOne();
    change(other.config);
    ExpectRefused(other, state, onebitMismatch, HasSubstr(text));
  }
}

TEST(OptimizerStateOfOthersTest, WhatDoesNotShapeTheStateMayDiffer) {
  const Blob state = StateOf(Adam());
  OptimizerSubject other = Adam();
  other.config.beta1 = 0.8;
  other.config.eps = 1e-4;
  other.config.weightDecay = 0;
  other.config.varianceFloor = 0;
  other.config.biasCorrection = 1;
  RunRanks(1, [&](onebitComm_t comm, int rank) {
    OptimizerRank optimizer(other, comm, rank);
    optimizer.Import(state);
    EXPECT_EQ(optimizer.Export(), state);
  });
}

TEST(OptimizerStateOfOthersTest, OtherRanksNeedTheStateOfAll) {
  const Blob of_one = StateOf(Adam());
  RunRanks(2, [&](onebitComm_t comm, int rank) {
    OptimizerRank optimizer(Adam(), comm, rank);
    EXPECT_EQ(optimizer.TryImport(of_one), onebitMismatch);
    EXPECT_THAT(onebitGetLastError(nullptr), HasSubstr("ranks 1 in the state, 2 here"));
  });
  Blob of_rank_1;
  RunRanks(2, [&](onebitComm_t comm, int rank) {
    const Blob mine = OptimizerRank(Adam(), comm, rank).Export();
    if (rank == 1) of_rank_1 = mine;
  });
  RunRanks(2, [&](onebitComm_t comm, int rank) {
    const OptimizerRank optimizer(Adam(), comm, rank);
    EXPECT_EQ(optimizer.TryImport(of_rank_1), rank == 1 ? onebitSuccess : onebitMismatch);
  });
}

// The last check that can refuse a state.
TEST(OptimizerStateOfOthersTest, CompressorOfOtherSettingsIsRefused) {
  OptimizerSubject other = Adam();
  onebitCompressorConfig_t compressor = ONEBIT_COMPRESSOR_CONFIG_INIT;
  compressor.block = 64;
  other.config.compressor = &compressor;
  ExpectRefused(other, StateOf(Adam()), onebitMismatch,
                HasSubstr("block 4096 in the state, 64 here"));
  compressor.mode = onebitModePlain;
  ExpectRefused(other, StateOf(Adam(), onebitStateGlobal), onebitMismatch, HasSubstr("mode ef"));
}

TEST(OptimizerStateOfOthersTest, StatesOfSomethingElseAreRefusedWithAName) {
  Blob of_compressor, of_sync;
  RunRanks(1, [&](onebitComm_t comm, int) {
    const UniqueCompressor compressor =
        NewCompressor(comm, 25, onebitFloat32, ONEBIT_COMPRESSOR_CONFIG_INIT);
    UniqueSync sync;
    Check(MakeSync(sync, compressor.get()));
    Check(ExportState(of_compressor, compressor.get(), onebitStateRank));
    of_sync = onebit::testing::StateOf(sync.get());
    const Blob of_optimizer = StateOf(Adam());
    EXPECT_EQ(ImportState(compressor.get(), of_optimizer), onebitMismatch);
    EXPECT_THAT(onebitGetLastError(nullptr), HasSubstr("onebitOptimizerImport"));
    EXPECT_EQ(onebitSyncImport(sync.get(), of_optimizer.data(), of_optimizer.size()),
              onebitMismatch);
    EXPECT_THAT(onebitGetLastError(nullptr), HasSubstr("onebitOptimizerImport"));
  });
  ExpectRefused(Adam(), of_compressor, onebitMismatch, HasSubstr("onebitCompressorImport"));
  ExpectRefused(Adam(), of_sync, onebitMismatch, HasSubstr("onebitSyncImport"));
  ExpectRefused(Adam(), Blob(500, std::byte{'x'}), onebitInvalidArgument, HasSubstr("state"));
}

// The checksums of these states are correct, but no optimizer could have saved their contents.
TEST(OptimizerStateContentTest, SectionsOfTheWrongLengthAreRefused) {
  const Blob good = StateOf(Adam());
  const auto resized = [&](size_t bytes) {
    return Resealed(good, SectionTag::kOptimizer, [&](Blob* content) { content->resize(bytes); });
  };
  const size_t bytes = StateReader::Open(good).value().section(SectionTag::kOptimizer)->size();
  ExpectRefused(Adam(), resized(bytes + 8), onebitCorrupt,
                HasSubstr("its table of segments has the wrong length"));
  ExpectRefused(Adam(), resized(8), onebitCorrupt,
                HasSubstr("the section of its settings is missing or cut off"));
}

// Replaces the value `from_end` places before the last one.
template <typename T>
Blob WithValue(const Blob& state, size_t from_end, T value) {
  static_assert(sizeof(T) == 8);
  return Resealed(state, SectionTag::kValues, [&](Blob* content) {
    std::memcpy(content->data() + content->size() - (from_end + 1) * sizeof(T), &value, sizeof(T));
  });
}

TEST(OptimizerStateContentTest, ValuesThatCannotBeAreRefused) {
  const Blob adam = StateOf(Adam());
  ExpectRefused(Adam(), WithValue(adam, 1, std::nan("")), onebitCorrupt,
                HasSubstr("a value is not finite"));
  // The schedule has made 9 steps, so it cannot have frozen at step 10.
  ExpectRefused(Adam(), WithValue(adam, 3, uint64_t{10}), onebitCorrupt,
                HasSubstr("step 9 precedes frozen_at 10"));
  const OptimizerSubject lamb = SubjectOf("lamb", onebitAlgorithmOneBitLamb);
  ExpectRefused(lamb, WithValue(StateOf(lamb), 0, -1.0), onebitCorrupt,
                HasSubstr("the scale of a momentum is not positive"));
  ExpectRefused(ZeroOne(), WithValue(StateOf(ZeroOne()), 3, uint64_t{10}), onebitCorrupt,
                HasSubstr("its schedule is ahead of its steps"));
}

// STATE.md fixes the first 40 bytes for all versions.
TEST(OptimizerStateOfOthersTest, LaterVersionIsToldFromDamage) {
  Blob blob = StateOf(Adam());
  const uint32_t later = 2;
  std::memcpy(blob.data() + 8, &later, sizeof(later));
  ExpectRefused(Adam(), blob, onebitCorrupt, HasSubstr("damaged"));
  uint32_t header_bytes = 0;
  std::memcpy(&header_bytes, blob.data() + 24, sizeof(header_bytes));
  const std::span<const std::byte> header = std::span(blob).first(header_bytes);
  const uint64_t check = DigestOf(header.subspan(40), DigestOf(header.first(32), 0));
  std::memcpy(blob.data() + 32, &check, sizeof(check));
  ExpectRefused(Adam(), blob, onebitMismatch, HasSubstr("version 2"));
}

}  // namespace
}  // namespace onebit::testing
