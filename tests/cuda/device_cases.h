// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The cases in which calls on device memory are compared with those on host memory.
#pragma once

#include <vector>

#include "tests/cuda/device_case.h"

namespace onebit::testing {

std::vector<DeviceCase> CasesOfEveryCollective();
std::vector<DeviceCase> CasesOfElementTypes();
std::vector<DeviceCase> CasesOfDenseTypes();
std::vector<DeviceCase> CasesOfScales();
std::vector<DeviceCase> CasesOfOneExchange();
std::vector<DeviceCase> CasesOfMasksAndResidualTypes();
std::vector<DeviceCase> CasesOfCountsAndAlignments();
std::vector<DeviceCase> CasesInPlace();
std::vector<DeviceCase> CasesOfNonfiniteValues();
// Each codec but that of signs: every collective and mode, then what else may differ.
std::vector<DeviceCase> CasesOfLowBitCodecs();
std::vector<DeviceCase> CasesOfLowBitOptions();
std::vector<DeviceCase> CasesOfLowBitNonfiniteValues();
// Two levels, for four ranks.
std::vector<DeviceCase> CasesOfTwoLevels();
// The same for six ranks, on two hosts and on three, and on hosts of four ranks and two.
std::vector<DeviceCase> CasesOfOtherHosts();

}  // namespace onebit::testing
