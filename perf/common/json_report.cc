// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Writes what nccl-tests writes, row by row.
#include "perf/common/json_report.h"

#include <utility>

#include <fmt/format.h>

#include "perf/common/elements.h"
#include "perf/common/error.h"
#include "perf/common/host.h"
#include "perf/common/measurement_json.h"

namespace onebit::perf {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kLayoutVersion = 3;

const char* BoolText(bool value) { return value ? "true" : "false"; }

Json DevicesJson(std::span<const RankPlace> places) {
  Json devices = Json::array();
  for (size_t rank = 0; rank < places.size(); ++rank) {
    devices.push_back({{"rank", rank},
                       {"group", 0},
                       {"pid", places[rank].pid},
                       {"hostname", places[rank].host},
                       {"device", nullptr},  // host memory
                       {"device_info", ProcessorName()}});
  }
  return devices;
}

Json ConfigJson(const Options& options, std::span<const RankPlace> places) {
  Json config = {{"nthreads", options.ranks.threads},
                 {"ngpus", 0},
                 {"minimum_bytes", options.sweep.min_bytes},
                 {"maximum_bytes", options.sweep.max_bytes}};
  if (options.sweep.step_factor > 1) {
    config["step_factor"] = options.sweep.step_factor;
  } else {
    config["step_bytes"] = options.sweep.step_bytes;
  }
  config["warmup_iters"] = options.warmup_iterations;
  config["iterations"] = options.iterations;
  config["aggregated_iterations"] = 1;
  config["validation"] = options.checks;
  config["graph"] = 0;
  config["blocking_collectives"] = BoolText(true);
  config["per_iter_timing"] = BoolText(false);
  config["scale"] = options.scale_rule == onebitScaleL1 ? "l1" : "l2";
  if (options.block == ONEBIT_BLOCK_TENSOR) {
    config["block"] = "tensor";
  } else {
    config["block"] = options.block;
  }
  config["devices"] = DevicesJson(places);
  return config;
}

}  // namespace

JsonReport::JsonReport(const Options& options, std::span<const RankPlace> places,
                       std::vector<std::string> arguments)
    : options_(options), rank_count_(places.size()) {
  int version = 0;
  Check(onebitGetVersion(&version), "onebitGetVersion");
  report_ = {{"version", kLayoutVersion},    {"start_time", LocalTime()},
             {"args", std::move(arguments)}, {"env", LibraryEnvironment()},
             {"onebit_version", version},    {"config", ConfigJson(options, places)}};
}

void JsonReport::AddRow(const Row& row) {
  Json json = {{"size", row.bytes},
               {"count", row.count},
               {"type", TypeName(row.type)},
               {"redop", OpName(row.op)},
               {"root", -1},
               {"out_of_place", MeasurementJson(row.out_of_place)},
               {"in_place", MeasurementJson(row.in_place)},
               {"actual_iterations", row.iterations},
               {"untimed_calls", row.untimed_calls},
               {"experiment_name", ""},
               {"mode", ModeName(options_.mode)},
               {"transport", options_.transport},
               {"nranks", rank_count_},
               {"wire_bytes", NumberOrNull(row.wire_bytes)},
               {"wire_bytes_bound", row.wire_bytes_bound},
               {"rel_error", row.rel_error},
               {"speedup_vs_dense", 1.0}};  // dense is as fast as itself
  if (options_.is_compressed()) json["speedup_vs_dense"] = NumberOrNull(row.speedup_vs_dense);
  results_.push_back(std::move(json));
}

void JsonReport::AddError(const std::string& error) { errors_.push_back(error); }

Json JsonReport::Finish(uint64_t wrong, double average_bus_gbps) && {
  report_["results"] = std::move(results_);
  const bool is_okay = wrong == 0 && errors_.empty();
  report_["out_of_bounds"] = {{"count", wrong}, {"okay", BoolText(is_okay)}};
  report_["average_bus_bandwidth"] = {{"bandwidth", average_bus_gbps}, {"okay", "unchecked"}};
  report_["errors"] = std::move(errors_);
  report_["end_time"] = LocalTime();
  return std::move(report_);
}

}  // namespace onebit::perf
