// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The words by which a setting describes a fault.
#include <gtest/gtest.h>

#include "tests/support/fault.h"

namespace onebit::testing {
namespace {

TEST(FaultWordsTest, SayEveryMember) {
  const auto kill = ParseFault("kill rank=2 exchange=1 message=5 after=1");
  ASSERT_TRUE(kill.has_value());
  EXPECT_EQ(kill->kind, Fault::Kind::kKill);
  EXPECT_EQ(kill->rank, 2);
  EXPECT_EQ(kill->exchange, 1);
  EXPECT_EQ(kill->message, 5u);
  EXPECT_TRUE(kill->is_after);
  const auto delay = ParseFault("delay delay_ms=30 bit=7 comm=1");
  ASSERT_TRUE(delay.has_value());
  EXPECT_EQ(delay->kind, Fault::Kind::kDelay);
  EXPECT_EQ(delay->delay_ms, 30u);
  EXPECT_EQ(delay->bit, 7u);
  EXPECT_EQ(delay->comm, 1);
}

TEST(FaultWordsTest, RefuseWhatIsNoFault) {
  for (const char* text : {"", "kil", "kill rank", "kill rank=", "kill rank=two", "kill rank=1x",
                           "kill peer=1", "rank=1"}) {
    EXPECT_FALSE(ParseFault(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace onebit::testing
