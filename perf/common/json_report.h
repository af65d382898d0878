// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The report of -J: nccl-tests' layout (version 3) with numbers as numbers, and what compression
// adds to each row. Booleans are the strings "true" and "false", as there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "perf/common/row.h"
#include "perf/common/sweep_json.h"

namespace onebit::perf {

class JsonReport {
 public:
  JsonReport(const RunFacts& facts, std::vector<std::string> arguments);

  void AddRow(const Row& row) { results_.push_back(RowJson(row, rows_)); }
  void AddError(const std::string& error) { errors_.push_back(error); }

  // Completes the report; call once.
  nlohmann::ordered_json Finish(uint64_t wrong, double average_bus_gbps) &&;

 private:
  RowFacts rows_;
  nlohmann::ordered_json report_;
  nlohmann::ordered_json results_ = nlohmann::ordered_json::array();
  nlohmann::ordered_json errors_ = nlohmann::ordered_json::array();
};

}  // namespace onebit::perf
