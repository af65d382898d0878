// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Keys in the order of nccl-tests.
#include "perf/common/sweep_json.h"

#include <algorithm>
#include <utility>

#include "perf/common/seeded_elements.h"

namespace onebit::perf {
namespace {

using Json = nlohmann::ordered_json;

Json MeasurementJson(const Measurement& measurement) {
  std::optional<double> time_us, alg_gbps, bus_gbps;
  if (measurement.seconds) {
    time_us = *measurement.seconds * 1e6;
    alg_gbps = measurement.bandwidth.alg_gbps;
    bus_gbps = measurement.bandwidth.bus_gbps;
  }
  return {{"time", NumberOrNull(time_us)},
          {"alg_bw", NumberOrNull(alg_gbps)},
          {"bus_bw", NumberOrNull(bus_gbps)},
          {"nwrong", NumberOrNull(measurement.wrong)}};
}

}  // namespace

std::string DeviceNameOf(const RankInfo& info) {
  return info.cuda_device ? info.cuda_name : ProcessorName();
}

const char* BoolText(bool value) { return value ? "true" : "false"; }

Json ConfigJson(const SweepFlags& flags, int threads) {
  Json config = {{"nthreads", threads},
                 {"ngpus", 0},
                 {"minimum_bytes", flags.sweep.min_bytes},
                 {"maximum_bytes", flags.sweep.max_bytes},
                 {"buffer_bytes", flags.AllocatedBytes()}};
  if (flags.sweep.step_factor > 1) {
    config["step_factor"] = flags.sweep.step_factor;
  } else {
    config["step_bytes"] = flags.sweep.step_bytes;
  }
  config["warmup_iters"] = flags.warmup_iterations;
  config["iterations"] = flags.iterations;
  if (flags.row_seconds) config["row_seconds"] = *flags.row_seconds;
  config["run_cycles"] = flags.cycles;
  config["average"] = static_cast<int>(flags.rank_time);
  config["aggregated_iterations"] = 1;
  config["validation"] = flags.checks;
  config["graph"] = 0;
  config["blocking_collectives"] = BoolText(true);
  config["per_iter_timing"] = BoolText(false);
  return config;
}

Json DevicesJson(std::span<const RankInfo> infos) {
  Json devices = Json::array();
  for (size_t rank = 0; rank < infos.size(); ++rank) {
    devices.push_back({{"rank", rank},
                       {"group", 0},
                       {"pid", infos[rank].pid},
                       {"hostname", infos[rank].host},
                       {"host", NumberOrNull(infos[rank].host_number)},
                       {"device", NumberOrNull(infos[rank].cuda_device)},  // null: host memory
                       {"device_info", DeviceNameOf(infos[rank])}});
  }
  return devices;
}

std::vector<uint64_t> RanksByHost(std::span<const RankInfo> infos) {
  std::vector<uint64_t> ranks;
  for (const RankInfo& info : infos) {
    if (!info.host_number) return {};
    ranks.resize(std::max<size_t>(ranks.size(), *info.host_number + 1));
    ++ranks[*info.host_number];
  }
  return ranks;
}

Json RowJson(const Row& row, const RowFacts& facts) {
  Json json = {{"size", row.bytes},
               {"count", row.count},
               {"type", TypeName(row.type)},
               {"redop", OpName(row.op)},
               {"root", row.root},
               {"out_of_place", MeasurementJson(row.out_of_place)},
               {"in_place", MeasurementJson(row.in_place)},
               {"actual_iterations", row.iterations},
               {"untimed_calls", row.untimed_calls},
               {"experiment_name", ""},
               {"mode", facts.mode},
               {"codec", facts.codec},
               {"block", facts.block},
               {"transport", facts.transport},
               {"device", facts.device},
               {"nranks", facts.ranks},
               {"levels", row.levels},
               {"wire_bytes", NumberOrNull(row.wire_bytes)},
               {"wire_bytes_bound", NumberOrNull(row.wire_bytes_bound)},
               {"rel_error", row.rel_error},
               {"speedup_vs_dense", 1.0}};  // dense is as fast as itself
  if (!facts.is_dense) json["speedup_vs_dense"] = NumberOrNull(row.speedup_vs_dense);
  return json;
}

void CompleteReport(Json results, Json errors, uint64_t wrong, double average_bus_gbps,
                    Json* report) {
  const bool is_okay = wrong == 0 && errors.empty();
  (*report)["results"] = std::move(results);
  (*report)["out_of_bounds"] = {{"count", wrong}, {"okay", BoolText(is_okay)}};
  (*report)["average_bus_bandwidth"] = {{"bandwidth", average_bus_gbps}, {"okay", "unchecked"}};
  (*report)["errors"] = std::move(errors);
  (*report)["end_time"] = LocalTime();
}

}  // namespace onebit::perf
