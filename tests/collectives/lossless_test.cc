// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// All-gathers and broadcasts of onebitCodecLossless: every version arrives bit for bit, in few
// bytes where little has changed, and in full where ranks do not hold the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/lossless.h"
#include "tests/support/comm_group.h"
#include "tests/support/tensor.h"

namespace onebit::testing {
namespace {

using kernels::DataType;
using ::testing::HasSubstr;

onebitCompressorConfig_t Config(onebitCollective_t collective) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.codec = onebitCodecLossless;
  config.collective = collective;
  config.tensorId = 7;
  return config;
}

// Moves a share of the elements by a few steps, as an optimizer of a small learning rate does.
void Nudge(Tensor& tensor, double share, std::mt19937& random) {
  std::uniform_real_distribution<double> unit;
  const auto nudge = [&](auto zero) {
    for (size_t i = 0; i < tensor.count(); ++i) {
      if (unit(random) >= share) continue;
      auto bits = zero;
      std::byte* const at = tensor.data() + i * sizeof(bits);
      std::memcpy(&bits, at, sizeof(bits));
      bits = static_cast<decltype(bits)>(bits + 1 + random() % 3);
      std::memcpy(at, &bits, sizeof(bits));
    }
  };
  if (kernels::BytesOf(tensor.type()) == 2) {
    nudge(uint16_t{});
  } else {
    nudge(uint32_t{});
  }
}

struct Case {
  onebitCollective_t collective;
  DataType type;
  const char* hosts;  // a letter for each rank
  size_t count;
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.collective << ' ' << static_cast<int>(c.type) << ' ' << c.hosts << ' ' << c.count;
}

class LosslessCallTest : public ::testing::TestWithParam<Case> {
 protected:
  static bool is_broadcast() { return GetParam().collective == onebitCollectiveBroadcast; }
  static size_t ranks() { return std::strlen(GetParam().hosts); }
  static size_t parts() { return is_broadcast() ? 1 : ranks(); }

  static onebitResult_t Call(const Tensor& input, Tensor& output, int root,
                             onebitCompressor_t compressor, onebitComm_t comm,
                             onebitStream_t stream = nullptr) {
    if (is_broadcast()) {
      return onebitBroadcastCompressed(input.data(), output.data(), input.count(), input.api_type(),
                                       root, compressor, comm, stream);
    }
    return onebitAllGather(input.data(), output.data(), input.count(), input.api_type(), compressor,
                           comm, stream);
  }
};

TEST_P(LosslessCallTest, EveryVersionIsBitEqual) {
  const Case& c = GetParam();
  CommOptions options = kPatient;
  options.two_level_bytes = 0;
  CommGroup group(OnHosts(c.hosts, options));
  constexpr int kCalls = 24;
  group.Run([&](int rank) {
    std::mt19937 random(1);  // the same on all ranks, which know what the others send
    std::vector<Tensor> inputs;
    for (size_t part = 0; part < ranks(); ++part) {
      inputs.emplace_back(c.count, c.type, part % 3);
      inputs.back().FillNormal(random);
    }
    Tensor output(c.count * parts(), c.type, 1);
    const UniqueCompressor compressor =
        NewCompressor(group.comm(rank), c.count, ApiType(c.type), Config(c.collective));
    uint64_t full_bytes = 0;
    for (int call = 0; call < kCalls; ++call) {
      // Another root has another tensor, and most of it differs.
      const int root = call < kCalls - 4 ? 0 : call % static_cast<int>(ranks());
      Tensor& own = inputs[static_cast<size_t>(is_broadcast() ? root : rank)];
      ASSERT_EQ(Call(own, output, root, compressor.get(), group.comm(rank)), onebitSuccess)
          << onebitGetLastError(nullptr);
      for (size_t part = 0; part < parts(); ++part) {
        const Tensor& sent = inputs[is_broadcast() ? static_cast<size_t>(root) : part];
        ASSERT_EQ(std::memcmp(output.data() + part * sent.bytes(), sent.data(), sent.bytes()), 0)
            << "call " << call << ", part " << part;
      }
      ASSERT_TRUE(output.HasIntactGuards());
      const onebitCompressorStats_t stats = StatsOf(compressor.get());
      if (ranks() == 1) {
        EXPECT_EQ(stats.wire_bytes, 0u);
      } else if (call == 0) {
        EXPECT_EQ(stats.full_calls, c.count == 0 ? 0u : 1u);
        full_bytes = stats.wire_bytes;
      } else if (call < kCalls - 4 && c.count >= 1000) {
        EXPECT_EQ(stats.full_calls, 1u) << call;
        if (!is_broadcast() || rank == 0) {
          EXPECT_LT(stats.wire_bytes, full_bytes / 3) << call;
        }
      }
      for (Tensor& input : inputs) Nudge(input, call % 3 == 0 ? 0.0 : 0.05, random);
    }
    const onebitCompressorStats_t stats = StatsOf(compressor.get());
    EXPECT_EQ(stats.epoch, static_cast<uint64_t>(kCalls));
    EXPECT_LE(stats.network_bytes, stats.wire_bytes);
    EXPECT_GE(stats.residual_bytes, output.bytes());
    if (ranks() != 1 && c.count != 0) {
      EXPECT_GT(StatsOf(group.comm(rank)).codec_ns, 0u);  // of digests and packets
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Calls, LosslessCallTest,
    ::testing::Values(Case{onebitCollectiveBroadcast, DataType::kBf16, "aaa", 70'001},
                      Case{onebitCollectiveBroadcast, DataType::kF32, "aabb", 65'536},
                      Case{onebitCollectiveBroadcast, DataType::kF16, "ab", 1'000},
                      Case{onebitCollectiveBroadcast, DataType::kBf16, "ab", 1},
                      Case{onebitCollectiveBroadcast, DataType::kBf16, "ab", 0},
                      Case{onebitCollectiveAllGather, DataType::kBf16, "aaa", 65'537},
                      Case{onebitCollectiveAllGather, DataType::kF32, "aabb", 9'999},
                      Case{onebitCollectiveAllGather, DataType::kF16, "ab", 3},
                      Case{onebitCollectiveAllGather, DataType::kF32, "aa", 0},
                      Case{onebitCollectiveBroadcast, DataType::kF32, "a", 1'000},
                      Case{onebitCollectiveAllGather, DataType::kBf16, "a", 1'000}),
    [](const ::testing::TestParamInfo<Case>& info) {
      const Case& c = info.param;
      return std::string(c.collective == onebitCollectiveBroadcast ? "Broadcast" : "AllGather") +
             (c.type == DataType::kF32   ? "F32"
              : c.type == DataType::kF16 ? "F16"
                                         : "Bf16") +
             "_" + c.hosts + "_" + std::to_string(c.count);
    });

// Broadcasts of one tensor on all ranks of a group.
class LosslessBroadcastTest : public ::testing::Test {
 protected:
  static constexpr size_t kCount = 20'000;

  struct Rank {
    UniqueCompressor compressor;
    Tensor output = Tensor(kCount, DataType::kBf16);
  };

  LosslessBroadcastTest() { tensor_.FillNormal(random_); }

  Rank NewRank(onebitComm_t comm) {
    return {NewCompressor(comm, kCount, onebitBfloat16, Config(onebitCollectiveBroadcast))};
  }
  // Broadcasts a new version, which all ranks must have afterwards.
  void Broadcast(CommGroup& group, std::vector<Rank>& ranks, int root = 0) {
    Nudge(tensor_, 0.02, random_);
    BroadcastSame(group, ranks, root);
  }
  void BroadcastSame(CommGroup& group, std::vector<Rank>& ranks, int root = 0) {
    for (const Outcome& outcome : group.Call([&](int rank) {
           Rank& mine = ranks[static_cast<size_t>(rank)];
           return onebitBroadcastCompressed(rank == root ? tensor_.data() : nullptr,
                                            mine.output.data(), kCount, onebitBfloat16, root,
                                            mine.compressor.get(), group.comm(rank), nullptr);
         })) {
      EXPECT_EQ(outcome.result, onebitSuccess) << outcome.text;
    }
    for (Rank& rank : ranks) EXPECT_TRUE(rank.output.HasBytesOf(tensor_));
  }
  uint64_t FullCalls(const Rank& rank) { return StatsOf(rank.compressor.get()).full_calls; }

  std::mt19937 random_{3};
  Tensor tensor_{kCount, DataType::kBf16};
};

TEST_F(LosslessBroadcastTest, ARankThatForgotGetsAllElementsOnce) {
  CommGroup group(3);
  std::vector<Rank> ranks;
  for (int rank = 0; rank < 3; ++rank) ranks.push_back(NewRank(group.comm(rank)));
  for (int call = 0; call < 3; ++call) Broadcast(group, ranks);
  for (const Rank& rank : ranks) EXPECT_EQ(FullCalls(rank), 1u);
  ASSERT_EQ(onebitCompressorReset(ranks[2].compressor.get()), onebitSuccess);
  for (int call = 0; call < 3; ++call) Broadcast(group, ranks);
  for (const Rank& rank : ranks) EXPECT_EQ(FullCalls(rank), 2u);
  tensor_.FillNormal(random_);  // changes would be longer than elements
  Broadcast(group, ranks);
  for (const Rank& rank : ranks) EXPECT_EQ(FullCalls(rank), 3u);
  for (int root = 0; root < 3; ++root) Broadcast(group, ranks, root);  // all hold the same
  for (const Rank& rank : ranks) EXPECT_EQ(FullCalls(rank), 3u);
}

// Copies outlive their communicator. Where a rank is new, or has missed a version, the next call is
// full.
TEST_F(LosslessBroadcastTest, RanksLeaveAndJoin) {
  std::vector<Rank> ranks;
  {
    CommGroup three(3);
    for (int rank = 0; rank < 3; ++rank) ranks.push_back(NewRank(three.comm(rank)));
    Broadcast(three, ranks);
    Broadcast(three, ranks);
  }
  Rank absent = std::move(ranks.back());
  ranks.pop_back();
  const auto rebind = [&](CommGroup& group) {
    for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
      int source = -1;
      ASSERT_EQ(onebitCompressorRebind(ranks[static_cast<size_t>(rank)].compressor.get(),
                                       group.comm(rank), &source),
                onebitSuccess)
          << onebitGetLastError(nullptr);
    }
  };
  {
    CommGroup two(2);
    rebind(two);
    Broadcast(two, ranks);
    for (const Rank& rank : ranks) EXPECT_EQ(FullCalls(rank), 1u);
  }
  ranks.push_back(std::move(absent));
  {
    CommGroup three(3);
    rebind(three);
    Broadcast(three, ranks);
    Broadcast(three, ranks);
    for (const Rank& rank : ranks) EXPECT_EQ(FullCalls(rank), 2u);
  }
  CommGroup four(4);
  rebind(four);
  ranks.push_back(NewRank(four.comm(3)));
  Broadcast(four, ranks);
  Broadcast(four, ranks);
  EXPECT_EQ(FullCalls(ranks[0]), 3u);
  EXPECT_EQ(FullCalls(ranks[3]), 1u);
}

TEST_F(LosslessBroadcastTest, RunsInOrderOnAStream) {
  CommGroup group(2);
  std::vector<Tensor> versions;
  for (int version = 0; version < 5; ++version) {
    versions.emplace_back(kCount, DataType::kBf16);
    Nudge(tensor_, 0.02, random_);
    versions.back().CopyFrom(tensor_);
  }
  group.Run([&](int rank) {
    Rank mine = NewRank(group.comm(rank));
    UniqueStream stream;
    ASSERT_EQ(MakeStream(stream), onebitSuccess);
    std::vector<Tensor> outputs;
    for (size_t i = 0; i < versions.size(); ++i) outputs.emplace_back(kCount, DataType::kBf16);
    for (size_t i = 0; i < versions.size(); ++i) {
      ASSERT_EQ(
          onebitBroadcastCompressed(versions[i].data(), outputs[i].data(), kCount, onebitBfloat16,
                                    1, mine.compressor.get(), group.comm(rank), stream.get()),
          onebitSuccess);
    }
    ASSERT_EQ(onebitStreamSynchronize(stream.get()), onebitSuccess);
    for (size_t i = 0; i < versions.size(); ++i) {
      EXPECT_TRUE(outputs[i].HasBytesOf(versions[i])) << i;
    }
  });
}

TEST_F(LosslessBroadcastTest, InPlace) {
  CommGroup group(2);
  group.Run([&](int rank) {
    const Rank mine = NewRank(group.comm(rank));
    Tensor weights(kCount, DataType::kBf16);
    for (int call = 0; call < 3; ++call) {
      if (rank == 0) weights.CopyFrom(tensor_);
      ASSERT_EQ(onebitBroadcastCompressed(weights.data(), weights.data(), kCount, onebitBfloat16, 0,
                                          mine.compressor.get(), group.comm(rank), nullptr),
                onebitSuccess);
      ASSERT_TRUE(weights.HasBytesOf(tensor_));
    }
  });
}

// Two flips of signs leave sums over elements as they are, and ranks compare more than that.
TEST_F(LosslessBroadcastTest, ARankThatMissedChangesWhichCancelOutIsFound) {
  std::vector<Rank> ranks;
  CommGroup three(3);
  for (int rank = 0; rank < 3; ++rank) ranks.push_back(NewRank(three.comm(rank)));
  Broadcast(three, ranks);
  Rank absent = std::move(ranks.back());
  ranks.pop_back();
  for (const size_t i : {1, 5}) tensor_.Set(i, -tensor_.Get(i));
  const auto move = [&](CommGroup& group) {
    for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
      int source = 0;
      ASSERT_EQ(onebitCompressorRebind(ranks[static_cast<size_t>(rank)].compressor.get(),
                                       group.comm(rank), &source),
                onebitSuccess);
    }
  };
  CommGroup two(2);
  move(two);
  BroadcastSame(two, ranks);
  ranks.push_back(std::move(absent));
  CommGroup again(3);
  move(again);
  BroadcastSame(again, ranks);
  for (const Rank& rank : ranks) EXPECT_EQ(FullCalls(rank), 2u);
}

// A rank that does not come leaves the others with what they had.
TEST_F(LosslessBroadcastTest, AFailedCallChangesNoOutput) {
  CommOptions options = kPatient;
  CommGroup group(3, options);
  std::vector<Rank> ranks;
  for (int rank = 0; rank < 3; ++rank) ranks.push_back(NewRank(group.comm(rank)));
  Broadcast(group, ranks);
  const Tensor old = [&] {
    Tensor copy(kCount, DataType::kBf16);
    copy.CopyFrom(tensor_);
    return copy;
  }();
  Nudge(tensor_, 0.02, random_);
  group.Call([&](int rank) {
    if (rank == 2) return onebitCommAbort(group.comm(rank));
    Rank& mine = ranks[static_cast<size_t>(rank)];
    EXPECT_NE(onebitBroadcastCompressed(tensor_.data(), mine.output.data(), kCount, onebitBfloat16,
                                        0, mine.compressor.get(), group.comm(rank), nullptr),
              onebitSuccess);
    EXPECT_TRUE(mine.output.HasBytesOf(old));
    return onebitSuccess;
  });
  // The survivors go on with what they hold.
  ranks.pop_back();
  CommGroup two(2);
  for (int rank = 0; rank < 2; ++rank) {
    int source = -1;
    ASSERT_EQ(onebitCompressorRebind(ranks[static_cast<size_t>(rank)].compressor.get(),
                                     two.comm(rank), &source),
              onebitSuccess);
  }
  Broadcast(two, ranks);
}

TEST_F(LosslessBroadcastTest, RanksWithOtherCompressorsLearnIt) {
  const std::pair<const char*, std::function<void(onebitCompressorConfig_t&, size_t&)>> changes[] =
      {{"tensor id is 7 on rank 0, but 8 on rank 1", [](auto& c, auto&) { c.tensorId = 8; }},
       {"count is 20000 on rank 0, but 19999 on rank 1", [](auto&, auto& count) { --count; }},
       {"root is 0 on rank 0, but 1 on rank 1", [](auto&, auto&) {}}};
  for (const auto& [text, change] : changes) {
    CommGroup group(2);
    const bool has_other_root = std::string(text).starts_with("root");
    for (const Outcome& outcome : group.Call([&, &change = change](int rank) {
           onebitCompressorConfig_t config = Config(onebitCollectiveBroadcast);
           size_t count = kCount;
           if (rank == 1) change(config, count);
           const UniqueCompressor mine =
               NewCompressor(group.comm(rank), count, onebitBfloat16, config);
           std::vector<uint16_t> output(kCount);
           return onebitBroadcastCompressed(output.data(), output.data(), count, onebitBfloat16,
                                            has_other_root ? rank : 0, mine.get(), group.comm(rank),
                                            nullptr);
         })) {
      EXPECT_EQ(outcome.result, onebitMismatch) << outcome.text;
      EXPECT_THAT(outcome.text, HasSubstr(text));
    }
  }
}

TEST_F(LosslessBroadcastTest, RefusesWhatHasNoMeaning) {
  CommGroup group(1);
  const Rank mine = NewRank(group.comm(0));
  onebitCompressor_t const compressor = mine.compressor.get();
  std::vector<uint16_t> values(kCount);
  const auto expect = [](const std::function<onebitResult_t()>& call, const char* text) {
    const Outcome outcome = CallHere(call);
    EXPECT_NE(outcome.result, onebitSuccess) << text;
    EXPECT_THAT(outcome.text, HasSubstr(text));
  };
  const auto broadcast = [&](onebitCompressor_t with) {
    return onebitBroadcastCompressed(values.data(), values.data(), kCount, onebitBfloat16, 0, with,
                                     group.comm(0), nullptr);
  };
  expect([&] { return broadcast(nullptr); }, "compressor is NULL");
  onebitGroupStart();
  expect([&] { return broadcast(compressor); }, "cannot be part of a group");
  onebitGroupEnd();
  expect([&] { return onebitCompressorRevert(compressor); }, "is lossless");
  size_t bytes = 0;
  expect([&] { return onebitCompressorExport(compressor, onebitStateRank, nullptr, &bytes); },
         "needs no state");
  const uint8_t mask[kCount / 8] = {};
  expect([&] { return onebitCompressorSetMask(compressor, mask); }, "sends all elements");
  expect([&] { return onebitCompressorSetWeight(compressor, 1); }, "supports weights");
  expect(
      [&] {
        return onebitCompressorPrime(compressor, values.data(), values.data(), onebitSum, nullptr);
      },
      "no error feedback");
  EXPECT_EQ(broadcast(compressor), onebitSuccess);
}

TEST(LosslessConfigTest, SaysWhichMembersItLeavesAlone) {
  CommGroup group(1);
  const auto expect = [&](const std::function<void(onebitCompressorConfig_t&)>& change,
                          const char* text) {
    onebitCompressorConfig_t config = Config(onebitCollectiveBroadcast);
    change(config);
    onebitCompressor_t compressor = nullptr;
    const Outcome outcome = CallHere([&] {
      return onebitCompressorCreate(&compressor, group.comm(0), 100, onebitBfloat16, &config);
    });
    EXPECT_EQ(outcome.result, onebitInvalidArgument) << text;
    EXPECT_THAT(outcome.text, HasSubstr(text));
  };
  expect([](auto& c) { c.collective = onebitCollectiveAllReduce; }, "collective is 0");
  expect([](auto& c) { c.codec = onebitCodecFp4; }, "onebitCodecLossless for a broadcast");
  expect([](auto& c) { c.mode = onebitModePlain; }, "mode is 0");
  expect([](auto& c) { c.mode = onebitModeEf; }, "mode is 1");
  expect([](auto& c) { c.residualType = onebitFloat32; }, "residualType");
  expect([](auto& c) { c.transactional = 1; }, "transactional is 1");
  expect([](auto& c) { c.levels = 2; }, "levels is 2");
  expect([](auto& c) { c.block = 128; }, "block is 128");
  expect([](auto& c) { c.scaleRule = onebitScaleL1; }, "scaleRule");
  expect([](auto& c) { c.k = 4; }, "k is 4");
  expect([](auto& c) { c.serverResidual = 1; }, "serverResidual");
  static const uint8_t kMask[13] = {};
  expect([](auto& c) { c.mask = kMask; }, "mask must be NULL");
}

}  // namespace
}  // namespace onebit::testing
