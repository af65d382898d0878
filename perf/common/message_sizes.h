// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Message sizes: their syntax on the command line, and the sizes a sweep visits.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace onebit::perf {

// Parses "4096", "1K", "32M", "1.5G": a number that is not negative, with an optional binary suffix
// in either case. No value if `text` is anything else or does not fit.
std::optional<size_t> ParseSize(std::string_view text);

struct SweepRange {
  size_t min_bytes = 32 << 20;
  size_t max_bytes = 32 << 20;
  size_t step_bytes = 1 << 20;  // additive, used while step_factor is 0 or 1
  size_t step_factor = 0;       // multiplicative
};

// Sizes of the rows, ascending from min_bytes to at most max_bytes.
std::vector<size_t> SweepSizes(const SweepRange& range);

// Sizes that are called once before the sweep: powers of two times min_bytes, up to max_bytes.
std::vector<size_t> WarmupSizes(const SweepRange& range);

}  // namespace onebit::perf
