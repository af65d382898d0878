// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Parameters of the conformance tests of transport `ucx`: a check, ranks, and settings.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <ostream>
#include <string>
#include <vector>

#include "tests/transports/conformance.h"
#include "tests/transports/ucx_fixture.h"

namespace onebit::ucx {

struct Case {
  conformance::Check check;
  int nranks;
  SettingTexts settings;
};

inline void PrintTo(const Case& one, std::ostream* out) {
  *out << one.check.name << " on " << one.nranks << " ranks";
}

inline std::vector<Case> CasesFor(std::initializer_list<int> rank_counts,
                                  const SettingTexts& settings) {
  std::vector<Case> cases;
  for (const conformance::Check& check : conformance::AllChecks()) {
    for (const int nranks : rank_counts) {
      if (nranks >= check.min_ranks) cases.push_back({check, nranks, settings});
    }
  }
  return cases;
}

inline std::string NameOf(const ::testing::TestParamInfo<Case>& info) {
  return std::string(info.param.check.name) + "_" + std::to_string(info.param.nranks);
}

}  // namespace onebit::ucx
