// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls of a group share kernel launches, whatever they are: each must come out as it does alone.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "onebit/onebit.hpp"
#include "onebit/parts.h"
#include "tests/cuda/cuda_test_memory.h"
#include "tests/cuda/device_ranks.h"
#include "tests/cuda/stream_gate.h"

namespace onebit::testing {
namespace {

// Short tensors take two levels, too, if there are several hosts. Set before the library reads it.
[[maybe_unused]] const int settings = setenv("ONEBIT_TWO_LEVEL_BYTES", "1", 1);

// A call with a compressor.
struct CallKind {
  onebitCollective_t collective = onebitCollectiveAllReduce;
  onebitDataType_t type = onebitFloat32;
  onebitMode_t mode = onebitModeEf;
  onebitCodec_t codec = onebitCodecSign;
  int32_t block = 4096;
  int32_t residual_type = onebitFloat32;
  int32_t transactional = 1;
  bool has_mask = false;
  onebitRedOp_t op = onebitAvg;
  size_t count = 0;  // as the call counts elements
};

size_t BytesOf(onebitDataType_t type) { return type == onebitFloat32 ? 4 : 2; }

// Parts of a call's input and output, of `count` elements each.
size_t InputParts(onebitCollective_t collective, int ranks) {
  const bool has_parts =
      collective == onebitCollectiveReduceScatter || collective == onebitCollectiveAllToAll;
  return has_parts ? static_cast<size_t>(ranks) : 1;
}
size_t OutputParts(onebitCollective_t collective, int ranks) {
  const bool has_parts =
      collective == onebitCollectiveAllGather || collective == onebitCollectiveAllToAll;
  return has_parts ? static_cast<size_t>(ranks) : 1;
}

std::vector<CallKind> RandomKinds(size_t calls, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<CallKind> kinds(calls);
  constexpr onebitCollective_t kCollectives[] = {
      onebitCollectiveAllReduce, onebitCollectiveReduceScatter, onebitCollectiveAllGather,
      onebitCollectiveAllToAll};
  constexpr onebitDataType_t kTypes[] = {onebitFloat32, onebitFloat16, onebitBfloat16};
  constexpr int32_t kBlocks[] = {4096, 1024, 64, ONEBIT_BLOCK_TENSOR};
  for (CallKind& kind : kinds) {
    kind.collective = kCollectives[random() % 3 == 0 ? random() % 4 : 0];
    kind.type = kTypes[random() % 3];
    kind.mode = random() % 3 == 0 ? onebitModePlain : onebitModeEf;
    kind.block = kBlocks[random() % 4];
    const bool is_delta = kind.collective == onebitCollectiveAllGather && kind.mode == onebitModeEf;
    if (!is_delta && random() % 4 == 0) kind.residual_type = onebitBfloat16;
    kind.transactional = random() % 4 == 0 ? 0 : 1;
    kind.has_mask = random() % 4 == 0;
    kind.op = random() % 2 == 0 ? onebitAvg : onebitSum;
    kind.count = random() % 5 == 0 ? 1 + random() % 100 : 8 * (1 + random() % 1500);
  }
  return kinds;
}

// The same with another codec in most of them, but none that rounds at random: its draws depend on
// the compressor.
std::vector<CallKind> RandomLowBitKinds(size_t calls, unsigned seed) {
  std::vector<CallKind> kinds = RandomKinds(calls, seed);
  std::mt19937 random(seed + 77);
  constexpr onebitCodec_t kCodecs[] = {onebitCodecFp4, onebitCodecInt8, onebitCodecUint8mm,
                                       onebitCodecInt2, onebitCodecBf16};
  constexpr int32_t kBlocks[] = {32, 256, 4096};
  for (CallKind& kind : kinds) {
    if (random() % 5 == 0) continue;
    kind.codec = kCodecs[random() % std::size(kCodecs)];
    kind.block = kBlocks[random() % 3];
    if (kind.codec == onebitCodecBf16) kind.block = ONEBIT_UNDEF_INT;
  }
  return kinds;
}

// The compressors and buffers of some calls on one rank.
class Calls {
 public:
  Calls(onebitComm_t comm, int ranks, const std::vector<CallKind>& kinds)
      : comm_(comm), kinds_(kinds) {
    for (const CallKind& kind : kinds) {
      onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
      config.memory = onebitMemoryDevice;
      config.mode = kind.mode;
      config.collective = kind.collective;
      config.codec = kind.codec;
      config.block = kind.block;
      config.residualType = kind.residual_type;
      config.transactional = kind.transactional;
      const std::vector<uint8_t> mask(static_cast<size_t>(ranks) * kind.count / 8 + 1, 0xB7);
      if (kind.has_mask) config.mask = mask.data();
      onebitCompressor_t created = nullptr;
      if (onebitCompressorCreate(&created, comm, kind.count, kind.type, &config) != onebitSuccess) {
        throw std::runtime_error(onebitGetLastError(nullptr));
      }
      compressors_.emplace_back(created);
      const size_t part = kind.count * BytesOf(kind.type);
      inputs_.emplace_back(InputParts(kind.collective, ranks) * part);
      outputs_.emplace_back(OutputParts(kind.collective, ranks) * part);
    }
  }

  // How many of the calls have two levels.
  size_t WithTwoLevels() const {
    return static_cast<size_t>(std::ranges::count_if(compressors_, [](const auto& compressor) {
      onebitCompressorStats_t stats = {.size = sizeof stats};
      EXPECT_EQ(onebitCompressorGetStats(compressor.get(), &stats), onebitSuccess);
      return stats.levels == 2;
    }));
  }

  CudaBuffer& input(size_t call) { return inputs_[call]; }
  std::vector<std::byte> Output(size_t call) { return outputs_[call].Read(); }

  void Make(size_t call, const CudaStream& stream) {
    const CallKind& kind = kinds_[call];
    const void* const from = inputs_[call].data();
    void* const to = outputs_[call].data();
    onebitCompressor_t const compressor = compressors_[call].get();
    onebitResult_t result = onebitSuccess;
    if (kind.collective == onebitCollectiveAllReduce) {
      result = onebitAllReduce(from, to, kind.count, kind.type, kind.op, compressor, comm_,
                               stream.handle());
    } else if (kind.collective == onebitCollectiveReduceScatter) {
      result = onebitReduceScatter(from, to, kind.count, kind.type, kind.op, compressor, comm_,
                                   stream.handle());
    } else if (kind.collective == onebitCollectiveAllGather) {
      result = onebitAllGather(from, to, kind.count, kind.type, compressor, comm_, stream.handle());
    } else {
      result = onebitAllToAll(from, to, kind.count, kind.type, compressor, comm_, stream.handle());
    }
    ASSERT_EQ(result, onebitSuccess) << onebitGetLastError(nullptr);
  }

 private:
  const onebitComm_t comm_;
  const std::vector<CallKind>& kinds_;
  std::vector<UniqueCompressor> compressors_;
  std::vector<CudaBuffer> inputs_, outputs_;
};

// Finite numbers of any of the three types, or one NaN among them.
std::vector<std::byte> RandomInput(std::mt19937& random, onebitDataType_t type, size_t bytes,
                                   bool has_nan) {
  std::vector<std::byte> input(bytes);
  const auto store = [&](size_t at, float value) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    // Half a float is a bfloat16; as a float16 it is another number of moderate size.
    if (type == onebitFloat32) {
      std::memcpy(&input[4 * at], &bits, 4);
    } else {
      const auto half = static_cast<uint16_t>(bits >> 16);
      std::memcpy(&input[2 * at], &half, 2);
    }
  };
  const size_t count = bytes / BytesOf(type);
  for (size_t i = 0; i < count; ++i) {
    store(i, std::ldexp(static_cast<float>(random() % 512) - 255.5f, -8));
  }
  if (has_nan) store(random() % count, NAN);
  return input;
}

class DeviceGroupsTest : public ::testing::TestWithParam<std::tuple<Over, unsigned>> {};

constexpr size_t kMostAhead = 4;
struct Groups {
  size_t ahead = 1;          // groups that are enqueued before the first one begins
  bool is_captured = false;  // after a first group; the others are replays
  int host_ranks = 0;        // so many successive ranks form a host; 0: all of them
};

// Makes calls of these kinds in a group and alone, four times each, or as many times as many groups
// are ahead.
void ExpectAsAlone(Over over, unsigned seed, const std::vector<CallKind>& kinds,
                   const Groups& groups = {}) {
  constexpr int kRanks = 3;
  RunDeviceRanks(
      over, kRanks,
      [&](onebitComm_t comm, int rank) {
        const CudaStream streams[kMostAhead];  // a stream holds some hundred operations
        const CudaStream& stream = streams[0];
        Calls alone(comm, kRanks, kinds), grouped(comm, kRanks, kinds);
        EXPECT_EQ(grouped.WithTwoLevels() > kinds.size() / 3, groups.host_ranks != 0);
        std::mt19937 random(seed + 1000 * static_cast<unsigned>(rank));
        const auto make_group = [&](const CudaStream& on) {
          ASSERT_EQ(onebitGroupStart(), onebitSuccess);
          for (size_t i = 0; i < kinds.size(); ++i) grouped.Make(i, on);
          ASSERT_EQ(onebitGroupEnd(), onebitSuccess) << onebitGetLastError(nullptr);
        };
        for (unsigned turn = 0; turn < 4; ++turn) {
          for (size_t i = 0; i < kinds.size(); ++i) {
            const bool has_nan = turn == 1 && rank == 1 && i % 7 == seed % 7;
            const std::vector<std::byte> input =
                RandomInput(random, kinds[i].type, alone.input(i).Read().size(), has_nan);
            alone.input(i).Write(input);
            grouped.input(i).Write(input);
          }
          for (size_t group = 0; group < groups.ahead; ++group) {
            for (size_t i = 0; i < kinds.size(); ++i) alone.Make(i, stream);
          }
          if (groups.is_captured && turn > 0) {
            CudaGraph::Begin(stream);
            make_group(stream);
            const CudaGraph graph(stream);
            graph.Launch(stream);
            stream.Synchronize();
          } else if (groups.ahead == 1) {
            make_group(stream);
          } else {
            stream.Synchronize();
            const StreamGate gate(stream);
            for (size_t group = 0; group < groups.ahead; ++group) make_group(streams[group]);
          }
          streams[groups.ahead - 1].Synchronize();
          for (size_t i = 0; i < kinds.size(); ++i) {
            ASSERT_EQ(grouped.Output(i), alone.Output(i)) << "turn " << turn << ", call " << i;
          }
        }
      },
      groups.host_ranks);
}

TEST_P(DeviceGroupsTest, CallsOfAllKindsComeOutAsAlone) {
  const auto [over, seed] = GetParam();
  ExpectAsAlone(over, seed, RandomKinds(40, seed));
}

TEST_P(DeviceGroupsTest, CallsOfAllCodecsComeOutAsAlone) {
  const auto [over, seed] = GetParam();
  ExpectAsAlone(over, seed, RandomLowBitKinds(40, seed));
}

// On hosts of two ranks and of one.
TEST_P(DeviceGroupsTest, CallsInTwoLevelsComeOutAsAlone) {
  const auto [over, seed] = GetParam();
  for (std::vector<CallKind> kinds : {RandomKinds(40, seed), RandomLowBitKinds(40, seed)}) {
    for (CallKind& kind : kinds) kind.count *= 8;  // many take two exchanges
    ExpectAsAlone(over, seed, kinds, {.host_ranks = 2});
  }
}

// 256 pieces fit into a launch, and three of them have one scale together.
TEST_P(DeviceGroupsTest, ScalesOfTensorsAreNotCutByTheEndOfALaunch) {
  const auto [over, seed] = GetParam();
  const CallKind kind = {.block = ONEBIT_BLOCK_TENSOR, .count = 1000 + 8 * seed};
  ExpectAsAlone(over, seed, std::vector<CallKind>(100, kind));
}

std::vector<CallKind> ManyShortCalls(unsigned seed) {
  std::vector<CallKind> kinds = RandomKinds(200, seed);
  for (CallKind& kind : kinds) kind.count = 1 + kind.count % 100;
  return kinds;
}

// The lists of messages and of ends do not fit into the parameters of a launch.
TEST_P(DeviceGroupsTest, LongListsComeOutAsAlone) {
  const auto [over, seed] = GetParam();
  ExpectAsAlone(over, seed, ManyShortCalls(seed));
}

// A graph has several launches for them.
TEST(LongGroupsTest, InGraphsComeOutAsAlone) {
  ExpectAsAlone(Over::kNccl, 1, ManyShortCalls(1), {.is_captured = true});
}

// And so have groups for whose lists there is no memory, because that of the groups before them is
// in use. Each call here has three fills.
TEST(LongGroupsTest, AheadOfTheDeviceComeOutAsAlone) {
  const CallKind kind = {.transactional = 0, .count = 40};
  ExpectAsAlone(Over::kNccl, 1, std::vector<CallKind>(90, kind), {.ahead = 4});
}

INSTANTIATE_TEST_SUITE_P(Seeds, DeviceGroupsTest,
                         ::testing::Combine(::testing::Values(Over::kLocal, Over::kNccl),
                                            ::testing::Values(1u, 2u, 3u)),
                         [](const auto& info) {
                           return std::string(NameOf(std::get<0>(info.param))) +
                                  std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace onebit::testing
