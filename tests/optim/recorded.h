// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Trajectories recorded from independent float64 references.
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/optim/training.h"

namespace onebit::testing {

inline constexpr double kTolerance = 1e-4;  // absolute on x; fp32 against float64

inline nlohmann::json ReadRecorded(const std::string& file) {
  return nlohmann::json::parse(std::ifstream(std::string(ONEBIT_OPTIM_DATA "/") + file));
}

// Collects the largest difference from a trajectory, for the report.
class MaxError {
 public:
  explicit MaxError(std::string name) : name_(std::move(name)) {}
  ~MaxError() {
    std::ostringstream text;
    text << most_;
    ::testing::Test::RecordProperty(name_, text.str());
  }
  MaxError(const MaxError&) = delete;
  MaxError& operator=(const MaxError&) = delete;

  void ExpectNear(const std::vector<float>& values, const nlohmann::json& expected,
                  const std::string& where) {
    const double error = MaxDifference(values, expected.get<std::vector<double>>());
    EXPECT_LE(error, kTolerance) << where;
    if (!(error <= most_)) most_ = error;
  }

 private:
  const std::string name_;
  double most_ = 0;
};

}  // namespace onebit::testing
