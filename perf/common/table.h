// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The report on stdout: nccl-tests' columns, so that its readers and scripts understand it,
// followed by those of compression. Everything but rows begins with '#'.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "perf/common/host.h"
#include "perf/common/options.h"
#include "perf/common/row.h"

namespace onebit::perf {

std::string HeaderText(std::string_view tool, const Options& options,
                       std::span<const RankPlace> places);
std::string RowText(const Row& row);
std::string FooterText(std::string_view tool, uint64_t wrong, double average_bus_gbps);

}  // namespace onebit::perf
