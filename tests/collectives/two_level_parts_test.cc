// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Reduce-scatters, all-gathers and broadcasts in two levels. What an all-gather or a broadcast
// gives does not depend on levels. A chunk of a reduce-scatter is one of the means of hosts.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "api/handles.h"
#include "perf/common/allreduce_model.h"
#include "tests/collectives/allreduce_case.h"
#include "tests/collectives/level_kinds.h"
#include "tests/support/dense_types.h"
#include "tests/support/exported_state.h"
#include "tests/support/residuals.h"

namespace onebit::testing {
namespace {

using kernels::DataType;
using kernels::DenseOp;

constexpr const char* kHosts[] = {"aabb", "abab", "aab", "abb", "aaaabbc", "abbbcccc", "aaaabbbb"};

CommOptions WithLevels(size_t segment_elements = 262'144) {
  return {.timeout_ms = 20'000, .two_level_bytes = 0, .segment_elements = segment_elements};
}

// The bytes that each rank sends to other hosts, by host.
std::vector<uint64_t> NetworkBytes(CommGroup& group, const HostMap& hosts) {
  std::vector<uint64_t> bytes(hosts.hosts());
  for (uint32_t rank = 0; rank < hosts.ranks(); ++rank) {
    bytes[hosts.HostOf(rank)] += StatsOf(group.comm(static_cast<int>(rank))).network_bytes;
  }
  return bytes;
}

class DensePartsTest : public ::testing::TestWithParam<const char*> {
 protected:
  HostMap hosts() const { return MapOfHosts(GetParam()); }
  CommGroup Group(const CommOptions& options) const {
    return CommGroup(OnHosts(GetParam(), options));
  }
  std::mt19937 random_{8123};
};

TEST_P(DensePartsTest, ReduceScattersAreThoseOfHosts) {
  const size_t ranks = hosts().ranks();
  CommGroup group = Group(WithLevels(1000));
  for (const DataType type : kernels::kDenseTypes) {
    for (const DenseOp op : kernels::kDenseOps) {
      for (const size_t count : {0, 1, 65, 2001}) {
        Tensors inputs;
        std::vector<const void*> pointers;
        for (size_t rank = 0; rank < ranks; ++rank) {
          inputs.emplace_back(count * ranks, type).FillRandom(random_);
        }
        for (const Tensor& input : inputs) pointers.push_back(input.data());
        Tensor expected(count * ranks, type);
        model::DenseAllReduceOnHosts(LayoutOf(hosts()), pointers, expected.count(), type, op,
                                     expected.data());
        const bool is_in_place = count % 2 == 1;
        group.Run([&](int rank) {
          const auto r = static_cast<size_t>(rank);
          const size_t begin = r * count * kernels::BytesOf(type);
          Tensor output(count, type);
          std::byte* const to = is_in_place ? inputs[r].data() + begin : output.data();
          ASSERT_EQ(onebitReduceScatter(inputs[r].data(), to, count, ApiType(type), ApiOp(op),
                                        nullptr, group.comm(rank), nullptr),
                    onebitSuccess)
              << onebitGetLastError(nullptr);
          EXPECT_TRUE(std::equal(to, to + count * kernels::BytesOf(type), expected.data() + begin))
              << "type " << ApiType(type) << " op " << ApiOp(op) << " count " << count << " rank "
              << rank;
          EXPECT_TRUE(output.HasIntactGuards() && inputs[r].HasIntactGuards());
        });
      }
    }
  }
  EXPECT_EQ(StatsOf(group.comm(0)).two_level_calls, StatsOf(group.comm(0)).dense_calls);
}

TEST_P(DensePartsTest, AllGathersBringEveryPart) {
  const size_t ranks = hosts().ranks();
  CommGroup group = Group(WithLevels(1000));
  for (const size_t count : {0, 1, 65, 20'001}) {
    for (const bool is_in_place : {false, true}) {
      group.Run([&](int rank) {
        const auto part = static_cast<int32_t>(1000 * rank);
        std::vector<int32_t> all(ranks * count, -1), mine(count);
        for (size_t i = 0; i < count; ++i) mine[i] = part + static_cast<int32_t>(i);
        int32_t* const own = all.data() + static_cast<size_t>(rank) * count;
        if (is_in_place) std::ranges::copy(mine, own);
        ASSERT_EQ(onebitAllGather(is_in_place ? own : mine.data(), all.data(), count, onebitInt32,
                                  nullptr, group.comm(rank), nullptr),
                  onebitSuccess)
            << onebitGetLastError(nullptr);
        for (size_t r = 0; r < ranks; ++r) {
          for (size_t i = 0; i < count; ++i) {
            ASSERT_EQ(all[r * count + i], static_cast<int32_t>(1000 * r + i)) << r << " " << i;
          }
        }
      });
    }
  }
}

TEST_P(DensePartsTest, BroadcastsBringTheRootsBuffer) {
  const int ranks = static_cast<int>(hosts().ranks());
  CommGroup group = Group(WithLevels(1000));
  for (int root = 0; root < ranks; ++root) {
    for (const size_t count : {0, 1, 63, 1001, 20'001}) {
      group.Run([&](int rank) {
        std::vector<int64_t> values(count, rank == root ? root : -1), received(count, -2);
        for (size_t i = 0; i < count; ++i) values[i] *= static_cast<int64_t>(i + 1);
        const bool is_in_place = root % 2 == 0;
        int64_t* const to = is_in_place ? values.data() : received.data();
        ASSERT_EQ(
            onebitBroadcast(values.data(), to, count, onebitInt64, root, group.comm(rank), nullptr),
            onebitSuccess)
            << onebitGetLastError(nullptr);
        for (size_t i = 0; i < count; ++i) {
          ASSERT_EQ(to[i], root * static_cast<int64_t>(i + 1)) << rank << " " << i;
        }
      });
    }
  }
  EXPECT_GT(StatsOf(group.comm(0)).two_level_calls, 0u);
}

TEST_P(DensePartsTest, ABroadcastOfAnotherRootIsFound) {
  CommGroup group = Group(WithLevels());
  const auto outcomes = group.Call([&](int rank) {
    std::vector<float> values(1000);
    return onebitBroadcast(values.data(), values.data(), values.size(), onebitFloat32,
                           rank == 0 ? 1 : 0, group.comm(rank), nullptr);
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_NE(outcome.result, onebitSuccess);
    EXPECT_FALSE(HasRunIntoDeadline(outcome)) << outcome.text;
  }
}

// The test does not count headers.
TEST_P(DensePartsTest, EachHostsLinkCarriesAPartOnce) {
  constexpr size_t kPart = 6400;
  const HostMap map = hosts();
  const size_t others = map.hosts() - 1;
  const auto bytes_of = [&](const auto& call) {
    CommGroup group = Group(WithLevels());
    group.Run([&](int rank) {
      std::vector<float> small(kPart, 1), large(kPart * map.ranks(), 1);
      ASSERT_EQ(call(small.data(), large.data(), group.comm(rank)), onebitSuccess)
          << onebitGetLastError(nullptr);
    });
    return NetworkBytes(group, map);
  };
  const auto gathered = bytes_of([&](float* small, float* large, onebitComm_t comm) {
    return onebitAllGather(small, large, kPart, onebitFloat32, nullptr, comm, nullptr);
  });
  const auto scattered = bytes_of([&](float* small, float* large, onebitComm_t comm) {
    return onebitReduceScatter(large, small, kPart, onebitFloat32, onebitSum, nullptr, comm,
                               nullptr);
  });
  const auto broadcast = bytes_of([&](float* small, float*, onebitComm_t comm) {
    return onebitBroadcast(small, small, kPart, onebitFloat32, 0, comm, nullptr);
  });
  constexpr size_t kHeader = 64;
  const size_t part = kPart * sizeof(float) + kHeader;
  for (uint32_t host = 0; host < map.hosts(); ++host) {
    const size_t here = map.RanksOn(host).size();
    EXPECT_EQ(gathered[host], here * others * part);
    EXPECT_EQ(scattered[host], (map.ranks() - here) * part);
    // The root's host sends the buffer once; each other host its chunk to all but the root's.
    const size_t chunks = kPart * sizeof(float);
    EXPECT_NEAR(static_cast<double>(broadcast[host]),
                static_cast<double>(host == 0 ? chunks : chunks / others * (others - 1)),
                static_cast<double>(others * 256 + map.ranks() * map.ranks() * kHeader));
  }
}

INSTANTIATE_TEST_SUITE_P(Hosts, DensePartsTest, ::testing::ValuesIn(kHosts),
                         [](const auto& info) { return std::string(info.param); });

// A group of ranks with a compressor on each.
struct Ranks {
  Ranks(std::vector<CommOptions> options, const onebitCompressorConfig_t& config, size_t count,
        DataType type = DataType::kF32)
      : group(std::move(options)) {
    for (int rank = 0; rank < group.ranks(); ++rank) {
      compressors.push_back(NewCompressor(group.comm(rank), count, ApiType(type), config));
    }
  }
  onebitCompressor_t compressor(uint32_t rank) const { return compressors[rank].get(); }

  CommGroup group;
  std::vector<UniqueCompressor> compressors;
};

class PartsCodecTest : public ::testing::TestWithParam<std::tuple<const char*, LevelKind>> {
 protected:
  const char* letters() const { return std::get<0>(GetParam()); }
  HostMap hosts() const { return MapOfHosts(letters()); }
  const LevelKind& kind() const { return std::get<1>(GetParam()); }
  onebitCompressorConfig_t Config(onebitCollective_t collective, int levels) const {
    onebitCompressorConfig_t config = ConfigOf(kind(), levels);
    config.collective = collective;
    config.hops = ONEBIT_UNDEF_INT;  // of an allreduce
    return config;
  }
  // All-gathers keep what they send in fp32.
  bool is_refused(onebitCollective_t collective) const {
    return collective == onebitCollectiveAllGather && kind().residual_type != onebitFloat32;
  }
  std::mt19937 random_{9317};
};

TEST_P(PartsCodecTest, AllGathersAreThoseOfOneLevel) {
  if (is_refused(onebitCollectiveAllGather)) GTEST_SKIP() << "estimates are fp32";
  constexpr size_t kPart = 3000;
  for (const size_t segment_elements : {262'144, 320}) {
    CommOptions options = kPatient;
    options.segment_elements = segment_elements;
    const size_t ranks = hosts().ranks();
    const auto make = [&](int levels) {
      return Ranks(OnHosts(letters(), options), Config(onebitCollectiveAllGather, levels), kPart);
    };
    Ranks levels = make(2), flat = make(1);
    // Calls of one compressor compare estimates now and then.
    for (int call = 0; call < 3; ++call) {
      const Tensors inputs = RandomTensors(ranks, kPart, DataType::kF32, random_);
      Tensors outputs;
      for (Ranks* one : {&levels, &flat}) {
        for (size_t rank = 0; rank < ranks; ++rank) {
          outputs.emplace_back(kPart * ranks, DataType::kF32);
        }
        const size_t first = outputs.size() - ranks;
        one->group.Run([&](int rank) {
          const auto r = static_cast<size_t>(rank);
          ASSERT_EQ(
              onebitAllGather(inputs[r].data(), outputs[first + r].data(), kPart, onebitFloat32,
                              one->compressors[r].get(), one->group.comm(rank), nullptr),
              onebitSuccess)
              << onebitGetLastError(nullptr);
        });
      }
      for (const Tensor& output : outputs) ASSERT_TRUE(output.HasBytesOf(outputs[0]));
    }
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(StatsOf(levels.compressor(rank)).levels, 2u);
      EXPECT_EQ(ResidualsOf(levels.compressor(rank)), ResidualsOf(flat.compressor(rank)));
    }
  }
}

// The chunk of one rank, as a reduce-scatter between a rank for each host.
class ChunkRun {
 public:
  ChunkRun(const HostMap& hosts, uint32_t host, onebitCompressorConfig_t config, size_t count,
           const CommOptions& options)
      : ranks_(std::vector<CommOptions>(hosts.hosts(), options), config, count),
        host_(host),
        count_(count) {
    if (hosts.is_even()) return;
    std::vector<float> sizes;
    for (uint32_t h = 0; h < hosts.hosts(); ++h) {
      sizes.push_back(static_cast<float>(hosts.RanksOn(h).size()));
    }
    SetWeights(sizes);
  }
  void SetWeights(const std::vector<float>& weights) {
    for (uint32_t h = 0; h < weights.size(); ++h) {
      EXPECT_EQ(onebitCompressorSetWeight(ranks_.compressor(h), weights[h]), onebitSuccess);
    }
  }

  std::vector<float> Call(const std::vector<std::vector<float>>& means, size_t begin) {
    std::vector<float> result(count_);
    ranks_.group.Run([&](int h) {
      std::vector<float> input(count_ * static_cast<size_t>(ranks_.group.ranks()));
      std::copy_n(means[static_cast<size_t>(h)].begin() + static_cast<std::ptrdiff_t>(begin),
                  count_, input.begin() + static_cast<std::ptrdiff_t>(host_ * count_));
      std::vector<float> output(count_);
      ASSERT_EQ(onebitReduceScatter(input.data(), output.data(), count_, onebitFloat32, onebitAvg,
                                    ranks_.compressor(static_cast<uint32_t>(h)),
                                    ranks_.group.comm(h), nullptr),
                onebitSuccess)
          << onebitGetLastError(nullptr);
      if (h == static_cast<int>(host_)) result = output;
    });
    return result;
  }
  std::vector<float> WorkerResidual(uint32_t host) const {
    const std::vector<float> all = WorkerResidualOf(ranks_.compressor(host));
    if (all.empty()) return {};
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(host_ * count_);
    return {begin, begin + static_cast<std::ptrdiff_t>(count_)};
  }

 private:
  Ranks ranks_;
  uint32_t host_;
  size_t count_;
};

TEST_P(PartsCodecTest, ReduceScattersAreThoseOfTheMeansOfHosts) {
  if (kind().has_draws) GTEST_SKIP() << "draws depend on the ranks and elements";
  constexpr size_t kPart = 2001;
  const HostMap map = hosts();
  const size_t ranks = map.ranks();
  for (const bool is_weighted : {false, true}) {
    SCOPED_TRACE(is_weighted ? "weighted" : "unweighted");
    const onebitCompressorConfig_t config = Config(onebitCollectiveReduceScatter, 2);
    CommOptions options = kPatient;
    if (!is_weighted) options.segment_elements = 640;
    Ranks levels(OnHosts(letters(), options), config, kPart);
    std::vector<std::unique_ptr<ChunkRun>> chunks;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      chunks.push_back(std::make_unique<ChunkRun>(
          map, map.HostOf(rank), Config(onebitCollectiveReduceScatter, 1), kPart, options));
    }
    for (int call = 0; call < 4; ++call) {
      const Tensors inputs = RandomTensors(ranks, kPart * ranks, DataType::kF32, random_);
      std::vector<float> weights(ranks, 1.0f);
      for (uint32_t rank = 0; rank < ranks && is_weighted; ++rank) {
        const bool is_absent = call == 1   ? rank == 0
                               : call == 2 ? map.HostOf(rank) == 0
                                           : call == 3;
        weights[rank] = is_absent ? 0 : 0.25f + static_cast<float>(random_() % 100) / 8;
        ASSERT_EQ(onebitCompressorSetWeight(levels.compressor(rank), weights[rank]), onebitSuccess);
      }
      const auto means = MeansOf(inputs, map, weights);
      Tensors outputs;
      for (size_t rank = 0; rank < ranks; ++rank) outputs.emplace_back(kPart, DataType::kF32);
      levels.group.Run([&](int rank) {
        const auto r = static_cast<size_t>(rank);
        ASSERT_EQ(onebitReduceScatter(inputs[r].data(), outputs[r].data(), kPart, onebitFloat32,
                                      onebitAvg, levels.compressors[r].get(),
                                      levels.group.comm(rank), nullptr),
                  onebitSuccess)
            << onebitGetLastError(nullptr);
      });
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        if (is_weighted) chunks[rank]->SetWeights(WeightsOf(weights, map));
        ASSERT_EQ(FloatsOf(outputs[rank]), chunks[rank]->Call(means, rank * kPart))
            << "call " << call << " rank " << rank;
      }
    }
    // The residuals of a rank are those of its partners' chunks, in their order.
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      std::vector<float> expected;
      for (uint32_t chunk = 0; chunk < ranks; ++chunk) {
        if (map.PartnerOn(map.HostOf(rank), chunk) != rank) continue;
        const std::vector<float> part = chunks[chunk]->WorkerResidual(map.HostOf(rank));
        expected.insert(expected.end(), part.begin(), part.end());
      }
      EXPECT_EQ(WorkerResidualOf(levels.compressor(rank)), expected) << "rank " << rank;
    }
  }
}

// A state of all ranks fits other hosts and levels, and one of a rank the same hosts alone.
TEST_P(PartsCodecTest, StatesOfReduceScattersKeepWhatIsOwed) {
  if (kind().mode == onebitModePlain) GTEST_SKIP() << "no residuals";
  constexpr size_t kPart = 501;
  const HostMap map = hosts();
  const size_t ranks = map.ranks();
  const size_t count = kPart * ranks;
  Ranks levels(OnHosts(letters(), kPatient), Config(onebitCollectiveReduceScatter, 2), kPart);
  std::vector<double> owed(count, 0.0);
  double largest = 0;
  for (int call = 0; call < 3; ++call) {
    const Tensors inputs = RandomTensors(ranks, count, DataType::kF32, random_);
    std::vector<std::vector<float>> outputs(ranks, std::vector<float>(kPart));
    levels.group.Run([&](int rank) {
      const auto r = static_cast<size_t>(rank);
      ASSERT_EQ(
          onebitReduceScatter(inputs[r].data(), outputs[r].data(), kPart, onebitFloat32, onebitSum,
                              levels.compressors[r].get(), levels.group.comm(rank), nullptr),
          onebitSuccess)
          << onebitGetLastError(nullptr);
    });
    for (size_t i = 0; i < count; ++i) {
      for (const Tensor& input : inputs) owed[i] += input.Get(i);
      owed[i] -= outputs[i / kPart][i % kPart];
      largest = std::max(largest, std::abs(double{outputs[i / kPart][i % kPart]}));
    }
  }
  const double tolerance = (kind().residual_type == onebitBfloat16 ? 2e-2 : 1e-5) * largest;
  const auto export_all = [](Ranks& from, onebitStateKind_t state_kind) {
    std::vector<std::vector<std::byte>> states(from.compressors.size());
    from.group.Run([&](int rank) {
      const auto r = static_cast<size_t>(rank);
      states[r] = StateOf(from.compressors[r].get(), state_kind);
    });
    return states;
  };
  const std::vector<std::byte> global = export_all(levels, onebitStateGlobal)[0];
  // The residuals of a job with one level are those of the whole tensor.
  Ranks flat(std::vector<CommOptions>(ranks, kPatient), Config(onebitCollectiveReduceScatter, 1),
             kPart);
  std::vector<double> kept(count, 0.0);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    ASSERT_EQ(onebitCompressorImport(flat.compressor(rank), global.data(), global.size()),
              onebitSuccess)
        << onebitGetLastError(nullptr);
    const std::vector<float> worker = WorkerResidualOf(flat.compressor(rank));
    for (size_t i = 0; i < count; ++i) kept[i] += worker[i];
  }
  for (size_t i = 0; i < count; ++i) ASSERT_NEAR(kept[i], owed[i], tolerance) << i;
  // And back.
  const std::vector<std::byte> back = export_all(flat, onebitStateGlobal)[0];
  Ranks again(OnHosts(letters(), kPatient), Config(onebitCollectiveReduceScatter, 2), kPart);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    ASSERT_EQ(onebitCompressorImport(again.compressor(rank), back.data(), back.size()),
              onebitSuccess);
  }
  std::vector<double> returned(count, 0.0);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const std::vector<float> worker = WorkerResidualOf(again.compressor(rank));
    const uint32_t host = map.HostOf(rank);
    size_t next = 0;
    for (uint32_t chunk = 0; chunk < ranks; ++chunk) {
      if (map.PartnerOn(host, chunk) != rank) continue;
      for (size_t i = 0; i < kPart; ++i) {
        returned[chunk * kPart + i] +=
            worker[next++] * static_cast<double>(map.RanksOn(host).size());
      }
    }
    ASSERT_EQ(next, worker.size());
  }
  for (size_t i = 0; i < count; ++i) ASSERT_NEAR(returned[i], owed[i], tolerance) << i;
  // States of ranks.
  const auto of_ranks = export_all(levels, onebitStateRank);
  Ranks twin(OnHosts(letters(), kPatient), Config(onebitCollectiveReduceScatter, 2), kPart);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    ASSERT_EQ(
        onebitCompressorImport(twin.compressor(rank), of_ranks[rank].data(), of_ranks[rank].size()),
        onebitSuccess);
    EXPECT_EQ(ResidualsOf(twin.compressor(rank)), ResidualsOf(levels.compressor(rank)));
    EXPECT_EQ(
        onebitCompressorImport(flat.compressor(rank), of_ranks[rank].data(), of_ranks[rank].size()),
        onebitMismatch);
  }
}

TEST_P(PartsCodecTest, ANanSpoilsTheCallEverywhere) {
  if (kind().mode == onebitModePlain && kind().codec != onebitCodecSign) {
    GTEST_SKIP() << "no verdict";
  }
  constexpr size_t kPart = 500;
  const uint32_t ranks = hosts().ranks();
  for (const onebitCollective_t collective :
       {onebitCollectiveReduceScatter, onebitCollectiveAllGather}) {
    if (is_refused(collective)) continue;
    Ranks levels(OnHosts(letters(), kPatient), Config(collective, 2), kPart);
    for (uint32_t spoiler = 0; spoiler < ranks; ++spoiler) {
      levels.group.Run([&](int rank) {
        const auto r = static_cast<size_t>(rank);
        std::vector<float> large(kPart * ranks, 1), small(kPart, 1);
        const bool is_gather = collective == onebitCollectiveAllGather;
        if (r == spoiler) (is_gather ? small[3] : large[3]) = std::nanf("");
        const auto result =
            is_gather
                ? onebitAllGather(small.data(), large.data(), kPart, onebitFloat32,
                                  levels.compressors[r].get(), levels.group.comm(rank), nullptr)
                : onebitReduceScatter(large.data(), small.data(), kPart, onebitFloat32, onebitAvg,
                                      levels.compressors[r].get(), levels.group.comm(rank),
                                      nullptr);
        ASSERT_EQ(result, onebitSuccess) << onebitGetLastError(nullptr);
        for (const float value : is_gather ? large : small) ASSERT_TRUE(std::isnan(value));
        EXPECT_EQ(StatsOf(levels.compressors[r].get()).epoch, 0u);
      });
    }
  }
}

std::vector<LevelKind> KindsOfParts() {
  std::vector<LevelKind> kinds = LevelKinds();
  std::erase_if(kinds, [](const LevelKind& kind) {
    return kind.codec == onebitCodecTopk || kind.codec == onebitCodecRandk;
  });
  // Without feedback alone, as in all collectives of parts.
  kinds.push_back(
      {.name = "TopkPlain", .codec = onebitCodecTopk, .mode = onebitModePlain, .block = 320});
  kinds.push_back({.name = "RandkPlain",
                   .codec = onebitCodecRandk,
                   .mode = onebitModePlain,
                   .block = 320,
                   .has_draws = true});
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(Hosts, PartsCodecTest,
                         ::testing::Combine(::testing::Values("aabb", "aab", "aaaabbc", "aabbcc"),
                                            ::testing::ValuesIn(KindsOfParts())),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) +
                                  std::get<1>(info.param).name;
                         });

}  // namespace
}  // namespace onebit::testing
