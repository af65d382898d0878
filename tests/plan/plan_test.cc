// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Plans of all ranks of a call, compared with each other: every sent message is received, and no
// step waits for itself.
#include "plan/plan.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/plan/plan_shapes.h"

namespace onebit {
namespace {

// Exchange, peer, segment, payload bytes.
using Message = std::tuple<int, uint32_t, int, size_t>;

std::vector<Message> MessagesOf(const Plan& plan, StepKind kind, uint32_t peer) {
  std::vector<Message> messages;
  for (const Step& step : plan.steps) {
    if (step.kind != kind || step.peer != peer) continue;
    // Elements for a rank's chunk come from the sender's chunk.
    const bool is_between = plan.key.collective == Collective::kAllToAll ||
                            plan.key.collective == Collective::kAllToAllv;
    messages.emplace_back(step.exchange, is_between ? 0 : step.chunk, step.segment,
                          step.region.bytes);
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
      for (uint32_t exchange = 0; exchange <= 5; ++exchange) {
        for (uint32_t peer = 0; peer <= shape.ranks; ++peer) {
          for (uint32_t segment = 0; segment <= 9 * plan.segments(); ++segment) {
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
      EXPECT_EQ(found, plan.receives.size());
    }
  });
}

// Runs the steps in some order that the dependencies allow; a cycle would leave steps over.
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
    const size_t element_bytes = kernels::BytesOf(shape.key.type);
    for (const Plan& plan : plans) {
      for (const Step& step : plan.steps) {
        const size_t end = step.region.offset + step.region.bytes;
        switch (step.region.space) {
          case Space::kNone:
            EXPECT_EQ(step.region.bytes, 0u);
            break;
          case Space::kInput:
            EXPECT_LE(end, InputElements(plan) * element_bytes);
            break;
          case Space::kOutput:
            EXPECT_LE(end, OutputElements(plan) * element_bytes);
            break;
          case Space::kPackets:
            EXPECT_LE(end, plan.packet_space_bytes);
            break;
        }
      }
    }
  });
}

// If two steps wrote the same packet space, only the order of steps could make results right.
TEST(PlanTest, PacketsAreWrittenOnce) {
  ForEachShape([](const Shape&, const Plans& plans) {
    for (const Plan& plan : plans) {
      std::map<size_t, size_t> written;  // offset -> end
      for (const Step& step : plan.steps) {
        const bool is_writer = step.kind == StepKind::kCompress || step.kind == StepKind::kReduce ||
                               step.kind == StepKind::kReceive || step.kind == StepKind::kVerdict ||
                               step.kind == StepKind::kHostSum || step.kind == StepKind::kStage;
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

TEST(PlanTest, EveryElementOfTheOutputIsWrittenOnce) {
  ForEachShape([](const Shape& shape, const Plans& plans) {
    const size_t element_bytes = kernels::BytesOf(shape.key.type);
    for (const Plan& plan : plans) {
      std::vector<int> written(OutputElements(plan), 0);
      for (const Step& step : plan.steps) {
        size_t begin = step.region.offset / element_bytes;
        if (step.kind == StepKind::kDecode || step.kind == StepKind::kCopy) {
          begin = step.elements.begin - plan.output_begin;
        } else if (step.region.space != Space::kOutput || step.kind == StepKind::kSend) {
          continue;
        }
        ASSERT_LE(begin + step.elements.count, written.size());
        for (size_t i = begin; i < begin + step.elements.count; ++i) ++written[i];
      }
      std::vector<int> expected(written.size(), 1);
      if (shape.key.collective == Collective::kAllToAllv) {
        const Pairs pairs(plan.rank, plan.ranks);
        const PairCounts counts = pairs.counts();
        expected.assign(expected.size(), 0);
        for (uint32_t peer = 0; peer < plan.ranks; ++peer) {
          for (size_t i = 0; i < counts.receive_counts[peer]; ++i) {
            ++expected[counts.receive_begins[peer] + i];
          }
        }
      }
      EXPECT_EQ(written, expected) << "rank " << plan.rank;
    }
  });
}

// A rank sends its verdict after all of its computing steps.
TEST(PlanTest, VerdictsWaitForEverythingThatIsComputed) {
  ForEachShape([](const Shape& shape, const Plans& plans) {
    for (const Plan& plan : plans) {
      size_t verdicts = 0;
      size_t computing = 0;
      for (const Step& step : plan.steps) {
        const bool computes = step.kind == StepKind::kCompress || step.kind == StepKind::kReduce ||
                              step.kind == StepKind::kDecode || step.kind == StepKind::kCopy;
        computing += computes ? 1 : 0;
      }
      for (uint32_t i = 0; i < plan.steps.size(); ++i) {
        const Step& step = plan.steps[i];
        if (step.kind != StepKind::kVerdict) continue;
        ++verdicts;
        EXPECT_EQ(step.dependency_count, computing);
        EXPECT_EQ(step.successor_count, shape.ranks - 1) << "sends alone";
      }
      const bool has_verdict = !shape.key.codec.is_dense() &&
                               shape.key.collective != Collective::kAllReduce && shape.ranks > 1;
      EXPECT_EQ(verdicts, has_verdict ? 1u : 0u);
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
  // The values in the setting's help.
  EXPECT_EQ(longest(2), 8192u);
  EXPECT_EQ(longest(3), 8192u);
  EXPECT_EQ(longest(4), 8192u);
  EXPECT_EQ(longest(8), 2340u);
  EXPECT_FALSE(UsesOneExchange(1, 1, automatic));
}

TEST(PlanTest, TheRootOfALongBroadcastSendsItsBufferOnce) {
  const PlanKey key{.collective = Collective::kBroadcast, .root = 1, .count = 100'000};
  for (uint32_t ranks = 2; ranks <= 9; ++ranks) {
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      size_t sent = 0;
      for (const Step& step : SelectPlan(key, rank, HostMap(ranks), 1000).steps) {
        if (step.kind == StepKind::kSend) sent += step.elements.count;
      }
      if (rank == key.root) {
        EXPECT_EQ(sent, key.count) << ranks << " ranks";
      } else {
        EXPECT_LE(sent, key.count) << "rank " << rank << " of " << ranks;
      }
    }
  }
}

TEST(SelectTest, AShortBroadcastTakesOneExchange) {
  const auto longest = [](uint32_t ranks, kernels::DataType type) {
    PlanKey key{.collective = Collective::kBroadcast, .type = type};
    while (UsesOneExchangeToBroadcast(key, ranks)) ++key.count;
    return key.count - 1;
  };
  EXPECT_EQ(longest(3, kernels::DataType::kF32), 384u);
  EXPECT_EQ(longest(3, kernels::DataType::kF16), 768u);
  EXPECT_EQ(longest(8, kernels::DataType::kF32), 64u);
  EXPECT_TRUE(UsesOneExchangeToBroadcast({.count = size_t{1} << 30}, 2))
      << "the root sends one copy";
}

TEST(SelectTest, ASettingWins) {
  const CommOptions none{.one_exchange_elements = 0};
  const CommOptions more{.one_exchange_elements = 100'000};
  EXPECT_FALSE(UsesOneExchange(1, 4, none));
  EXPECT_TRUE(UsesOneExchange(100'000, 4, more));
  EXPECT_FALSE(UsesOneExchange(100'001, 4, more));
}

// Otherwise ranks that name different roots could wait for each other.
TEST(PlanTest, RanksOfAHostAndPartnersExchangeAMessageWhateverTheRoot) {
  const HostMap hosts(std::vector<std::string>{"a", "a", "a", "a", "b", "b", "b", "c", "c"});
  for (uint32_t root = 0; root < hosts.ranks(); ++root) {
    const PlanKey key{
        .collective = Collective::kBroadcast, .has_two_levels = true, .root = root, .count = 1000};
    Plans plans;
    for (uint32_t rank = 0; rank < hosts.ranks(); ++rank) {
      plans.push_back(SelectPlan(key, rank, hosts, 256));
    }
    const auto has_first = [&](StepKind kind, uint32_t rank, uint32_t peer) {
      return std::ranges::any_of(plans[rank].steps, [&](const Step& step) {
        return step.kind == kind && step.exchange == 1 && step.peer == peer;
      });
    };
    for (uint32_t rank = 0; rank < hosts.ranks(); ++rank) {
      for (uint32_t peer = 0; peer < hosts.ranks(); ++peer) {
        const uint32_t host = hosts.HostOf(peer);
        const bool is_here = hosts.HostOf(rank) == host;
        if (rank == peer || (!is_here && hosts.PartnerOn(host, rank) != peer)) continue;
        for (const auto& [from, to] : {std::pair(rank, peer), std::pair(peer, rank)}) {
          EXPECT_TRUE(has_first(StepKind::kSend, from, to)) << from << " to " << to << ", " << root;
          EXPECT_TRUE(has_first(StepKind::kReceive, to, from))
              << to << " of " << from << ", " << root;
        }
      }
    }
  }
}

// Such a call changes no residual, which two ranks would have to hold.
TEST(PlanTest, ARankIsAloneInACallWithItself) {
  PlanKey key{.collective = Collective::kSendRecv,
              .codec = {.kind = CodecKind::kEf, .block = 64},
              .root = 1,
              .count = 100};
  for (const bool is_receive : {false, true}) {
    key.is_receive = is_receive;
    EXPECT_TRUE(SelectPlan(key, 1, HostMap(2), 64).is_alone());
    EXPECT_FALSE(SelectPlan(key, 0, HostMap(2), 64).is_alone());
  }
  const PlanKey broadcast{.collective = Collective::kBroadcast, .root = 1, .count = 100};
  EXPECT_FALSE(SelectPlan(broadcast, 1, HostMap(2), 64).is_alone());
}

// Two ranks find at the first piece that their counts differ, since headers name all that is left.
TEST(PlanTest, APieceOfAnAllToAllvNamesWhatIsLeft) {
  constexpr size_t kPiece = 100;
  const std::vector<size_t> sent = {7, 250, 100}, received = {7, 130, 0}, begins(3);
  const PairCounts counts{sent.data(), begins.data(), received.data(), begins.data()};
  const PlanKey key{.collective = Collective::kAllToAllv, .type = kernels::DataType::kF16};
  for (const size_t begin : {0, 100, 200, 300}) {
    Plan plan = SelectPlan(key, 0, HostMap(3), 64);
    ResizeToPiece(counts, begin, kPiece, &plan);
    size_t messages = 0;
    for (const Step& step : plan.steps) {
      if (step.kind == StepKind::kCopy) continue;
      ++messages;
      const auto& all = step.kind == StepKind::kSend ? sent : received;
      const size_t left = all[step.peer] - std::min(all[step.peer], begin);
      EXPECT_EQ(step.elements.count, left) << "from " << begin << " peer " << step.peer;
      EXPECT_EQ(step.region.bytes, std::min(left, kPiece) * sizeof(uint16_t));
    }
    // All four at first, even an empty one; then those that are so long.
    EXPECT_EQ(messages, begin == 0 ? 4u : begin == 100 ? 2u : begin == 200 ? 1u : 0u);
  }
}

TEST(PlanTest, NativeAllReduceStartsWhenEveryHeaderHasCome) {
  const PlanKey key{.collective = Collective::kAllReduce, .is_native = true, .count = 1000};
  for (uint32_t ranks = 2; ranks <= 5; ++ranks) {
    const Plan plan = SelectPlan(key, 1, HostMap(ranks), 64);
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

}  // namespace
}  // namespace onebit
