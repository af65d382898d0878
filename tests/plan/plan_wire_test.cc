// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Compares the bytes that whole plans send with the arithmetic of the format.
#include <algorithm>
#include <functional>

#include <gtest/gtest.h>

#include "tests/plan/plan_shapes.h"

namespace onebit {
namespace {

// The arithmetic of FORMAT.md, sections 2 and 4, implemented independently.
struct WireFormula {
  size_t count, ranks, alignment, block, segment_elements;
  bool has_segments = true;

  static size_t DivideUp(size_t a, size_t b) { return (a + b - 1) / b; }
  size_t chunk() const { return alignment * DivideUp(count, ranks * alignment); }
  size_t segment() const {
    if (!has_segments || chunk() <= segment_elements) return chunk();
    const size_t pieces = std::min<size_t>(64, DivideUp(chunk(), segment_elements));
    return block * DivideUp(DivideUp(chunk(), pieces), block);
  }
  size_t segments() const { return chunk() == 0 ? 1 : DivideUp(chunk(), segment()); }
  size_t Elements(size_t j, size_t s) const {
    const size_t begin = std::min(count, j * chunk() + s * segment());
    const size_t end = std::min({count, (j + 1) * chunk(), j * chunk() + (s + 1) * segment()});
    return end > begin ? end - begin : 0;
  }
  // All segments of chunk j to one peer.
  size_t ChunkBytes(size_t j, const std::function<size_t(size_t)>& payload_bytes) const {
    size_t bytes = 0;
    for (size_t s = 0; s < segments(); ++s) bytes += 64 + payload_bytes(Elements(j, s));
    return bytes;
  }
  size_t RankBytes(size_t rank, const std::function<size_t(size_t)>& payload_bytes) const {
    size_t bytes = 0;
    for (size_t peer = 0; peer < ranks; ++peer) {
      if (peer == rank) continue;
      bytes += ChunkBytes(peer, payload_bytes) + ChunkBytes(rank, payload_bytes);
    }
    return bytes;
  }
};

TEST(PlanTest, WireBytesOfTwoExchangesAreTheFormula) {
  ForEachShape([](const Shape& shape, const Plans& plans) {
    const PlanKey& key = shape.key;
    if (key.collective != Collective::kAllReduce || key.is_one_exchange) return;
    if (key.has_two_levels) return;
    const bool is_dense = key.codec.is_dense();
    const WireFormula formula{key.count,
                              shape.ranks,
                              key.chunk_alignment,
                              is_dense ? 64 : key.codec.block,
                              is_dense ? shape.segment_elements / 4 : shape.segment_elements,
                              is_dense || key.codec.block != 0};
    for (const Plan& plan : plans) {
      const size_t expected = formula.RankBytes(plan.rank, [&](size_t elements) -> size_t {
        if (is_dense) return elements * kernels::BytesOf(key.type);
        if (elements == 0) return 0;
        const size_t scales =
            key.codec.block == 0 ? 1 : WireFormula::DivideUp(elements, key.codec.block);
        return 4 * scales + WireFormula::DivideUp(elements, 8);
      });
      EXPECT_EQ(plan.wire_bytes, shape.ranks == 1 ? 0 : expected) << "rank " << plan.rank;
    }
  });
}

// Hosts send what one rank for each of them would: twice the tensor without the part that stays.
TEST(PlanTest, LinksOfHostsCarryTheTensorOnce) {
  ForEachShape([](const Shape& shape, const Plans& plans) {
    const PlanKey& key = shape.key;
    if (!key.has_two_levels || key.collective != Collective::kAllReduce) return;
    if (!key.codec.is_dense()) return;
    const uint32_t hosts = shape.hosts.hosts();
    const size_t chunks = size_t{shape.hosts.rails()} * hosts;
    // A chunk has four segments, as far as they have 8192 elements.
    const size_t segment_elements =
        std::min(shape.segment_elements / 4, std::max<size_t>(key.count / (4 * chunks), 8192));
    const WireFormula formula{key.count, chunks, 64, 64, segment_elements};
    for (uint32_t host = 0; host < hosts; ++host) {
      size_t expected = 0;
      for (uint32_t rail = 0; rail < shape.hosts.rails(); ++rail) {
        for (uint32_t other = 0; other < hosts; ++other) {
          if (other == host) continue;
          for (const uint32_t served_by : {other, host}) {
            expected += formula.ChunkBytes(rail * hosts + served_by, [&](size_t elements) {
              return elements * kernels::BytesOf(key.type);
            });
          }
        }
      }
      size_t sent = 0;
      for (const uint32_t rank : shape.hosts.RanksOn(host)) {
        for (const Step& step : plans[rank].steps) {
          const bool leaves = step.kind == StepKind::kSend && shape.hosts.HostOf(step.peer) != host;
          EXPECT_EQ(leaves,
                    step.kind == StepKind::kSend && step.exchange != 1 && step.exchange != 4);
          if (leaves) sent += kHeaderBytes + step.region.bytes;
        }
      }
      EXPECT_EQ(sent, expected) << "host " << host;
    }
  });
}

// One part to or from every other rank, and a verdict.
TEST(PlanTest, WireBytesOfPartsAreTheFormula) {
  ForEachShape([](const Shape& shape, const Plans& plans) {
    const PlanKey& key = shape.key;
    if (!HasChunks(key) || key.has_two_levels) return;
    const bool is_dense = key.codec.is_dense();
    const WireFormula formula{key.count,
                              1,
                              1,
                              is_dense ? 64 : key.codec.block,
                              is_dense ? shape.segment_elements / 4 : shape.segment_elements,
                              is_dense || key.codec.block != 0};
    const size_t part = formula.ChunkBytes(0, [&](size_t elements) -> size_t {
      if (is_dense) return elements * kernels::BytesOf(key.type);
      if (elements == 0) return 0;
      const size_t scales =
          key.codec.block == 0 ? 1 : WireFormula::DivideUp(elements, key.codec.block);
      return 4 * scales + WireFormula::DivideUp(elements, 8);
    });
    const size_t verdict = is_dense ? 0 : key.has_drift_check ? 72 : 64;
    for (const Plan& plan : plans) {
      EXPECT_EQ(plan.wire_bytes, (shape.ranks - 1) * (part + verdict)) << "rank " << plan.rank;
    }
  });
}

TEST(PlanTest, WireBytesOfPairsAreThoseOfTheirCounts) {
  ForEachShape([](const Shape& shape, const Plans& plans) {
    if (shape.key.collective != Collective::kAllToAllv) return;
    for (const Plan& plan : plans) {
      size_t bytes = 0;
      for (uint32_t peer = 0; peer < shape.ranks; ++peer) {
        const size_t count = Pairs::Count(plan.rank, peer);
        if (peer == plan.rank) continue;
        bytes += shape.key.codec.is_dense()
                     ? 64 + count * kernels::BytesOf(shape.key.type)
                     : 128 + 4 * WireFormula::DivideUp(count, 64) + WireFormula::DivideUp(count, 8);
      }
      EXPECT_EQ(plan.wire_bytes, bytes) << "rank " << plan.rank;
    }
  });
}

TEST(PlanTest, WireBytesOfOneExchangeAreTheFormula) {
  ForEachShape([](const Shape& shape, const Plans& plans) {
    const PlanKey& key = shape.key;
    if (!key.is_one_exchange || key.codec.is_sparse()) return;
    const WireFormula formula{key.count,       shape.ranks, key.chunk_alignment,
                              key.codec.block, 0,           false};
    size_t scales = key.codec.block == 0 && key.count != 0 ? 1 : 0;
    for (size_t j = 0; j < shape.ranks && key.codec.block != 0; ++j) {
      scales += WireFormula::DivideUp(formula.Elements(j, 0), key.codec.block);
    }
    const size_t packet = 64 + 4 * scales + WireFormula::DivideUp(key.count, 8);
    for (const Plan& plan : plans) {
      EXPECT_EQ(plan.wire_bytes, (shape.ranks - 1) * packet);
      EXPECT_EQ(plan.receives.size(), shape.ranks - 1);
    }
  });
}

// Every rank sends the segments of the tensor, as one chunk, to all others.
TEST(PlanTest, WireBytesOfOneHopAreTheFormula) {
  ForEachShape([](const Shape& shape, const Plans& plans) {
    const PlanKey& key = shape.key;
    if (!key.is_one_exchange || !key.codec.is_sparse()) return;
    const WireFormula formula{key.count, 1, key.chunk_alignment, key.codec.block,
                              shape.segment_elements};
    const size_t tensor = formula.ChunkBytes(0, [&](size_t elements) {
      const size_t sent =
          elements / key.codec.block * key.codec.sparse.k +
          WireFormula::DivideUp(elements % key.codec.block * key.codec.sparse.k, key.codec.block);
      const size_t magnitudes = 4 * WireFormula::DivideUp(elements, key.codec.block);
      const size_t indices = WireFormula::DivideUp(12 * sent, 8);
      return 16 * WireFormula::DivideUp(magnitudes, 16) + 16 * WireFormula::DivideUp(indices, 16) +
             WireFormula::DivideUp(2 * sent, 8);
    });
    for (const Plan& plan : plans) {
      EXPECT_EQ(plan.wire_bytes, (shape.ranks - 1) * tensor);
      EXPECT_EQ(plan.receives.size(), (shape.ranks - 1) * formula.segments());
      EXPECT_EQ(plan.exchanges, shape.ranks == 1 ? 0u : 1u);
    }
  });
}

// The figure by which the library is judged: at most 1.01 bits for each of 2 (n-1)/n if chunks are
// long.
TEST(PlanTest, WireBytesStayWithinOnePercentOfOneBit) {
  for (const uint32_t ranks : {2u, 4u, 8u}) {
    const size_t count = size_t{ranks} * 65536 * 4;
    const PlanKey key{.collective = Collective::kAllReduce,
                      .codec = {.kind = CodecKind::kEf, .block = 4096},
                      .count = count};
    const Plan plan = SelectPlan(key, 0, HostMap(ranks), 262'144);
    const double ideal_bits = 2.0 * (ranks - 1) / ranks * static_cast<double>(count);
    EXPECT_LE(static_cast<double>(plan.wire_bytes) * 8, 1.01 * ideal_bits) << ranks << " ranks";
  }
}

}  // namespace
}  // namespace onebit
