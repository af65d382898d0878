// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Arguments of exports and imports, and states that are damaged or belong to something else.
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "api/handles.h"
#include "tests/support/comm_group.h"
#include "tests/support/exported_state.h"
#include "tests/support/residuals.h"

namespace onebit::testing {
namespace {

using Blob = std::vector<std::byte>;

constexpr size_t kCount = 10;

UniqueCompressor Make(onebitComm_t comm, size_t count = kCount,
                      const std::function<void(onebitCompressorConfig_t&)>& change = {},
                      onebitDataType_t type = onebitFloat32) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  if (change) change(config);
  return NewCompressor(comm, count, type, config);
}

onebitResult_t Import(onebitCompressor_t compressor, const Blob& blob) {
  return onebitCompressorImport(compressor, blob.data(), blob.size());
}

std::string LastText() { return onebitGetLastError(nullptr); }

// Two ranks with a tensor that has been in two calls.
class StateTest : public ::testing::Test {
 protected:
  StateTest() {
    for (int rank = 0; rank < 2; ++rank) compressors_.push_back(Make(group_.comm(rank)));
    Calls(2);
  }
  void Calls(int calls) {
    group_.Run([&](int rank) {
      for (int call = 0; call < calls; ++call) {
        std::vector<float> values(kCount);
        for (size_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(rank) + 0.1f * i;
        ASSERT_EQ(onebitAllReduce(values.data(), values.data(), kCount, onebitFloat32, onebitAvg,
                                  compressor(rank), group_.comm(rank), nullptr),
                  onebitSuccess);
      }
    });
  }
  onebitCompressor_t compressor(int rank) const {
    return compressors_[static_cast<size_t>(rank)].get();
  }
  // Equal on all ranks.
  Blob GlobalState() {
    std::vector<Blob> states(2);
    group_.Run([&](int rank) {
      states[static_cast<size_t>(rank)] = StateOf(compressor(rank), onebitStateGlobal);
    });
    EXPECT_EQ(states[0], states[1]);
    return states[0];
  }

  CommGroup group_{2};
  std::vector<UniqueCompressor> compressors_;
};

TEST_F(StateTest, NullArgumentsAndUnknownKindsAreRefused) {
  size_t bytes = 0;
  EXPECT_EQ(onebitCompressorExport(nullptr, onebitStateRank, nullptr, &bytes),
            onebitInvalidArgument);
  EXPECT_EQ(onebitCompressorExport(compressor(0), onebitStateRank, nullptr, nullptr),
            onebitInvalidArgument);
  EXPECT_EQ(
      onebitCompressorExport(compressor(0), static_cast<onebitStateKind_t>(7), nullptr, &bytes),
      onebitInvalidArgument);
  EXPECT_NE(LastText().find("state kind 7 is unknown"), std::string::npos);
  const Blob state = StateOf(compressor(0), onebitStateRank);
  EXPECT_EQ(onebitCompressorImport(nullptr, state.data(), state.size()), onebitInvalidArgument);
  EXPECT_EQ(onebitCompressorImport(compressor(0), nullptr, state.size()), onebitInvalidArgument);
}

// Local, so a single rank may ask.
TEST_F(StateTest, SizeIsToldWithoutACall) {
  for (const auto kind : {onebitStateRank, onebitStateGlobal}) {
    const uint64_t messages = StatsOf(group_.comm(0)).messages_sent;
    size_t bytes = 0;
    ASSERT_EQ(onebitCompressorExport(compressor(0), kind, nullptr, &bytes), onebitSuccess);
    Blob room(bytes);
    for (size_t less : {size_t{0}, bytes - 1}) {
      EXPECT_EQ(onebitCompressorExport(compressor(0), kind, room.data(), &less),
                onebitInvalidArgument);
      EXPECT_EQ(less, bytes);
    }
    EXPECT_NE(LastText().find("but *bytes is"), std::string::npos);
    EXPECT_EQ(StatsOf(group_.comm(0)).messages_sent, messages);
  }
}

TEST_F(StateTest, MoreRoomAndAnyAlignmentAreFine) {
  const Blob expected = StateOf(compressor(0), onebitStateRank);
  Blob room(expected.size() + 101, std::byte{0xee});
  size_t bytes = expected.size() + 100;
  ASSERT_EQ(onebitCompressorExport(compressor(0), onebitStateRank, room.data() + 1, &bytes),
            onebitSuccess);
  EXPECT_EQ(bytes, expected.size());
  EXPECT_EQ(std::memcmp(room.data() + 1, expected.data(), bytes), 0);
  EXPECT_EQ(room[1 + bytes], std::byte{0xee});
  EXPECT_EQ(onebitCompressorImport(compressor(0), room.data() + 1, bytes), onebitSuccess);
}

TEST_F(StateTest, CompressorInUseIsRefused) {
  const Blob state = StateOf(compressor(0), onebitStateRank);
  compressor(0)->is_in_use = true;
  size_t bytes = 0;
  EXPECT_EQ(onebitCompressorExport(compressor(0), onebitStateRank, nullptr, &bytes),
            onebitInvalidUsage);
  EXPECT_EQ(Import(compressor(0), state), onebitInvalidUsage);
  compressor(0)->is_in_use = false;
  EXPECT_EQ(Import(compressor(0), state), onebitSuccess);
}

TEST_F(StateTest, FailedCommunicatorIsRefusedAtOnce) {
  onebitCommAbort(group_.comm(0));
  size_t bytes = 0;
  ASSERT_EQ(onebitCompressorExport(compressor(0), onebitStateGlobal, nullptr, &bytes),
            onebitSuccess);
  Blob blob(bytes);
  EXPECT_EQ(onebitCompressorExport(compressor(0), onebitStateGlobal, blob.data(), &bytes),
            onebitAborted);
  StateOf(compressor(0), onebitStateRank);  // its residuals can still be saved
}

// Any damage is an error and leaves the compressor unchanged, for either kind of state.
TEST_F(StateTest, DamagedStatesAreRefusedAndNothingIsTouched) {
  const Blob rank_state = StateOf(compressor(0), onebitStateRank);
  const Blob global_state = GlobalState();
  Calls(1);
  const Residuals before = ResidualsOf(compressor(0));
  const auto expect_refused = [&](const Blob& blob, size_t size, const char* what, size_t where) {
    const onebitResult_t result = onebitCompressorImport(compressor(0), blob.data(), size);
    EXPECT_TRUE(result == onebitCorrupt || result == onebitInvalidArgument)
        << what << " " << where << ": " << result;
    EXPECT_FALSE(LastText().empty());
    ASSERT_TRUE(ResidualsOf(compressor(0)) == before) << what << " " << where;
    ASSERT_EQ(StatsOf(compressor(0)).epoch, 3u);
  };
  for (const Blob& good : {rank_state, global_state}) {
    for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
      Blob blob = good;
      blob[bit / 8] ^= std::byte{1} << (bit % 8);
      expect_refused(blob, blob.size(), "bit", bit);
    }
    for (size_t size = 0; size < good.size(); ++size) expect_refused(good, size, "prefix", size);
    Blob longer = good;
    for (size_t i = 0; i < 8; ++i) longer.push_back(std::byte{0});
    expect_refused(longer, longer.size(), "longer by", 8);
  }
  for (const Blob& good : {rank_state, global_state}) {
    EXPECT_EQ(Import(compressor(0), good), onebitSuccess) << LastText();
    EXPECT_EQ(StatsOf(compressor(0)).epoch, 2u);
  }
}

// A compressor that the state does not fit, and the expected error text.
struct Unfit {
  const char* name;
  const char* text;
  bool fits_global;
  size_t count = kCount;
  onebitDataType_t type = onebitFloat32;
  std::function<void(onebitCompressorConfig_t&)> change = {};
};

TEST_F(StateTest, StatesOfOtherCompressorsAreRefusedByName) {
  const Blob rank_state = StateOf(compressor(0), onebitStateRank);
  const Blob global_state = GlobalState();
  const std::vector<Unfit> all = {
      {"count", "elements 10 in the state, 11 here", false, 11},
      {"datatype", "datatype float32 in the state, float16 here", true, kCount, onebitFloat16},
      {"mode", "mode ef in the state, plain here", false, kCount, onebitFloat32,
       [](auto& config) { config.mode = onebitModePlain; }},
      {"rule", "scaleRule l2 in the state, l1 here", true, kCount, onebitFloat32,
       [](auto& config) { config.scaleRule = onebitScaleL1; }},
      {"block", "block 4096 in the state, 64 here", true, kCount, onebitFloat32,
       [](auto& config) { config.block = 64; }},
      {"alignment", "chunkAlignment 64 in the state, 8 here", true, kCount, onebitFloat32,
       [](auto& config) { config.chunkAlignment = 8; }},
      {"residual", "residualType float32 in the state, bfloat16 here", true, kCount, onebitFloat32,
       [](auto& config) { config.residualType = onebitBfloat16; }},
      {"server", "serverResidual 1 in the state, 0 here", false, kCount, onebitFloat32,
       [](auto& config) { config.serverResidual = 0; }},
  };
  for (const Unfit& unfit : all) {
    SCOPED_TRACE(unfit.name);
    const CommGroup group(2);
    const UniqueCompressor other = Make(group.comm(0), unfit.count, unfit.change, unfit.type);
    const Residuals before = ResidualsOf(other.get());
    EXPECT_EQ(Import(other.get(), rank_state), onebitMismatch);
    EXPECT_NE(LastText().find(unfit.text), std::string::npos) << LastText();
    EXPECT_TRUE(ResidualsOf(other.get()) == before);
    EXPECT_EQ(Import(other.get(), global_state),
              unfit.fits_global ? onebitSuccess : onebitMismatch);
  }
}

TEST_F(StateTest, RankAndRanksAndExchangesBelongToAStateOfOneRank) {
  const Blob state = StateOf(compressor(0), onebitStateRank);
  EXPECT_EQ(Import(compressor(1), state), onebitMismatch);
  EXPECT_NE(LastText().find("rank 0 in the state, 1 here"), std::string::npos) << LastText();
  EXPECT_NE(LastText().find("onebitStateGlobal"), std::string::npos) << LastText();
  const CommGroup three(3);
  EXPECT_EQ(Import(Make(three.comm(0)).get(), state), onebitMismatch);
  EXPECT_NE(LastText().find("ranks 2 in the state, 3 here"), std::string::npos) << LastText();
  const CommGroup one_exchange(2, kPatientOneExchange);
  EXPECT_EQ(Import(Make(one_exchange.comm(0)).get(), state), onebitMismatch);
  EXPECT_NE(LastText().find("exchanges 2 in the state, 1 here"), std::string::npos) << LastText();
}

TEST_F(StateTest, WhatIsNoStateIsToldApart) {
  const Blob text(200, std::byte{'x'});
  EXPECT_EQ(Import(compressor(0), text), onebitInvalidArgument);
  EXPECT_NE(LastText().find("not a onebit state"), std::string::npos) << LastText();
}

}  // namespace
}  // namespace onebit::testing
