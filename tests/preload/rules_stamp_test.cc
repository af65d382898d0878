// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Marks in unique ids.
#include "plugins/nccl_preload/rules_stamp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iterator>

namespace onebit::preload {
namespace {

UniqueId MakeId() {
  UniqueId id{};
  std::memset(id.bytes, 7, 64);
  return id;
}

bool AreEqual(const UniqueId& a, const UniqueId& b) {
  return std::equal(std::begin(a.bytes), std::end(a.bytes), std::begin(b.bytes));
}

TEST(RulesStampTest, TellsEqualRulesFromOthers) {
  UniqueId id = MakeId();
  EXPECT_EQ(TakeStamp("default", &id), Stamp::kNone);
  StampId("default", &id);
  EXPECT_FALSE(AreEqual(id, MakeId()));
  UniqueId other = id;
  EXPECT_EQ(TakeStamp("default", &id), Stamp::kEqual);
  EXPECT_EQ(TakeStamp("*:fp4", &other), Stamp::kOther);
  // NCCL gets what it made.
  EXPECT_TRUE(AreEqual(id, MakeId()));
  EXPECT_TRUE(AreEqual(other, MakeId()));
}

TEST(RulesStampTest, AFullIdIsLeftAlone) {
  UniqueId id = MakeId();
  id.bytes[127] = 1;
  const UniqueId before = id;
  StampId("default", &id);
  EXPECT_TRUE(AreEqual(id, before));
  EXPECT_EQ(TakeStamp("default", &id), Stamp::kNone);
}

}  // namespace
}  // namespace onebit::preload
