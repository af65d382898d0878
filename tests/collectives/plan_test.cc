// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Plans of all ranks of a call, looked at together: nothing is sent that nobody receives, nothing
// waits for itself, and bytes are what the format says.
#include "collectives/plan.h"

#include <array>
#include <functional>
#include <map>
#include <ostream>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "collectives/algorithms.h"

namespace onebit {
namespace {

constexpr size_t kCounts[] = {0, 1, 7, 8, 9, 63, 64, 65, 1000, 4097, 20'001};

struct Shape {
  PlanKey key;
  uint32_t ranks;
  size_t segment_elements;
};

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << NameOf(shape.key.collective) << " codec " << static_cast<int>(shape.key.codec)
             << (shape.key.is_one_exchange ? " one exchange" : "") << " of " << shape.key.count
             << " " << NameOf(shape.key.type) << ", block " << shape.key.block << ", "
             << shape.ranks << " ranks, segments of " << shape.segment_elements;
}

using Plans = std::vector<Plan>;  // of all ranks

// Calls `check` with the plans of every kind of call on 1 to 9 ranks.
void ForEachShape(const std::function<void(const Shape&, const Plans&)>& check) {
  const auto run = [&](const PlanKey& key, uint32_t ranks, size_t segment_elements) {
    if (::testing::Test::HasFailure()) return;
    const Shape shape{key, ranks, segment_elements};
    SCOPED_TRACE(::testing::Message() << shape);
    Plans plans;
    for (uint32_t r = 0; r < ranks; ++r) {
      plans.push_back(SelectPlan(key, r, ranks, segment_elements));
    }
    check(shape, plans);
  };
  for (uint32_t ranks = 1; ranks <= 9; ++ranks) {
    run({.collective = Collective::kBarrier}, ranks, 64);
    for (const size_t count : kCounts) {
      for (const uint32_t root : {0u, ranks - 1}) {
        run({.collective = Collective::kBroadcast, .root = root, .count = count}, ranks, 64);
      }
      for (const size_t segment_elements : {64, 1000, 262'144}) {
        PlanKey key{.collective = Collective::kAllReduce, .count = count};
        key.type = kernels::DataType::kBf16;
        run(key, ranks, segment_elements);
        for (const uint32_t block : {0u, 64u, 4096u}) {
          for (const uint16_t alignment : std::array<uint16_t, 2>{8, 64}) {
            key.codec = CodecKind::kEf;
            key.block = block;
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

// Exchange, peer, segment, payload bytes.
using Message = std::tuple<int, uint32_t, int, size_t>;

std::vector<Message> MessagesOf(const Plan& plan, StepKind kind, uint32_t peer) {
  std::vector<Message> messages;
  for (const Step& step : plan.steps) {
    if (step.kind != kind || step.peer != peer) continue;
    messages.emplace_back(step.exchange, step.chunk, step.segment, step.region.bytes);
  }
  std::sort(messages.begin(), messages.end());
  return messages;
}

TEST(PlanTest, EverySendHasItsReceive) {
  ForEachShape([](const Shape& shape, const Plans& plans) {
    for (uint32_t from = 0; from < shape.ranks; ++from) {
      EXPECT_TRUE(MessagesOf(plans[from], StepKind::kSend, from).empty()) << "to itself";
      EXPECT_TRUE(MessagesOf(plans[from], StepKind::kReceive, from).empty()) << "from itself";
      for (uint32_t to = 0; to < shape.ranks; ++to) {
        EXPECT_EQ(MessagesOf(plans[from], StepKind::kSend, to),
                  MessagesOf(plans[to], StepKind::kReceive, from))
            << "from " << from << " to " << to;
      }
    }
  });
}

TEST(PlanTest, ReceiveStepFindsEachReceiveAndNothingElse) {
  ForEachShape([](const Shape& shape, const Plans& plans) {
    for (const Plan& plan : plans) {
      size_t found = 0;
      for (uint32_t exchange = 0; exchange <= 3; ++exchange) {
        for (uint32_t peer = 0; peer <= shape.ranks; ++peer) {
          for (uint32_t segment = 0; segment <= plan.segments(); ++segment) {
            const uint32_t index = plan.ReceiveStep(exchange, peer, segment);
            if (index == kNoStep) continue;
            ++found;
            const Step& step = plan.steps[index];
            EXPECT_EQ(step.kind, StepKind::kReceive);
            EXPECT_EQ(std::tuple(step.exchange, step.peer, step.segment),
                      std::tuple(exchange, peer, segment));
          }
        }
      }
      EXPECT_EQ(found, plan.messages_per_peer * (shape.ranks - 1));
    }
  });
}

// Runs the steps in some order that the dependencies allow; a cycle leaves steps over.
TEST(PlanTest, DependenciesHaveNoCycle) {
  ForEachShape([](const Shape&, const Plans& plans) {
    for (const Plan& plan : plans) {
      std::vector<uint32_t> waiting_for;
      std::vector<uint32_t> ready;
      for (const Step& step : plan.steps) {
        if (step.dependency_count == 0) ready.push_back(static_cast<uint32_t>(waiting_for.size()));
        waiting_for.push_back(step.dependency_count);
      }
      size_t done = 0;
      while (!ready.empty()) {
        const Step& step = plan.steps[ready.back()];
        ready.pop_back();
        ++done;
        for (uint32_t i = 0; i < step.successor_count; ++i) {
          const uint32_t successor = plan.successors[step.first_successor + i];
          if (--waiting_for[successor] == 0) ready.push_back(successor);
        }
      }
      EXPECT_EQ(done, plan.steps.size());
    }
  });
}

TEST(PlanTest, RegionsLieInsideTheirSpaces) {
  ForEachShape([](const Shape& shape, const Plans& plans) {
    const size_t buffer_bytes = shape.key.count * kernels::BytesOf(shape.key.type);
    for (const Plan& plan : plans) {
      for (const Step& step : plan.steps) {
        const size_t end = step.region.offset + step.region.bytes;
        switch (step.region.space) {
          case Space::kNone:
            EXPECT_EQ(step.region.bytes, 0u);
            break;
          case Space::kInput:
          case Space::kOutput:
            EXPECT_LE(end, buffer_bytes);
            break;
          case Space::kPackets:
            EXPECT_LE(end, plan.packet_space_bytes);
            break;
        }
      }
    }
  });
}

// Two steps that write the same packet space could only be right by luck of the order.
TEST(PlanTest, PacketsAreWrittenOnce) {
  ForEachShape([](const Shape&, const Plans& plans) {
    for (const Plan& plan : plans) {
      std::map<size_t, size_t> written;  // offset -> end
      for (const Step& step : plan.steps) {
        const bool is_writer = step.kind == StepKind::kCompress || step.kind == StepKind::kReduce ||
                               step.kind == StepKind::kReceive;
        if (!is_writer || step.region.space != Space::kPackets || step.region.bytes == 0) continue;
        EXPECT_TRUE(
            written.emplace(step.region.offset, step.region.offset + step.region.bytes).second);
      }
      size_t end = 0;
      for (const auto& [offset, region_end] : written) {
        EXPECT_GE(offset, end);
        end = region_end;
      }
    }
  });
}

TEST(PlanTest, EveryElementIsDecodedOnce) {
  ForEachShape([](const Shape& shape, const Plans& plans) {
    if (shape.key.codec != CodecKind::kEf || shape.ranks == 1) return;
    for (const Plan& plan : plans) {
      std::vector<int> decoded(shape.key.count, 0);
      for (const Step& step : plan.steps) {
        if (step.kind != StepKind::kDecode) continue;
        for (size_t i = step.elements.begin; i < step.elements.end(); ++i) ++decoded[i];
      }
      EXPECT_EQ(decoded, std::vector<int>(shape.key.count, 1));
    }
  });
}

// The arithmetic of FORMAT.md, section 2 and 4, written down a second time.
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
    const bool is_dense = key.codec == CodecKind::kDense;
    const WireFormula formula{key.count,
                              shape.ranks,
                              key.chunk_alignment,
                              is_dense ? 64 : key.block,
                              is_dense ? shape.segment_elements / 4 : shape.segment_elements,
                              is_dense || key.block != 0};
    for (const Plan& plan : plans) {
      const size_t expected = formula.RankBytes(plan.rank, [&](size_t elements) -> size_t {
        if (is_dense) return elements * kernels::BytesOf(key.type);
        if (elements == 0) return 0;
        const size_t scales = key.block == 0 ? 1 : WireFormula::DivideUp(elements, key.block);
        return 4 * scales + WireFormula::DivideUp(elements, 8);
      });
      EXPECT_EQ(plan.wire_bytes, shape.ranks == 1 ? 0 : expected) << "rank " << plan.rank;
    }
  });
}

TEST(PlanTest, WireBytesOfOneExchangeAreTheFormula) {
  ForEachShape([](const Shape& shape, const Plans& plans) {
    const PlanKey& key = shape.key;
    if (!key.is_one_exchange) return;
    const WireFormula formula{key.count, shape.ranks, key.chunk_alignment, key.block, 0, false};
    size_t scales = key.block == 0 && key.count != 0 ? 1 : 0;
    for (size_t j = 0; j < shape.ranks && key.block != 0; ++j) {
      scales += WireFormula::DivideUp(formula.Elements(j, 0), key.block);
    }
    const size_t packet = 64 + 4 * scales + WireFormula::DivideUp(key.count, 8);
    for (const Plan& plan : plans) {
      EXPECT_EQ(plan.wire_bytes, (shape.ranks - 1) * packet);
      EXPECT_EQ(plan.messages_per_peer, 1u);
    }
  });
}

TEST(SelectTest, OneExchangeIsForTensorsThatItSendsFewMoreBitsOf) {
  const CommOptions automatic{.one_exchange_elements = std::nullopt};
  const auto longest = [&](uint32_t ranks) {
    size_t count = 0;
    while (UsesOneExchange(count + 1, ranks, automatic)) ++count;
    return count;
  };
  // The values that the setting's help names.
  EXPECT_EQ(longest(2), 65'536u);
  EXPECT_EQ(longest(4), 8192u);
  EXPECT_EQ(longest(8), 2340u);
  EXPECT_FALSE(UsesOneExchange(1, 1, automatic));
}

TEST(SelectTest, ASettingWins) {
  const CommOptions none{.one_exchange_elements = 0};
  const CommOptions more{.one_exchange_elements = 100'000};
  EXPECT_FALSE(UsesOneExchange(1, 4, none));
  EXPECT_TRUE(UsesOneExchange(100'000, 4, more));
  EXPECT_FALSE(UsesOneExchange(100'001, 4, more));
}

TEST(PlanTest, NativeAllReduceStartsWhenEveryHeaderHasCome) {
  const PlanKey key{.collective = Collective::kAllReduce, .is_native = true, .count = 1000};
  for (uint32_t ranks = 2; ranks <= 5; ++ranks) {
    const Plan plan = SelectPlan(key, 1, ranks, 64);
    size_t receives = 0;
    for (const Step& step : plan.steps) {
      if (step.kind == StepKind::kNative) {
        EXPECT_EQ(step.dependency_count, ranks - 1);
      }
      if (step.kind == StepKind::kReceive) ++receives;
      EXPECT_EQ(step.region.bytes, 0u) << "the transport carries the values";
    }
    EXPECT_EQ(receives, ranks - 1);
    EXPECT_EQ(plan.wire_bytes, (ranks - 1) * kHeaderBytes);
  }
}

// The figure the library is measured by: at most 1.01 bits for each of 2 (n-1)/n when chunks are
// long.
TEST(PlanTest, WireBytesStayWithinOnePercentOfOneBit) {
  for (const uint32_t ranks : {2u, 4u, 8u}) {
    const size_t count = size_t{ranks} * 65536 * 4;
    const PlanKey key{.collective = Collective::kAllReduce,
                      .codec = CodecKind::kEf,
                      .block = 4096,
                      .count = count};
    const Plan plan = SelectPlan(key, 0, ranks, 262'144);
    const double ideal_bits = 2.0 * (ranks - 1) / ranks * static_cast<double>(count);
    EXPECT_LE(static_cast<double>(plan.wire_bytes) * 8, 1.01 * ideal_bits) << ranks << " ranks";
  }
}

}  // namespace
}  // namespace onebit
