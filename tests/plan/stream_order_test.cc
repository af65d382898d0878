// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The order of messages on streams, where a receive takes whatever its peer has sent next.
#include "plan/stream_order.h"

#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "tests/plan/plan_shapes.h"

namespace onebit {
namespace {

// The segments of the messages between a rank and its peer, in their order.
std::vector<int> SegmentsOf(const Plan& plan, std::span<const uint32_t> messages, uint32_t peer) {
  std::vector<int> segments;
  for (const uint32_t index : messages) {
    const Step& step = plan.steps[index];
    if (step.peer == peer) segments.push_back(step.segment);
  }
  return segments;
}

TEST(StreamOrderTest, MessagesOfTwoRanksMeetInOneOrder) {
  ForEachShape([](const Shape& shape, const Plans& plans) {
    std::vector<StreamOrder> orders(shape.ranks);
    for (uint32_t rank = 0; rank < shape.ranks; ++rank) orders[rank].Arrange(plans[rank]);
    for (uint32_t from = 0; from < shape.ranks; ++from) {
      for (uint32_t to = 0; to < shape.ranks; ++to) {
        for (uint32_t exchange = 1; exchange <= orders[from].exchanges(); ++exchange) {
          EXPECT_EQ(SegmentsOf(plans[from], orders[from].sends(exchange), to),
                    SegmentsOf(plans[to], orders[to].receives(exchange), from))
              << "exchange " << exchange << " from " << from << " to " << to;
        }
      }
    }
  });
}

}  // namespace
}  // namespace onebit
