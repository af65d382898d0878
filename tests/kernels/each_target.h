// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs a test once for every instruction set that was compiled and that this machine supports.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#if ONEBIT_TEST_HIGHWAY
#include "kernels/cpu/targets.h"
// Must follow the list of targets.
#include <hwy/highway.h>
#endif

namespace onebit::kernels {

// TEST_P with this fixture calls `cpu` kernels of the target in GetParam().
class EachTarget : public testing::TestWithParam<int64_t> {
 protected:
#if ONEBIT_TEST_HIGHWAY
  void SetUp() override { Choose(GetParam()); }
  void TearDown() override { Choose(0); }

 private:
  static void Choose(int64_t targets) {  // 0: those of this machine
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
#endif
};

inline std::vector<int64_t> AllTargets() {
#if ONEBIT_TEST_HIGHWAY
  hwy::SetSupportedTargetsForTest(0);
  std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  if (targets.empty()) targets.push_back(HWY_STATIC_TARGET);
  return targets;
#else
  return {0};
#endif
}

inline std::string NameOfTarget(const testing::TestParamInfo<int64_t>& info) {
#if ONEBIT_TEST_HIGHWAY
  return hwy::TargetName(info.param);
#else
  return info.param == 0 ? "Scalar" : "Unknown";
#endif
}

}  // namespace onebit::kernels

#define ONEBIT_TEST_EACH_TARGET(Fixture)                                                       \
  INSTANTIATE_TEST_SUITE_P(Targets, Fixture, testing::ValuesIn(onebit::kernels::AllTargets()), \
                           onebit::kernels::NameOfTarget)
