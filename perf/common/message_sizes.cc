// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Parses sizes and lists those of a sweep without overflow.
#include "perf/common/message_sizes.h"

#include <cmath>
#include <cstdlib>
#include <string>

namespace onebit::perf {
namespace {

// Advances to the next size unless it is above max_bytes or has wrapped around.
bool Advance(size_t* size, size_t next, size_t max_bytes) {
  if (next <= *size || next > max_bytes) return false;
  *size = next;
  return true;
}

}  // namespace

std::optional<size_t> ParseSize(std::string_view text) {
  // Accepts digits and a point only: strtod alone would also take "nan", "0x10" and " 1".
  const size_t digits = text.find_first_not_of("0123456789.");
  const std::string number(text.substr(0, digits));
  const std::string_view suffix = digits == text.npos ? "" : text.substr(digits);
  char* end = nullptr;
  double value = std::strtod(number.c_str(), &end);
  if (number.empty() || *end != '\0') return std::nullopt;

  if (suffix == "K" || suffix == "k") {
    value *= 1 << 10;
  } else if (suffix == "M" || suffix == "m") {
    value *= 1 << 20;
  } else if (suffix == "G" || suffix == "g") {
    value *= 1 << 30;
  } else if (!suffix.empty()) {
    return std::nullopt;
  }
  if (!(value < 0x1p63)) return std::nullopt;
  return static_cast<size_t>(value);
}

std::vector<size_t> SweepSizes(const SweepRange& range) {
  std::vector<size_t> sizes;
  size_t size = range.min_bytes;
  if (size > range.max_bytes) return sizes;
  do {
    sizes.push_back(size);
  } while (Advance(&size,
                   range.step_factor > 1 ? size * range.step_factor : size + range.step_bytes,
                   range.max_bytes));
  return sizes;
}

std::vector<size_t> WarmupSizes(const SweepRange& range) {
  return SweepSizes({range.min_bytes, range.max_bytes, 0, 2});
}

}  // namespace onebit::perf
