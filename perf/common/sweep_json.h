// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The parts of a sweep's JSON report, in nccl-tests' layout (version 3) with numbers as numbers and
// what compression adds. Booleans are the strings "true" and "false", as there; null is what was
// not measured. It knows nothing of the library, so that programs which time other systems write
// the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "perf/common/host.h"
#include "perf/common/row.h"
#include "perf/common/sweep_flags.h"

namespace onebit::perf {

inline constexpr int kReportLayoutVersion = 3;

const char* BoolText(bool value);

template <class Number>
nlohmann::ordered_json NumberOrNull(const std::optional<Number>& number) {
  return number ? nlohmann::ordered_json(*number) : nlohmann::ordered_json(nullptr);
}

// "config" without its "devices".
nlohmann::ordered_json ConfigJson(const SweepFlags& flags, int threads);
nlohmann::ordered_json DevicesJson(std::span<const RankPlace> places);

// Of the GPU, or of the processor where buffers are host memory.
std::string DeviceNameOf(const RankPlace& place);

// How all rows of a report were measured.
struct RowFacts {
  std::string_view mode;
  std::string_view transport;
  std::string_view device = "cpu";
  size_t ranks = 0;
  bool is_dense = true;
};
nlohmann::ordered_json RowJson(const Row& row, const RowFacts& facts);

// Adds what comes after the parameters.
void CompleteReport(nlohmann::ordered_json results, nlohmann::ordered_json errors, uint64_t wrong,
                    double average_bus_gbps, nlohmann::ordered_json* report);

}  // namespace onebit::perf
