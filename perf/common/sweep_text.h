// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What any sweep prints: parameters, ranks, nccl-tests' columns followed by those of compression,
// and the lines below them. It knows nothing of the library, so that programs which time other
// systems print the same.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "perf/common/host.h"
#include "perf/common/row.h"
#include "perf/common/sweep_flags.h"

namespace onebit::perf {

std::string ParametersText(const SweepFlags& flags, int threads);

// Where the ranks are: threads of one process in one line, unless each has a device, or processes
// with a line each.
std::string ThreadsText(std::span<const RankPlace> places);
std::string ProcessesText(std::span<const RankPlace> places);

std::string ColumnsText();
std::string RowText(const Row& row);
std::string FooterText(std::string_view tool, uint64_t wrong, double average_bus_gbps);

}  // namespace onebit::perf
