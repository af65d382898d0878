// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The text of a sweep: parameters, ranks, nccl-tests' columns followed by those of compression, and
// the footer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "perf/common/host_facts.h"
#include "perf/common/row.h"
#include "perf/common/sweep_flags.h"
#include "perf/common/sweep_json.h"

namespace onebit::perf {

// Returns everything above the rows.
std::string HeaderText(std::string_view tool, const SweepFlags& flags, const RunFacts& facts);

// Tells where the ranks are: threads of one process in one line, unless each has a device;
// processes with a line each.
std::string ThreadsText(std::span<const RankInfo> infos);
std::string ProcessesText(std::span<const RankInfo> infos);

std::string RowText(const Row& row);
std::string FooterText(std::string_view tool, uint64_t wrong, double average_bus_gbps);

}  // namespace onebit::perf
