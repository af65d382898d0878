// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Claims of the papers and of their authors' posts about volume and speed-up, and what the formulas
// give for the published settings.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace onebit::schedule {

enum class Unit { kFactor, kPercent, kGigabits };

struct Claim {
  std::string claim;
  std::string inputs;
  double computed = 0;
  Unit unit = Unit::kFactor;
  std::optional<double> claimed;  // none: `remark` is the verdict
  std::string remark;
};

// Runs the schedules of 0/1 Adam over their whole length. Throws perf::ToolError.
std::vector<Claim> ComputeClaims();

// True if the formula gives what is claimed: factors to 3 %, shares to half a percentage point,
// which rounding in a paper explains.
std::string VerdictOf(const Claim& claim);

std::string ClaimsText(const std::vector<Claim>& claims);
nlohmann::ordered_json ToJson(const std::vector<Claim>& claims);

}  // namespace onebit::schedule
