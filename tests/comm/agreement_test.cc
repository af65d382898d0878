// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Values on which ranks must agree: the text of a difference, and malformed bytes.
#include "comm/agreement.h"

#include <gtest/gtest.h>

namespace onebit {
namespace {

std::string Compare(const std::vector<AgreedValues>& values) {
  const Status status = CompareAgreed(values);
  if (status.ok()) return "equal";
  EXPECT_EQ(status.code(), Code::kMismatch);
  return status.text();
}

TEST(AgreementTest, EqualValuesAgree) {
  EXPECT_EQ(Compare({}), "equal");
  EXPECT_EQ(Compare({{{"A", "1"}}}), "equal");
  EXPECT_EQ(Compare({{{"A", "1"}, {"B", ""}}, {{"A", "1"}, {"B", ""}}}), "equal");
}

TEST(AgreementTest, ADifferenceNamesTheValueAndTwoRanks) {
  EXPECT_EQ(Compare({{{"A", "1"}, {"B", "2"}}, {{"A", "1"}, {"B", "2"}}, {{"A", "1"}, {"B", "3"}}}),
            "B differs between ranks: rank 0 has 2, rank 2 has 3; set it to the same value on all "
            "ranks");
}

TEST(AgreementTest, AValueThatOneRankDoesNotHaveIsADifference) {
  EXPECT_EQ(Compare({{{"A", "1"}}, {{"A", "1"}, {"NEW", "5"}}}),
            "NEW differs between ranks: rank 0 has nothing, rank 1 has 5; set it to the same value "
            "on all ranks");
  EXPECT_EQ(
      Compare({{{"A", "1"}}, {}}),
      "A differs between ranks: rank 0 has 1, rank 1 has nothing; set it to the same value on "
      "all ranks");
}

TEST(AgreementTest, ValuesTravelAsBytes) {
  const AgreedValues values = {{"A", "1"}, {"", ""}, {"long", std::string(1000, 'x')}};
  ByteWriter writer;
  Append(values, &writer);
  const Bytes bytes = writer.Take();
  ByteReader reader(bytes);
  EXPECT_EQ(ReadAgreed(&reader), values);
  EXPECT_TRUE(reader.is_complete());
  for (size_t size = 0; size < bytes.size(); ++size) {
    ByteReader part(std::span<const std::byte>(bytes).first(size));
    ReadAgreed(&part);
    EXPECT_FALSE(part.is_complete()) << size;
  }
}

TEST(AgreementTest, ACountThatPromisesMoreThanThereIsTakesNoMemory) {
  const Bytes bytes = ByteWriter().Integer(uint32_t{0xffff'ffff}).Text("a").Text("b").Take();
  ByteReader reader(bytes);
  EXPECT_LE(ReadAgreed(&reader).size(), 2u);
  EXPECT_FALSE(reader.is_complete());
}

}  // namespace
}  // namespace onebit
