// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/common/json_report.h"

#include <utility>

namespace onebit::perf {

JsonReport::JsonReport(const RunFacts& facts, std::vector<std::string> arguments)
    : rows_(facts.rows) {
  report_ = {{"version", kReportLayoutVersion},
             {"start_time", LocalTime()},
             {"args", std::move(arguments)},
             {"env", LibraryEnvironment()}};
  report_.update(facts.version);
  report_["config"] = facts.config;
}

nlohmann::ordered_json JsonReport::Finish(uint64_t wrong, double average_bus_gbps) && {
  CompleteReport(std::move(results_), std::move(errors_), wrong, average_bus_gbps, &report_);
  return std::move(report_);
}

}  // namespace onebit::perf
