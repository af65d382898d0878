// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Facts about a run of the library, for the header and the report of a sweep.
#pragma once

#include <span>
#include <string>

#include "perf/common/host_facts.h"
#include "perf/common/sweep_json.h"
#include "perf/common/sweep_options.h"

namespace onebit::perf {

// The result borrows from the options.
RunFacts FactsOfLibrary(const Options& options, std::span<const RankInfo> infos);

// "0.1.0". Throws ToolError.
std::string LibraryVersionText();

}  // namespace onebit::perf
