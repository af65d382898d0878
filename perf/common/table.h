// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The report on stdout: nccl-tests' columns, so that its readers and scripts understand it,
// followed by those of compression. Everything but rows begins with '#'. Here is what comes first;
// the rest is in sweep_text.h.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "perf/common/host.h"
#include "perf/common/options.h"
#include "perf/common/sweep_text.h"

namespace onebit::perf {

std::string HeaderText(std::string_view tool, const Options& options,
                       std::span<const RankPlace> places);

}  // namespace onebit::perf
