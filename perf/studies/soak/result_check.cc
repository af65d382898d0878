// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Compares bytes; the messages show numbers.
#include "perf/studies/soak/result_check.h"

#include <algorithm>

#include <fmt/format.h>

#include "perf/common/seeded_elements.h"

namespace onebit::soak {
namespace {

bool IsUntouched(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == kUntouched; });
}

}  // namespace

std::string ProblemWithResult(const void* got, const void* expected, size_t count,
                              onebitDataType_t type) {
  const perf::Difference difference = perf::CompareElements(got, expected, count, type);
  if (difference.count == 0) return "";
  return fmt::format("{} of {} elements are wrong, first element {}: {} instead of {}",
                     difference.count, count, difference.first,
                     perf::ElementAt(got, type, difference.first),
                     perf::ElementAt(expected, type, difference.first));
}

std::string ProblemWithGuard(std::span<const std::byte> before, std::span<const std::byte> after) {
  if (!IsUntouched(before)) return "memory before the result was written to";
  return IsUntouched(after) ? "" : "memory behind the result was written to";
}

}  // namespace onebit::soak
