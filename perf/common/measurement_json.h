// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// One measurement of a row in nccl-tests' JSON layout; null is what was not measured.
#pragma once

#include <optional>

#include <nlohmann/json.hpp>

#include "perf/common/row.h"

namespace onebit::perf {

template <class Number>
nlohmann::ordered_json NumberOrNull(const std::optional<Number>& number) {
  return number ? nlohmann::ordered_json(*number) : nlohmann::ordered_json(nullptr);
}

inline nlohmann::ordered_json MeasurementJson(const Measurement& measurement) {
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

}  // namespace onebit::perf
