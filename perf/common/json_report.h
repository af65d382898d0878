// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The report of -J: nccl-tests' layout (version 3) with numbers as numbers, and what compression
// adds to each row. Booleans are the strings "true" and "false", as there.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "perf/common/host.h"
#include "perf/common/options.h"
#include "perf/common/row.h"

namespace onebit::perf {

class JsonReport {
 public:
  JsonReport(const Options& options, std::span<const RankPlace> places,
             std::vector<std::string> arguments);

  void AddRow(const Row& row);
  void AddError(const std::string& error);

  // Completes the report; call once.
  nlohmann::ordered_json Finish(uint64_t wrong, double average_bus_gbps) &&;

 private:
  Options options_;
  size_t rank_count_;
  nlohmann::ordered_json report_;
  nlohmann::ordered_json results_ = nlohmann::ordered_json::array();
  nlohmann::ordered_json errors_ = nlohmann::ordered_json::array();
};

}  // namespace onebit::perf
