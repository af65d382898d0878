// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/codec_perf_measure.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>

#include "perf/codec_perf_buffers.h"

namespace onebit::perf {
namespace {

// Processor time of this thread. Time spent waiting while other programs run does not count.
double Now() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

double SecondsOf(const std::function<void()>& work) {
  const double begin = Now();
  work();
  return Now() - begin;
}

double MedianOf(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

std::vector<double> Quotients(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> quotients;
  for (size_t i = 0; i < a.size(); ++i) quotients.push_back(a[i] / b[i]);
  return quotients;
}

void Measure(benchmark::State& state, size_t logical_bytes, Shape shape,
             const TrafficBuffers& traffic, const std::function<void()>& kernel) {
  const CeilingPasses ceilings = CeilingPassesOf(shape);
  const size_t groups = Buffers::kElements / Traffic::kGroupElements;
  std::vector<double> kernel_seconds;
  std::array<std::vector<double>, std::tuple_size_v<CeilingPasses>> ceiling_seconds;
  for (auto _ : state) {
    kernel_seconds.push_back(SecondsOf(kernel));
    state.PauseTiming();
    for (size_t i = 0; i < ceilings.size(); ++i) {
      ceiling_seconds[i].push_back(SecondsOf([&] { ceilings[i](traffic, groups); }));
    }
    state.ResumeTiming();
  }
  double share = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& seconds : ceiling_seconds) {
    share = std::min(share, MedianOf(Quotients(seconds, kernel_seconds)));
  }
  state.counters["gbps"] = static_cast<double>(logical_bytes) / MedianOf(kernel_seconds) / 1e9;
  state.counters["ceiling_share"] = share;
}

}  // namespace onebit::perf
