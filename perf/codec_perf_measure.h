// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// How codec_perf times a kernel and the passes that set its ceiling.
#pragma once

#include <benchmark/benchmark.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "perf/codec_perf_ceiling.h"

namespace onebit::perf {

// Processor time that `work` takes.
double SecondsOf(const std::function<void()>& work);

double MedianOf(std::vector<double> values);

// a[i] / b[i] for all i.
std::vector<double> Quotients(const std::vector<double>& a, const std::vector<double>& b);

// Times `kernel` over all elements against the ceiling of `shape`.
void Measure(benchmark::State& state, size_t logical_bytes, Shape shape,
             const TrafficBuffers& traffic, const std::function<void()>& kernel);

}  // namespace onebit::perf
