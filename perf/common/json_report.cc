// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Writes what nccl-tests writes, row by row.
#include "perf/common/json_report.h"

#include <utility>

#include "perf/common/error.h"
#include "perf/common/sweep_json.h"

namespace onebit::perf {
namespace {

using Json = nlohmann::ordered_json;

Json ConfigOf(const Options& options, std::span<const RankPlace> places) {
  Json config = ConfigJson(options, options.ranks.threads);
  config["ngpus"] = options.device.is_cuda ? 1 : 0;
  config["blocking_collectives"] = BoolText(!options.device.is_cuda);
  config["scale"] = options.scale_rule == onebitScaleL1 ? "l1" : "l2";
  if (options.block == ONEBIT_BLOCK_TENSOR) {
    config["block"] = "tensor";
  } else {
    config["block"] = options.block;
  }
  config["device"] = options.device.name();
  if (!places.empty()) config["device_name"] = DeviceNameOf(places.front());
  config["devices"] = DevicesJson(places);
  return config;
}

}  // namespace

JsonReport::JsonReport(const Options& options, std::span<const RankPlace> places,
                       std::vector<std::string> arguments)
    : options_(options), rank_count_(places.size()) {
  int version = 0;
  Check(onebitGetVersion(&version), "onebitGetVersion");
  report_ = {{"version", kReportLayoutVersion}, {"start_time", LocalTime()},
             {"args", std::move(arguments)},    {"env", LibraryEnvironment()},
             {"onebit_version", version},       {"config", ConfigOf(options, places)}};
}

void JsonReport::AddRow(const Row& row) {
  results_.push_back(RowJson(row, {.mode = ModeName(options_.mode),
                                   .transport = options_.transport,
                                   .device = options_.device.name(),
                                   .ranks = rank_count_,
                                   .is_dense = !options_.is_compressed()}));
}

void JsonReport::AddError(const std::string& error) { errors_.push_back(error); }

Json JsonReport::Finish(uint64_t wrong, double average_bus_gbps) && {
  CompleteReport(std::move(results_), std::move(errors_), wrong, average_bus_gbps, &report_);
  return std::move(report_);
}

}  // namespace onebit::perf
