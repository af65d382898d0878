// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The parts of a sweep's JSON report: nccl-tests' layout (version 3) with numbers as numbers, and
// the fields of compression. Booleans are the strings "true" and "false", as there; null means not
// measured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "perf/common/host_facts.h"
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
nlohmann::ordered_json DevicesJson(std::span<const RankInfo> infos);

// Returns how many ranks each host has, by its number; nothing if that is not known of all ranks.
std::vector<uint64_t> RanksByHost(std::span<const RankInfo> infos);

// The name of the GPU, or of the processor for host memory.
std::string DeviceNameOf(const RankInfo& info);

// The part of a row that all rows of a report share.
struct RowFacts {
  std::string_view mode;
  nlohmann::ordered_json codec = nullptr;  // its name; null in dense rows, as is the block
  nlohmann::ordered_json block = nullptr;
  std::string_view transport;
  std::string_view device = "cpu";
  size_t ranks = 0;
  bool is_dense = true;
};

// The part of a report that differs from system to system, besides the rows.
struct RunFacts {
  std::string system;              // name and version
  nlohmann::ordered_json version;  // the same, with its key in the report
  nlohmann::ordered_json config;
  RowFacts rows;  // borrows its texts
  int threads = 1;
  std::vector<uint64_t> ranks_by_host = {};  // empty: not known
  std::string details = {};                  // appended to the mode
  std::string devices = {};                  // a line for each rank
};

nlohmann::ordered_json RowJson(const Row& row, const RowFacts& facts);

// Adds everything behind the parameters.
void CompleteReport(nlohmann::ordered_json results, nlohmann::ordered_json errors, uint64_t wrong,
                    double average_bus_gbps, nlohmann::ordered_json* report);

}  // namespace onebit::perf
