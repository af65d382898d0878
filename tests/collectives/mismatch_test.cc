// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// One rank makes another call than the others. Every rank must learn it at once, with both sides in
// the text, and only the communicator may be lost.
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/comm_group.h"

namespace onebit::testing {
namespace {

constexpr size_t kCount = 2000;

// One rank's call. The odd rank's differs from the others in one property.
struct Call {
  enum class Kind { kAllReduce, kBroadcast, kBarrier };
  Kind kind = Kind::kAllReduce;
  size_t count = kCount;
  onebitDataType_t type = onebitFloat32;
  onebitRedOp_t op = onebitSum;
  int root = 0;
  std::optional<onebitCompressorConfig_t> config;  // none: dense
  CommOptions options = kPatient;
};

struct Scenario {
  const char* name;
  Call call;
  Call odd_call;
  // The values of that member on the odd rank and on the others, as the text gives them.
  const char* member;
  const char* value;
  const char* odd_value;
};
std::ostream& operator<<(std::ostream& out, const Scenario& s) { return out << s.name; }

Call With(Call call, const std::function<void(Call&)>& change) {
  change(call);
  return call;
}

Call Compressed(const std::function<void(onebitCompressorConfig_t&)>& change = {}) {
  Call call;
  call.config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  if (change) change(*call.config);
  return call;
}

Call OneExchange(const std::function<void(onebitCompressorConfig_t&)>& change = {}) {
  return With(Compressed(change), [](Call& c) { c.options = kPatientOneExchange; });
}

Call Stochastic(uint64_t seed) {
  return Compressed([seed](auto& c) {
    c.codec = onebitCodecInt8Stochastic;
    c.mode = onebitModePlain;
    c.seed = seed;
  });
}

std::array<uint8_t, kCount / 8> MaskOf(uint8_t byte) {
  std::array<uint8_t, kCount / 8> mask;
  mask.fill(byte);
  return mask;
}

std::vector<Scenario> Scenarios() {
  static const auto kMask = MaskOf(0x7f);
  static constexpr std::array<size_t, 2> kCuts = {100, 101};
  const Call dense;
  const Call compressed = Compressed();
  const Call broadcast{.kind = Call::Kind::kBroadcast};
  const Call barrier{.kind = Call::Kind::kBarrier};
  return {
      {"Count", dense, {.count = kCount - 1}, "count", "2000", "1999"},
      {"CountOfAnEmptyTensor", dense, {.count = 0}, "count", "2000", "0"},
      {"CompressedCount", compressed, With(compressed, [](Call& c) { c.count = 8; }), "count",
       "2000", "8"},
      {"TypeOfOtherSize", dense, {.type = onebitFloat16}, "type", "float32", "float16"},
      {"TypeOfEqualSize",
       {.type = onebitFloat16},
       {.type = onebitBfloat16},
       "type",
       "float16",
       "bfloat16"},
      {"IntegersOfEqualSize", dense, {.type = onebitInt32}, "type", "float32", "int32"},
      {"SmallIntegers", {.type = onebitInt32}, {.type = onebitUint8}, "type", "int32", "uint8"},
      {"Op", dense, {.op = onebitAvg}, "op", "sum", "avg"},
      {"MaxAndMin", {.op = onebitMax}, {.op = onebitMin}, "op", "max", "min"},
      {"CompressedOp", compressed, With(compressed, [](Call& c) { c.op = onebitAvg; }), "op", "sum",
       "avg"},
      {"DenseAndCompressed", compressed, dense, "mode", "ef", "dense"},
      {"Mode", compressed, Compressed([](auto& c) { c.mode = onebitModePlain; }), "mode", "ef",
       "sign"},
      {"Block", compressed, Compressed([](auto& c) { c.block = 64; }), "block", "4096", "64"},
      {"BlockTensor", compressed, Compressed([](auto& c) { c.block = ONEBIT_BLOCK_TENSOR; }),
       "block", "4096", "tensor"},
      {"ScaleRule", compressed, Compressed([](auto& c) { c.scaleRule = onebitScaleL1; }),
       "scale rule", "l2", "l1"},
      {"Codec", Compressed([](auto& c) { c.codec = onebitCodecInt8; }),
       Compressed([](auto& c) { c.codec = onebitCodecUint8mm; }), "codec", "int8", "uint8mm"},
      {"SignAndLowBit", compressed, Compressed([](auto& c) { c.codec = onebitCodecFp4; }), "codec",
       "sign", "fp4"},
      {"LowBitMode", Compressed([](auto& c) { c.codec = onebitCodecFp4; }), Compressed([](auto& c) {
         c.codec = onebitCodecFp4;
         c.mode = onebitModePlain;
       }),
       "mode", "ef", "plain"},
      {"LowBitBlock", Compressed([](auto& c) { c.codec = onebitCodecFp4; }),
       Compressed([](auto& c) {
         c.codec = onebitCodecFp4;
         c.block = 32;
       }),
       "block", "128", "32"},
      {"Seed", Stochastic(1), Stochastic(uint64_t{5} << 32), "digest of mask and seed", "1",
       nullptr},
      {"TensorId", compressed, Compressed([](auto& c) { c.tensorId = 77; }), "tensor id", "0",
       "77"},
      {"ChunkAlignment", compressed, Compressed([](auto& c) { c.chunkAlignment = 8; }),
       "chunk alignment", "64", "8"},
      {"ServerResidual", compressed, Compressed([](auto& c) { c.serverResidual = 0; }),
       "server residual", "true", "false"},
      {"Mask", compressed, Compressed([](auto& c) { c.mask = kMask.data(); }), "mask digest", "0",
       nullptr},
      {"Cuts", Compressed([](auto& c) {
         c.cuts = kCuts.data();
         c.cutCount = 1;
       }),
       Compressed([](auto& c) {
         c.cuts = kCuts.data() + 1;
         c.cutCount = 1;
       }),
       "digest of mask and cuts", "1", nullptr},
      {"CutsAndNone", compressed, Compressed([](auto& c) {
         c.cuts = kCuts.data();
         c.cutCount = 2;
       }),
       "cuts", "false", "true"},
      {"OneExchange", compressed,
       With(compressed, [](Call& c) { c.options = kPatientOneExchange; }),
       "one exchange (ONEBIT_ONE_EXCHANGE_ELEMENTS)", "false", "true"},
      {"ReplicaType", OneExchange(), OneExchange([](auto& c) { c.residualType = onebitBfloat16; }),
       "residual type", "float32", "bfloat16"},
      {"ReplicaTransactions", OneExchange(), OneExchange([](auto& c) { c.transactional = 0; }),
       "transactional", "true", "false"},
      {"BroadcastAndAllReduce", dense, broadcast, "collective", "allreduce", "broadcast"},
      {"BarrierAndAllReduce", dense, barrier, "collective", "allreduce", "barrier"},
      {"BarrierAndCompressed", compressed, barrier, "collective", "allreduce", "barrier"},
      {"BarrierAndBroadcast", broadcast, barrier, "collective", "broadcast", "barrier"},
      {"Root", broadcast, {.kind = Call::Kind::kBroadcast, .root = 1}, "root", "0", "1"},
      {"BroadcastCount",
       broadcast,
       {.kind = Call::Kind::kBroadcast, .count = 10},
       "count",
       "2000",
       "10"},
  };
}

std::string Sides(const Scenario& s, bool is_seen_by_odd_rank) {
  const std::string value = s.value;
  const std::string odd_value = s.odd_value == nullptr ? "" : s.odd_value;
  if (s.odd_value == nullptr) return s.member;  // not known in advance
  return std::string(s.member) + " " + (is_seen_by_odd_rank ? odd_value : value) + " here, " +
         (is_seen_by_odd_rank ? value : odd_value) + " there";
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class Rank {
 public:
  Rank(onebitComm_t comm, const Call& call) : comm_(comm), call_(call), values_(kCount, 1.0f) {
    if (!call.config) return;
    compressor_ = NewCompressor(comm, call.count, call.type, *call.config);
  }

  onebitResult_t Run() {
    switch (call_.kind) {
      case Call::Kind::kAllReduce:
        return onebitAllReduce(values_.data(), values_.data(), call_.count, call_.type, call_.op,
                               compressor_.get(), comm_, nullptr);
      case Call::Kind::kBroadcast:
        return onebitBroadcast(values_.data(), values_.data(), call_.count, call_.type, call_.root,
                               comm_, nullptr);
      case Call::Kind::kBarrier:
        return onebitBarrier(comm_, nullptr);
    }
    return onebitInternalError;
  }
  onebitCompressor_t compressor() const { return compressor_.get(); }

 private:
  onebitComm_t comm_;
  const Call& call_;
  std::vector<float> values_;
  UniqueCompressor compressor_;
};

class MismatchTest : public ::testing::TestWithParam<Scenario> {
 protected:
  void ExpectMismatch(int ranks, int odd_rank) {
    SCOPED_TRACE(::testing::Message() << "rank " << odd_rank << " of " << ranks << " differs");
    const Scenario& s = GetParam();
    std::vector<CommOptions> options(static_cast<size_t>(ranks), s.call.options);
    options[static_cast<size_t>(odd_rank)] = s.odd_call.options;
    CommGroup group(options);
    std::vector<Rank> members;
    for (int rank = 0; rank < ranks; ++rank) {
      members.emplace_back(group.comm(rank), rank == odd_rank ? s.odd_call : s.call);
    }
    const auto run = [&](int rank) { return members[static_cast<size_t>(rank)].Run(); };
    const std::vector<Outcome> outcomes = group.Call(run);
    ExpectTexts(outcomes, odd_rank);

    const std::vector<Outcome> refusals = group.Call(run);
    for (size_t r = 0; r < refusals.size(); ++r) {
      EXPECT_EQ(refusals[r].result, onebitMismatch);
      EXPECT_TRUE(Contains(refusals[r].text, outcomes[r].text)) << refusals[r].text;
    }
    for (const Rank& member : members) {
      if (member.compressor() == nullptr) continue;
      EXPECT_EQ(StatsOf(member.compressor()).epoch, 0u);
    }
  }

  void ExpectTexts(const std::vector<Outcome>& outcomes, int odd_rank) {
    const std::string odd = "rank " + std::to_string(odd_rank);
    for (const Outcome& outcome : outcomes) {
      EXPECT_EQ(outcome.result, onebitMismatch) << outcome.text;
      EXPECT_TRUE(Contains(outcome.text, odd)) << outcome.text;
      EXPECT_TRUE(Contains(outcome.text, Sides(GetParam(), true)) ||
                  Contains(outcome.text, Sides(GetParam(), false)))
          << outcome.text;
    }
  }
};

TEST_P(MismatchTest, IsSeenByEveryRankWithBothSides) {
  ExpectMismatch(2, 0);
  ExpectMismatch(2, 1);
  ExpectMismatch(4, 1);
  ExpectMismatch(5, 4);
}

INSTANTIATE_TEST_SUITE_P(Scenarios, MismatchTest, ::testing::ValuesIn(Scenarios()),
                         [](const auto& info) { return info.param.name; });

// On a rank that is only told, the text names the rank that noticed, and the cause.
TEST(MismatchTextTest, NamesTheSeeingRankTheOddRankAndTheirCalls) {
  CommGroup group(3);
  const std::vector<Outcome> outcomes = group.Call([&](int rank) {
    std::vector<float> values(100);
    const size_t count = rank == 1 ? 96 : 100;
    return onebitAllReduce(values.data(), values.data(), count, onebitFloat32, onebitSum, nullptr,
                           group.comm(rank), nullptr);
  });
  for (size_t rank = 0; rank < 3; ++rank) {
    const std::string& text = outcomes[rank].text;
    EXPECT_TRUE(text.starts_with("rank " + std::to_string(rank) + ": ")) << text;
    EXPECT_TRUE(Contains(text, "allreduce 0 of 96 float32, sum, dense")) << text;
    EXPECT_TRUE(Contains(text, "allreduce 0 of 100 float32, sum, dense")) << text;
    EXPECT_TRUE(Contains(text, "made a different call")) << text;
  }
}

TEST(MismatchSettingTest, SegmentLengthsThatDifferAreNamed) {
  std::vector<CommOptions> options(3, CommOptions{.timeout_ms = 20'000, .segment_elements = 256});
  options[2].segment_elements = 512;
  for (const bool is_compressed : {false, true}) {
    CommGroup group(options);
    const std::vector<Outcome> outcomes = group.Call([&](int rank) {
      onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
      config.block = 64;
      const UniqueCompressor compressor =
          NewCompressor(group.comm(rank), kCount, onebitFloat32, config);
      std::vector<float> values(kCount);
      return onebitAllReduce(values.data(), values.data(), kCount, onebitFloat32, onebitSum,
                             is_compressed ? compressor.get() : nullptr, group.comm(rank), nullptr);
    });
    for (const Outcome& outcome : outcomes) {
      EXPECT_EQ(outcome.result, onebitMismatch) << outcome.text;
      EXPECT_TRUE(Contains(outcome.text, "ONEBIT_SEGMENT_ELEMENTS differs")) << outcome.text;
      EXPECT_TRUE(Contains(outcome.text, "rank 2")) << outcome.text;
      // Dense segments are quarters.
      EXPECT_TRUE(Contains(outcome.text, is_compressed ? "3" : "11") &&
                  Contains(outcome.text, is_compressed ? "2" : "6"))
          << outcome.text;
    }
  }
}

// The residual's type and the number of generations are not wire-relevant with two exchanges, where
// each server residual has one owner. (ReplicaType, ReplicaTransactions: with one they are.)
TEST(LocalOptionsTest, MayDifferWithTwoExchanges) {
  CommGroup group(3);
  std::vector<std::vector<float>> outputs(3);
  group.Run([&](int rank) {
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.residualType = rank == 1 ? onebitBfloat16 : onebitFloat32;
    config.transactional = rank == 2 ? 0 : 1;
    const UniqueCompressor compressor =
        NewCompressor(group.comm(rank), kCount, onebitFloat32, config);
    std::vector<float>& values = outputs[static_cast<size_t>(rank)];
    for (int call = 0; call < 5; ++call) {
      values.resize(kCount);
      for (size_t i = 0; i < kCount; ++i) values[i] = std::sin(static_cast<float>(i * 7 + 1));
      ASSERT_EQ(onebitAllReduce(values.data(), values.data(), kCount, onebitFloat32, onebitAvg,
                                compressor.get(), group.comm(rank), nullptr),
                onebitSuccess);
    }
  });
  EXPECT_EQ(outputs[1], outputs[0]);
  EXPECT_EQ(outputs[2], outputs[0]);
}

}  // namespace
}  // namespace onebit::testing
