// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/plan/plan_shapes.h"

#include <array>

#include <gtest/gtest.h>

namespace onebit {
namespace {

constexpr size_t kCounts[] = {0, 1, 7, 8, 9, 63, 64, 65, 1000, 4097, 20'001};

}  // namespace

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << NameOf(shape.key.collective) << " codec " << static_cast<int>(shape.key.codec.kind)
             << (shape.key.is_one_exchange ? " one exchange" : "") << " of " << shape.key.count
             << " " << NameOf(shape.key.type) << ", block " << shape.key.codec.block << ", "
             << shape.hosts.Text() << ", segments of " << shape.segment_elements;
}

size_t InputElements(const Plan& plan) {
  const PlanKey& key = plan.key;
  if (key.collective == Collective::kAllToAllv) return Pairs(plan.rank, plan.ranks).elements(0);
  const bool is_large =
      key.collective == Collective::kReduceScatter || key.collective == Collective::kAllToAll;
  return key.count * (is_large ? plan.ranks : 1);
}
size_t OutputElements(const Plan& plan) {
  const PlanKey& key = plan.key;
  if (key.collective == Collective::kAllToAllv) return Pairs(plan.rank, plan.ranks).elements(1);
  const bool is_large =
      key.collective == Collective::kAllGather || key.collective == Collective::kAllToAll;
  return key.count * (is_large ? plan.ranks : 1);
}

bool HasChunks(const PlanKey& key) {
  return key.collective == Collective::kReduceScatter || key.collective == Collective::kAllGather ||
         key.collective == Collective::kAllToAll;
}

// The host of each rank, by its letter.
HostMap HostsOf(std::string_view letters) {
  std::vector<std::string> names;
  for (const char letter : letters) names.emplace_back(1, letter);
  return HostMap(names);
}

std::vector<HostMap> HostMaps() {
  std::vector<HostMap> maps;
  for (const char* const letters :
       {"aabb", "abab", "aab", "abb", "aaaabbc", "abcabcab", "aaabbbccc", "aabbccdd", "abbbcccc"}) {
    maps.push_back(HostsOf(letters));
  }
  return maps;
}

void ForEachShape(const std::function<void(const Shape&, const Plans&)>& check) {
  const auto run_on = [&](const PlanKey& key, const HostMap& hosts, size_t segment_elements) {
    if (::testing::Test::HasFailure()) return;
    const uint32_t ranks = hosts.ranks();
    const Shape shape{key, ranks, segment_elements, hosts};
    SCOPED_TRACE(::testing::Message() << shape);
    Plans plans;
    for (uint32_t r = 0; r < ranks; ++r) {
      plans.push_back(SelectPlan(key, r, hosts, segment_elements));
      if (key.collective == Collective::kAllToAllv) {
        ResizeAllToAllv(Pairs(r, ranks).counts(), &plans.back());
      }
    }
    check(shape, plans);
  };
  const auto run = [&](const PlanKey& key, uint32_t ranks, size_t segment_elements) {
    run_on(key, HostMap(ranks), segment_elements);
  };
  for (const HostMap& hosts : HostMaps()) {
    for (const size_t count : kCounts) {
      for (const size_t segment_elements : {256, 4000, 262'144}) {
        PlanKey key{.collective = Collective::kAllReduce, .has_two_levels = true, .count = count};
        key.type = kernels::DataType::kBf16;
        run_on(key, hosts, segment_elements);
        key.codec = {.kind = CodecKind::kEf, .block = 64};
        for (const bool is_staged : {true, false}) {
          key.is_staged = is_staged;
          run_on(key, hosts, segment_elements);
        }
        key.codec = {};
        for (const uint32_t root : {0u, hosts.ranks() - 1}) {
          key.collective = Collective::kBroadcast;
          key.root = root;
          run_on(key, hosts, segment_elements);
        }
        key.root = 0;
        for (const auto collective : {Collective::kReduceScatter, Collective::kAllGather}) {
          for (const CodecKind codec : {CodecKind::kDense, CodecKind::kEf}) {
            key.collective = collective;
            key.chunk_alignment = 0;
            key.codec = {.kind = codec, .block = codec == CodecKind::kEf ? 64u : 0u};
            run_on(key, hosts, segment_elements);
            key.is_staged = SumsInsideHosts(collective) && codec == CodecKind::kEf;
            if (key.is_staged) run_on(key, hosts, segment_elements);
            key.is_staged = false;
          }
        }
      }
    }
  }
  for (uint32_t ranks = 1; ranks <= 9; ++ranks) {
    run({.collective = Collective::kBarrier}, ranks, 64);
    for (const CodecKind codec : {CodecKind::kDense, CodecKind::kSign}) {
      run({.collective = Collective::kAllToAllv, .codec = {.kind = codec, .block = 64}}, ranks, 64);
    }
    for (const size_t count : kCounts) {
      for (const uint32_t root : {0u, ranks - 1}) {
        run({.collective = Collective::kBroadcast, .root = root, .count = count}, ranks, 64);
      }
      for (const auto collective :
           {Collective::kReduceScatter, Collective::kAllGather, Collective::kAllToAll}) {
        for (const size_t segment_elements : {64, 1000}) {
          PlanKey key{.collective = collective, .chunk_alignment = 0, .count = count};
          key.type = kernels::DataType::kF16;
          run(key, ranks, segment_elements);
          for (const uint32_t block : {0u, 64u, 4096u}) {
            key.codec.block = block;
            for (const CodecKind codec : {CodecKind::kSign, CodecKind::kEf}) {
              key.codec.kind = codec;
              key.has_drift_check = ranks > 1 && collective == Collective::kAllGather &&
                                    codec == CodecKind::kEf && block != 64;
              run(key, ranks, segment_elements);
            }
            key.has_drift_check = false;
          }
        }
      }
      for (const size_t segment_elements : {64, 1000, 262'144}) {
        PlanKey key{.collective = Collective::kAllReduce, .count = count};
        key.type = kernels::DataType::kBf16;
        run(key, ranks, segment_elements);
        // One hop; two hops have the plan of low-bit codes.
        PlanKey sparse = key;
        sparse.codec = {.kind = CodecKind::kSparseEf, .sparse = {.k = 5}, .block = 320};
        sparse.is_one_exchange = true;
        run(sparse, ranks, segment_elements);
        for (const uint32_t block : {0u, 64u, 4096u}) {
          for (const uint16_t alignment : std::array<uint16_t, 2>{8, 64}) {
            key.codec.kind = CodecKind::kEf;
            key.codec.block = block;
            key.chunk_alignment = alignment;
            for (const bool is_one_exchange : {false, true}) {
              key.is_one_exchange = is_one_exchange && ranks > 1;
              run(key, ranks, segment_elements);
            }
          }
        }
      }
    }
  }
}

}  // namespace onebit
