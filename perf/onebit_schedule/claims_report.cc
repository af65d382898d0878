// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Claims as a table and as JSON.
#include <algorithm>

#include <fmt/format.h>

#include "perf/onebit_schedule/claims.h"

namespace onebit::schedule {
namespace {

const char* NameOf(Unit unit) {
  switch (unit) {
    case Unit::kFactor:
      return "factor";
    case Unit::kPercent:
      return "percent";
    case Unit::kGigabits:
      return "gbit_per_second";
  }
  return "?";
}

std::string ValueText(const Claim& claim) {
  switch (claim.unit) {
    case Unit::kFactor:
      return fmt::format("{:.2f}x", claim.computed);
    case Unit::kPercent:
      return fmt::format("{:.1f} %", claim.computed);
    case Unit::kGigabits:
      return fmt::format("{:.2f} Gbit/s", claim.computed);
  }
  return "?";
}

}  // namespace

std::string VerdictOf(const Claim& claim) {
  if (!claim.claimed) return claim.remark;
  const double slack = claim.unit == Unit::kPercent ? 0.5 : 0.03 * *claim.claimed;
  std::string verdict = "agrees";
  if (claim.computed < *claim.claimed - slack) verdict = "below the claim";
  if (claim.computed > *claim.claimed + slack) verdict = "above the claim";
  return claim.remark.empty() ? verdict : fmt::format("{}: {}", verdict, claim.remark);
}

std::string ClaimsText(const std::vector<Claim>& claims) {
  size_t claim_width = 0, inputs_width = 0;
  for (const Claim& claim : claims) {
    claim_width = std::max(claim_width, claim.claim.size());
    inputs_width = std::max(inputs_width, claim.inputs.size());
  }
  std::string text = fmt::format(
      "What the published settings give. F: bits of a dense element; B: of one in a step with "
      "both\n"
      "averages; T_w of T steps are dense.\n"
      "0/1 Adam: var_freeze_step 12500, other parameters as published.\n"
      "Factors agree within 3 %, shares within half a percentage point.\n\n"
      "{:<{}}  {:<{}}  {:>11}  verdict\n",
      "claim", claim_width, "inputs", inputs_width, "formula");
  for (const Claim& claim : claims) {
    text += fmt::format("{:<{}}  {:<{}}  {:>11}  {}\n", claim.claim, claim_width, claim.inputs,
                        inputs_width, ValueText(claim), VerdictOf(claim));
  }
  return text;
}

nlohmann::ordered_json ToJson(const std::vector<Claim>& claims) {
  using Json = nlohmann::ordered_json;
  Json rows = Json::array();
  for (const Claim& claim : claims) {
    Json row = {{"claim", claim.claim},
                {"inputs", claim.inputs},
                {"computed", claim.computed},
                {"unit", NameOf(claim.unit)},
                {"verdict", VerdictOf(claim)}};
    if (claim.claimed) row["claimed"] = *claim.claimed;
    rows.push_back(std::move(row));
  }
  return {{"claims", std::move(rows)}};
}

}  // namespace onebit::schedule
