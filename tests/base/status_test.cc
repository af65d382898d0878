// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Errors as values, and the macros that pass them on.
#include "base/status.h"

#include <memory>

#include <gtest/gtest.h>

namespace onebit {
namespace {

Result<std::unique_ptr<int>> Half(int value) {
  if (value % 2 != 0) return Error(Code::kInvalidArgument, "{} is odd", value);
  return std::make_unique<int>(value / 2);
}

Result<int> Quarter(int value) {
  ONEBIT_ASSIGN_OR_RETURN(const auto half, Half(value));
  ONEBIT_ASSIGN_OR_RETURN(const auto quarter, Half(*half));
  return *quarter;
}

Status CheckQuarter(int value, bool* has_reached_end) {
  ONEBIT_TRY(Quarter(value).status());
  *has_reached_end = true;
  return OkStatus();
}

TEST(StatusTest, OkHasNoText) {
  EXPECT_TRUE(OkStatus().ok());
  EXPECT_EQ(OkStatus().code(), Code::kOk);
  EXPECT_EQ(OkStatus().text(), "");
}

TEST(StatusTest, ErrorIsFormatted) {
  const Status status = Error(Code::kTimeout, "rank {} of {}", 3, "four");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_EQ(status.text(), "rank 3 of four");
}

TEST(ResultTest, ValueMayBeMoveOnly) {
  auto half = Half(8);
  ASSERT_TRUE(half.ok());
  const std::unique_ptr<int> value = std::move(half).value();
  EXPECT_EQ(*value, 4);
}

TEST(ResultTest, MacrosPassTheFirstErrorOn) {
  EXPECT_EQ(Quarter(12).value(), 3);
  EXPECT_EQ(Quarter(5).status().text(), "5 is odd");
  EXPECT_EQ(Quarter(6).status().text(), "3 is odd");
  bool has_reached_end = false;
  EXPECT_EQ(CheckQuarter(6, &has_reached_end).code(), Code::kInvalidArgument);
  EXPECT_FALSE(has_reached_end);
  EXPECT_TRUE(CheckQuarter(4, &has_reached_end).ok());
  EXPECT_TRUE(has_reached_end);
}

}  // namespace
}  // namespace onebit
