// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Compressed allreduces in two levels. Between hosts a rail is an allreduce of the hosts' means, so
// it is compared, bit for bit, with one of a rank per host.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "api/handles.h"
#include "tests/collectives/level_kinds.h"
#include "tests/support/comm_group.h"
#include "tests/support/residuals.h"
#include "tests/support/tensor.h"

namespace onebit::testing {
namespace {

using kernels::DataType;

// One tensor over some calls on a group with compressors of two levels.
class LevelsRun {
 public:
  LevelsRun(const std::string& letters, const LevelKind& kind, size_t count, DataType type,
            const CommOptions& options = kPatient)
      : hosts_(MapOfHosts(letters)), group_(OnHosts(letters, options)), count_(count) {
    for (int rank = 0; rank < group_.ranks(); ++rank) {
      compressors_.push_back(
          NewCompressor(group_.comm(rank), count, ApiType(type), ConfigOf(kind, 2)));
    }
  }

  const HostMap& hosts() const { return hosts_; }
  CommGroup& group() { return group_; }
  onebitCompressor_t compressor(uint32_t rank) const { return compressors_[rank].get(); }
  const Plan& plan(uint32_t rank) const { return *compressors_[rank]->planned.plan; }

  // Makes a call, and returns the result, which all ranks have to share.
  Tensor Call(const Tensors& inputs, onebitRedOp_t op, bool is_in_place = false) {
    Tensors outputs;
    for (const Tensor& input : inputs) {
      outputs.emplace_back(count_, input.type());
      if (is_in_place) outputs.back().CopyFrom(input);
    }
    group_.Run([&](int rank) {
      const auto r = static_cast<size_t>(rank);
      const std::byte* const input = is_in_place ? outputs[r].data() : inputs[r].data();
      ASSERT_EQ(onebitAllReduce(input, outputs[r].data(), count_, outputs[r].api_type(), op,
                                compressors_[r].get(), group_.comm(rank), nullptr),
                onebitSuccess)
          << onebitGetLastError(nullptr);
    });
    for (const Tensor& output : outputs) {
      EXPECT_TRUE(output.HasBytesOf(outputs[0]));
      EXPECT_TRUE(output.HasIntactGuards());
    }
    return std::move(outputs[0]);
  }

 private:
  HostMap hosts_;
  CommGroup group_;
  size_t count_;
  std::vector<UniqueCompressor> compressors_;
};

// Allreduces of the parts of a tensor, each on a group with a rank for every host.
class RailsRun {
 public:
  RailsRun(const LevelsRun& levels, const LevelKind& kind, const CommOptions& options)
      : hosts_(levels.hosts()) {
    for (uint32_t rail = 0; rail < hosts_.rails(); ++rail) {
      parts_.push_back(levels.plan(hosts_.RanksOn(0)[rail]).compressed);
      groups_.push_back(std::make_unique<CommGroup>(static_cast<int>(hosts_.hosts()), options));
      compressors_.emplace_back();
      for (uint32_t host = 0; host < hosts_.hosts(); ++host) {
        const onebitComm_t comm = groups_[rail]->comm(static_cast<int>(host));
        compressors_[rail].push_back(
            NewCompressor(comm, parts_[rail].count, onebitFloat32, ConfigOf(kind, 1)));
        if (hosts_.is_even()) continue;
        const auto weight = static_cast<float>(hosts_.RanksOn(host).size());
        EXPECT_EQ(onebitCompressorSetWeight(compressors_[rail].back().get(), weight),
                  onebitSuccess);
      }
    }
  }

  onebitCompressor_t compressor(uint32_t rail, uint32_t host) const {
    return compressors_[rail][host].get();
  }
  void SetWeights(const std::vector<float>& weights) {
    for (uint32_t rail = 0; rail < hosts_.rails(); ++rail) {
      for (uint32_t host = 0; host < hosts_.hosts(); ++host) {
        EXPECT_EQ(onebitCompressorSetWeight(compressor(rail, host), weights[host]), onebitSuccess);
      }
    }
  }

  std::vector<float> Call(std::vector<std::vector<float>> means) {
    for (uint32_t rail = 0; rail < hosts_.rails(); ++rail) {
      groups_[rail]->Run([&](int host) {
        float* const part = means[static_cast<size_t>(host)].data() + parts_[rail].begin;
        ASSERT_EQ(onebitAllReduce(part, part, parts_[rail].count, onebitFloat32, onebitAvg,
                                  compressor(rail, static_cast<uint32_t>(host)),
                                  groups_[rail]->comm(host), nullptr),
                  onebitSuccess)
            << onebitGetLastError(nullptr);
      });
    }
    return means[0];
  }

 private:
  const HostMap& hosts_;
  std::vector<ElementRange> parts_;
  std::vector<std::unique_ptr<CommGroup>> groups_;
  std::vector<std::vector<UniqueCompressor>> compressors_;  // by rail and host
};

class TwoLevelsCodecTest : public ::testing::TestWithParam<std::tuple<std::string, LevelKind>> {
 protected:
  const std::string& letters() const { return std::get<0>(GetParam()); }
  const LevelKind& kind() const { return std::get<1>(GetParam()); }
  std::mt19937 random_{9317};
};

// Parts are full here, so that a rail has the chunks of an allreduce of its part.
TEST_P(TwoLevelsCodecTest, RailsAreAllreducesOfTheMeansOfHosts) {
  if (kind().has_draws) GTEST_SKIP() << "draws depend on the ranks and elements";
  for (const size_t segment_elements : {262'144, 320}) {
    CommOptions options = kPatient;
    options.segment_elements = segment_elements;
    const HostMap hosts = MapOfHosts(letters());
    const size_t count = size_t{hosts.rails()} * hosts.hosts() * 64 * 21;
    LevelsRun levels(letters(), kind(), count, DataType::kF32, options);
    RailsRun flat(levels, kind(), options);
    for (int call = 0; call < 4; ++call) {
      const Tensors inputs = RandomTensors(hosts.ranks(), count, DataType::kF32, random_);
      const Tensor output = levels.Call(inputs, onebitAvg, call % 2 == 1);
      ASSERT_EQ(FloatsOf(output), flat.Call(MeansOf(inputs, hosts))) << "call " << call;
    }
    for (uint32_t rank = 0; rank < hosts.ranks(); ++rank) {
      const uint32_t rail = hosts.LocalRankOf(rank);
      const Residuals residuals = ResidualsOf(levels.compressor(rank));
      if (rail >= hosts.rails()) {
        EXPECT_TRUE(residuals.worker.empty() && residuals.server.empty());
      } else {
        EXPECT_EQ(residuals, ResidualsOf(flat.compressor(rail, hosts.HostOf(rank))));
      }
    }
  }
}

// The weights of the ranks of a host add up, and a host whose ranks are all absent is absent.
TEST_P(TwoLevelsCodecTest, RailsHaveTheWeightsOfHosts) {
  if (kind().has_draws) GTEST_SKIP() << "draws depend on the ranks and elements";
  const HostMap hosts = MapOfHosts(letters());
  const size_t count = size_t{hosts.rails()} * hosts.hosts() * 64 * 10;
  LevelsRun levels(letters(), kind(), count, DataType::kF32);
  RailsRun flat(levels, kind(), kPatient);
  for (int call = 0; call < 7; ++call) {
    SCOPED_TRACE(::testing::Message() << "call " << call);
    std::vector<float> weights(hosts.ranks());
    for (uint32_t rank = 0; rank < hosts.ranks(); ++rank) {
      const bool is_absent = call == 1   ? rank == 0
                             : call == 2 ? hosts.HostOf(rank) == 0
                             : call == 3 ? hosts.HostOf(rank) != 0
                             : call == 4 ? true
                                         : random_() % 4 == 0;
      if (!is_absent) weights[rank] = 0.25f + static_cast<float>(random_() % 100) / 8;
    }
    const Tensors inputs = RandomTensors(hosts.ranks(), count, DataType::kF32, random_);
    levels.group().Run([&](int rank) {
      const auto r = static_cast<uint32_t>(rank);
      ASSERT_EQ(onebitCompressorSetWeight(levels.compressor(r), weights[r]), onebitSuccess)
          << onebitGetLastError(nullptr);
    });
    flat.SetWeights(WeightsOf(weights, hosts));
    const Tensor output = levels.Call(inputs, onebitAvg, call % 2 == 1);
    ASSERT_EQ(FloatsOf(output), flat.Call(MeansOf(inputs, hosts, weights)));
    for (uint32_t rank = 0; rank < hosts.ranks(); ++rank) {
      const uint32_t rail = hosts.LocalRankOf(rank);
      EXPECT_EQ(StatsOf(levels.compressor(rank)).epoch, StatsOf(flat.compressor(0, 0)).epoch);
      if (rail >= hosts.rails()) continue;
      EXPECT_EQ(ResidualsOf(levels.compressor(rank)),
                ResidualsOf(flat.compressor(rail, hosts.HostOf(rank))));
    }
  }
}

// Counts that end within a part, types that round, and sums.
TEST_P(TwoLevelsCodecTest, NothingIsLost) {
  if (kind().mode == onebitModePlain) GTEST_SKIP() << "no residuals";
  const HostMap hosts = MapOfHosts(letters());
  const double ranks = hosts.ranks();
  for (const DataType type : {DataType::kF32, DataType::kF16, DataType::kBf16}) {
    for (const size_t count : {1, 100, 2000, 4097}) {
      for (const onebitRedOp_t op : {onebitAvg, onebitSum}) {
        SCOPED_TRACE(::testing::Message()
                     << "type " << ApiType(type) << " count " << count << " op " << op);
        LevelsRun run(letters(), kind(), count, type);
        std::vector<double> owed(count, 0.0);  // sum of the mean inputs - what came out
        double largest = 0;
        const auto note = [&largest](double value) {
          largest = std::max(largest, std::abs(value));
        };
        for (int call = 0; call < 5; ++call) {
          const Tensors inputs = RandomTensors(hosts.ranks(), count, type, random_);
          const Tensor output = run.Call(inputs, op, call % 2 == 0);
          const double unit = op == onebitSum ? ranks : 1;
          for (size_t i = 0; i < count; ++i) {
            for (const Tensor& input : inputs) owed[i] += input.Get(i) / ranks;
            owed[i] -= output.Get(i) / unit;
            note(output.Get(i) / unit);
          }
        }
        for (uint32_t rank = 0; rank < hosts.ranks(); ++rank) {
          const ElementRange mine = run.plan(rank).compressed;
          const std::vector<float> worker = WorkerResidualOf(run.compressor(rank));
          ASSERT_EQ(worker.size(), mine.count);
          const double share =
              static_cast<double>(hosts.RanksOn(hosts.HostOf(rank)).size()) / ranks;
          for (size_t i = 0; i < worker.size(); ++i) owed[mine.begin + i] -= share * worker[i];
          const std::vector<float> server = ServerResidualOf(run.compressor(rank));
          const size_t begin = run.plan(rank).served.begin;
          ASSERT_EQ(server.size(), run.plan(rank).served.count);
          // Servers of a sum work on the sum.
          const double unit = op == onebitSum ? ranks : 1;
          for (size_t i = 0; i < server.size(); ++i) owed[begin + i] -= server[i] / unit;
          for (const float value : worker) note(value);
        }
        const double tolerance = kind().residual_type == onebitBfloat16 ? 2e-2 : 1e-5;
        for (size_t i = 0; i < count; ++i) EXPECT_LE(std::abs(owed[i]), tolerance * largest) << i;
      }
    }
  }
}

TEST_P(TwoLevelsCodecTest, ANanSpoilsTheCallEverywhereAndNoResidual) {
  if (kind().mode == onebitModePlain) GTEST_SKIP() << "no verdict";
  constexpr size_t kCount = 5000;
  const HostMap hosts = MapOfHosts(letters());
  LevelsRun run(letters(), kind(), kCount, DataType::kF32);
  Tensors inputs = RandomTensors(hosts.ranks(), kCount, DataType::kF32, random_);
  run.Call(inputs, onebitAvg);
  for (uint32_t spoiler = 0; spoiler < hosts.ranks(); ++spoiler) {
    std::vector<Residuals> before;
    for (uint32_t rank = 0; rank < hosts.ranks(); ++rank) {
      before.push_back(ResidualsOf(run.compressor(rank)));
    }
    const float good = inputs[spoiler].Get(4999);
    inputs[spoiler].Set(4999, std::numeric_limits<float>::quiet_NaN());
    const Tensor output = run.Call(inputs, onebitAvg);
    for (size_t i = 0; i < kCount; ++i) ASSERT_TRUE(std::isnan(output.Get(i))) << i;
    inputs[spoiler].Set(4999, good);
    for (uint32_t rank = 0; rank < hosts.ranks(); ++rank) {
      EXPECT_EQ(ResidualsOf(run.compressor(rank)), before[rank]) << "rank " << rank;
      EXPECT_EQ(StatsOf(run.compressor(rank)).epoch, 1u);
    }
  }
  EXPECT_FALSE(std::isnan(run.Call(inputs, onebitAvg).Get(0)));
}

INSTANTIATE_TEST_SUITE_P(
    Hosts, TwoLevelsCodecTest,
    ::testing::Combine(::testing::Values("aabb", "abab", "aab", "aaaabbc", "aaaabbbb"),
                       ::testing::ValuesIn(LevelKinds())),
    [](const auto& info) { return std::get<0>(info.param) + std::get<1>(info.param).name; });

// Numbers that a separate fp64 program computed: two hosts with two ranks each, three calls of
// inputs
// ((7k + 5r + 3t + 2) mod 11) - 5 for element k, rank r and call t, one scale for each chunk of 8.
struct Oracle {
  double scales[3][4];    // of the outputs, by call and chunk
  const char* signs[3];   // of the outputs
  double workers[4][16];  // by rank, after the last call
  double servers[4][8];
};
const Oracle kOracle = {
    .scales = {{1.35636712479, 1.20619825322, 1.20216758665, 1.26898634003},
               {1.97653072558, 1.26440339641, 2.00992259026, 1.33274575045},
               {1.6951248898, 1.52644692607, 1.87190518098, 1.79411925242}},
    .signs = {"-++--++--++-++--+--++--++-++--++", "+-+-+--+++++-+-+-++--++-+----+--",
              "-----+--++-+----+--++--+---++-++"},
    .workers = {{-0.9139557398, -0.307211889733, -1.79520652177, 0.307211889733, 0.9139557398,
                 1.19278811027, 2.0163741513, 1.80721188973, -1.75467025294, -1.98489223504,
                 -1.24532974706, -0.984892235042, -0.254670252936, -1.74532974706, 0.254670252936,
                 0.984892235042},
                {0.692890376746, 1.93021524887, 2.30710962325, -2.30710962325, 2.19289037675,
                 -0.692890376746, -0.848008247387, -0.807109623254, -1.39659967527, 0.938816340766,
                 1.04732178983, 0.561183659234, 2.38273780587, 2.43881634077, -2.43881634077,
                 2.06118365923},
                {0.784119232094, 0.923004205447, 0.715880767906, 2.08528186562, 2.28411923209,
                 -2.28411923209, 2.21588076791, -0.715880767906, -0.9139557398, -0.307211889733,
                 -1.79520652177, 0.307211889733, 0.9139557398, 1.19278811027, 2.0163741513,
                 1.80721188973},
                {-1.75467025294, -1.98489223504, -1.24532974706, -0.984892235042, -0.254670252936,
                 -1.74532974706, 0.254670252936, 0.984892235042, 0.692890376746, 1.93021524887,
                 2.30710962325, -2.30710962325, 2.19289037675, -0.692890376746, -0.848008247387,
                 -0.807109623254}},
    .servers = {{1.63987954285, 1.50739233274, 0.151889916356, 1.33177586249, -1.27407619695,
                 0.470704271916, 0.199161030993, -0.470704271916},
                {0.466739760726, 1.09148867045, -0.466739760726, 1.33185075178, 0.466739760726,
                 1.03326023927, 1.86081917459, -1.65304148326},
                {0.499660927111, -0.350996513315, -0.673886589153, -0.745811896602, 0.755009325825,
                 0.582116094831, 0.361526373586, -0.677810279509},
                {0.794241811209, 0.461335548079, -0.569337043698, 0.142603140009, -1.48020125326,
                 -0.142603140009, 0.663052452076, 0.142603140009}}};

TEST(TwoLevelsOracleTest, OutputsAndResidualsAreThoseOfTheFormulas) {
  CommGroup group(OnHosts("aabb", kPatient));
  group.Run([&](int rank) {
    onebitCompressorConfig_t config = ConfigOf({.name = "SignEf"}, 2);
    config.chunkAlignment = 8;
    const UniqueCompressor compressor = NewCompressor(group.comm(rank), 32, onebitFloat32, config);
    for (int call = 0; call < 3; ++call) {
      std::vector<float> values(32);
      for (int k = 0; k < 32; ++k) {
        values[static_cast<size_t>(k)] =
            static_cast<float>((7 * k + 5 * rank + 3 * call + 2) % 11 - 5);
      }
      ASSERT_EQ(onebitAllReduce(values.data(), values.data(), 32, onebitFloat32, onebitAvg,
                                compressor.get(), group.comm(rank), nullptr),
                onebitSuccess);
      for (size_t k = 0; k < 32; ++k) {
        const double scale = kOracle.scales[call][k / 8];
        EXPECT_NEAR(values[k], kOracle.signs[call][k] == '-' ? -scale : scale, 1e-5) << k;
      }
    }
    const std::vector<float> worker = WorkerResidualOf(compressor.get());
    const std::vector<float> server = ServerResidualOf(compressor.get());
    for (size_t i = 0; i < 16; ++i) EXPECT_NEAR(worker[i], kOracle.workers[rank][i], 1e-5) << i;
    for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(server[i], kOracle.servers[rank][i], 1e-5) << i;
  });
}

// A mask takes elements out, whatever rank has them.
TEST(TwoLevelsMaskTest, ElementsOutsideAreZero) {
  constexpr size_t kCount = 3000;
  CommGroup group(OnHosts("aabb", kPatient));
  std::vector<uint8_t> mask((kCount + 7) / 8, 0b0101'0110);
  group.Run([&](int rank) {
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.mask = mask.data();
    config.block = 64;
    config.levels = 2;
    const UniqueCompressor compressor =
        NewCompressor(group.comm(rank), kCount, onebitFloat32, config);
    std::vector<float> values(kCount, 1.5f);
    ASSERT_EQ(onebitAllReduce(values.data(), values.data(), kCount, onebitFloat32, onebitAvg,
                              compressor.get(), group.comm(rank), nullptr),
              onebitSuccess);
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(values[i], (mask[i / 8] >> (i % 8) & 1) != 0 ? 1.5f : 0.0f) << i;
    }
  });
}

TEST(TwoLevelsConfigTest, IsRefusedWhereThereIsOneLevelOnly) {
  CommGroup group(OnHosts("aabb", {.timeout_ms = 20'000, .one_exchange_elements = 8192}));
  const auto error = [&](size_t count, const auto& change) {
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.levels = 2;
    change(config);
    onebitCompressor_t made = nullptr;
    EXPECT_EQ(onebitCompressorCreate(&made, group.comm(0), count, onebitFloat32, &config),
              onebitInvalidArgument);
    return std::string(onebitGetLastError(nullptr));
  };
  using Config = onebitCompressorConfig_t;
  EXPECT_NE(error(50'000, [](Config& c) { c.levels = 3; }).find("levels is 3"), std::string::npos);
  EXPECT_NE(error(50'000, [](Config& c) { c.block = ONEBIT_BLOCK_TENSOR; }).find("BLOCK_TENSOR"),
            std::string::npos);
  EXPECT_NE(error(50'000, [](Config& c) { c.codec = onebitCodecTopk; }).find("hops"),
            std::string::npos);
  EXPECT_NE(error(50'000, [](Config& c) { c.collective = onebitCollectiveAllToAll; })
                .find("an all-gather"),
            std::string::npos);
  EXPECT_NE(error(100, [](Config&) {}).find("ONEBIT_ONE_EXCHANGE_ELEMENTS"), std::string::npos);
}

// Sparse codecs have one exchange with one hop alone, however few elements there are.
TEST(TwoLevelsConfigTest, ShortTensorsOfSparseCodecsHaveLevels) {
  CommGroup group(OnHosts("aabb", {.timeout_ms = 20'000, .one_exchange_elements = 8192}));
  onebitCompressorConfig_t config = ConfigOf({.name = "Topk", .codec = onebitCodecTopk}, 2);
  config.block = 320;
  config.hops = 2;
  EXPECT_EQ(StatsOf(NewCompressor(group.comm(0), 1000, onebitFloat32, config).get()).levels, 2u);
}

// A compressor's figures of its calls are those that the communicator counts.
TEST(TwoLevelsStatsTest, SayHowManyBytesLeaveTheHost) {
  constexpr size_t kCount = 10'000;
  for (int levels = 1; levels <= 2; ++levels) {
    CommGroup group(OnHosts("aabab", kPatient));
    group.Run([&](int rank) {
      const UniqueCompressor compressor = NewCompressor(group.comm(rank), kCount, onebitFloat32,
                                                        ConfigOf({.name = "SignEf"}, levels));
      std::vector<float> values(kCount, 1.0f);
      ASSERT_EQ(onebitAllReduce(values.data(), values.data(), kCount, onebitFloat32, onebitAvg,
                                compressor.get(), group.comm(rank), nullptr),
                onebitSuccess);
      const onebitCompressorStats_t stats = StatsOf(compressor.get());
      const onebitCommStats_t counted = StatsOf(group.comm(rank));
      EXPECT_EQ(stats.levels, static_cast<uint64_t>(levels));
      EXPECT_EQ(stats.exchanges, levels == 2 ? 4u : 2u);
      EXPECT_EQ(stats.wire_bytes, counted.bytes_sent);
      EXPECT_EQ(stats.network_bytes, counted.network_bytes);
      EXPECT_EQ(counted.two_level_calls, levels == 2 ? 1u : 0u);
      // Local rank 2 of host a has no rail.
      EXPECT_EQ(stats.network_bytes == 0, levels == 2 && rank == 3);
    });
  }
}

// Memory of error feedback falls by the number of rails.
TEST(TwoLevelsMemoryTest, ResidualsAreSharedOutAmongTheRanksOfAHost) {
  constexpr size_t kCount = 64 * 8 * 100;
  CommGroup group(OnHosts("aaaabbbb", kPatient));
  for (int levels = 1; levels <= 2; ++levels) {
    const UniqueCompressor compressor =
        NewCompressor(group.comm(3), kCount, onebitFloat32, ConfigOf({.name = "SignEf"}, levels));
    const size_t worker = 2 * sizeof(float) * kCount / (levels == 2 ? 4 : 1);
    EXPECT_EQ(StatsOf(compressor.get()).residual_bytes, worker + 2 * sizeof(float) * kCount / 8);
  }
}

}  // namespace
}  // namespace onebit::testing
