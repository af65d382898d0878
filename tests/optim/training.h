// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Trains the toy problem through the public C API and records every rank's results.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/reference/float_formats.h"
#include "onebit/onebit.hpp"
#include "onebit/optim.h"
#include "tests/optim/toy_problem.h"
#include "tests/support/run_ranks.h"

namespace onebit::testing {

// Throws with the library's text unless `result` is success.
inline void Check(onebitResult_t result) {
  if (result == onebitSuccess) return;
  throw std::runtime_error(std::string(onebitGetErrorString(result)) + ": " +
                           onebitGetLastError(nullptr));
}

using OptimizerHandle = UniqueOptimizer;

inline OptimizerHandle MakeOptimizer(onebitComm_t comm, std::vector<float>& x,
                                     const onebitOptimizerConfig_t& config) {
  onebitOptimizer_t optimizer = nullptr;
  Check(onebitOptimizerCreate(&optimizer, comm, x.size(), x.data(), &config));
  return OptimizerHandle(optimizer);
}

inline onebitOptimizerStats_t StatsOf(const OptimizerHandle& optimizer) {
  onebitOptimizerStats_t stats{};
  stats.size = sizeof(stats);
  Check(onebitOptimizerGetStats(optimizer.get(), &stats));
  return stats;
}

// A moment of all segments, which have `count` elements together.
inline std::vector<float> MomentOf(onebitOptimizer_t optimizer, const char* name, size_t count) {
  std::vector<float> values(count);
  Check(onebitOptimizerGetMoment(optimizer, ONEBIT_ALL_SEGMENTS, name, values.data()));
  return values;
}

// Gradients in the form that the optimizer takes: in `type`, multiplied by `scale`.
inline std::vector<std::byte> Encode(const std::vector<float>& values, onebitDataType_t type,
                                     float scale) {
  std::vector<std::byte> bytes(values.size() * (type == onebitFloat32 ? 4 : 2));
  for (size_t i = 0; i < values.size(); ++i) {
    const float value = values[i] * scale;
    if (type == onebitFloat32) {
      reinterpret_cast<float*>(bytes.data())[i] = value;
    } else {
      reinterpret_cast<uint16_t*>(bytes.data())[i] = type == onebitFloat16
                                                         ? kernels::reference::Fp16OfFloat(value)
                                                         : kernels::reference::Bf16OfFloat(value);
    }
  }
  return bytes;
}

// Defaults of an optimizer that declares a warm-up of its learning rate, which keeps the log quiet.
inline onebitOptimizerConfig_t DefaultOptimizer() {
  onebitOptimizerConfig_t config = ONEBIT_OPTIMIZER_CONFIG_INIT;
  config.lrWarmupSteps = 1;
  return config;
}

// A training.
struct Training {
  ToyProblem problem;
  onebitOptimizerConfig_t config = DefaultOptimizer();
  size_t calls = 30;
  std::function<double(uint64_t step)> learning_rate = [](uint64_t) { return 0.05; };
  onebitDataType_t gradient_type = onebitFloat32;
  float loss_scale = 1;
  double max_grad_norm = 0;
  size_t segment_count = 0;  // for which trust ratios are recorded
  // Changes the gradient of `rank` before call 0, 1, ...; null changes nothing. A skipped call is
  // followed by another one for the same step.
  std::function<void(size_t call, int rank, std::vector<float>& gradient)> spoil;
};

// A rank's view of a training.
struct Record {
  std::vector<std::vector<float>> x;                    // before the first call and after each call
  std::vector<onebitStepResult_t> results;              // of each call
  std::vector<std::vector<onebitTrustRatio_t>> ratios;  // after each call, by segment
  std::vector<float> m, v;                              // at the end
  onebitOptimizerStats_t stats{};
  uint64_t comm_bytes = 0;  // sent by the communicator in all calls
};

// Returns one record per rank.
inline std::vector<Record> Train(const Training& training) {
  const ToyProblem& problem = training.problem;
  std::vector<Record> records(static_cast<size_t>(problem.ranks));
  RunRanks(problem.ranks, [&](onebitComm_t comm, int rank) {
    Record& record = records[static_cast<size_t>(rank)];
    std::vector<float> x = problem.StartPoint();
    const OptimizerHandle optimizer = MakeOptimizer(comm, x, training.config);
    record.x.push_back(x);
    uint64_t step = 1;
    for (size_t call = 0; call < training.calls; ++call) {
      std::vector<float> gradient = problem.Gradient(x, rank, step);
      if (training.spoil) training.spoil(call, rank, gradient);
      std::vector<std::byte> bytes = Encode(gradient, training.gradient_type, training.loss_scale);
      onebitStepResult_t result = ONEBIT_STEP_RESULT_INIT;
      Check(onebitOptimizerStep(optimizer.get(), bytes.data(), training.gradient_type,
                                training.learning_rate(step), 1.0 / training.loss_scale,
                                training.max_grad_norm, &result, nullptr));
      if (!result.skipped) ++step;
      record.x.push_back(x);
      record.results.push_back(result);
      record.ratios.emplace_back();
      for (size_t i = 0; i < training.segment_count; ++i) {
        onebitTrustRatio_t ratio = ONEBIT_TRUST_RATIO_INIT;
        Check(onebitOptimizerGetTrustRatio(optimizer.get(), i, &ratio));
        record.ratios.back().push_back(ratio);
      }
    }
    record.m = MomentOf(optimizer.get(), "m", x.size());
    record.v = MomentOf(optimizer.get(), "v", x.size());
    record.stats = StatsOf(optimizer);
    onebitCommStats_t comm_stats{};
    comm_stats.size = sizeof(comm_stats);
    Check(onebitCommGetStats(comm, &comm_stats));
    record.comm_bytes = comm_stats.bytes_sent;
  });
  return records;
}

// The warnings of all ranks while `run` runs.
inline std::vector<std::string> WarningsOf(const std::function<void()>& run) {
  std::vector<std::string> warnings;
  Check(onebitSetLogCallback(
      [](onebitLogLevel_t level, const char* text, void* argument) {
        if (level == onebitLogWarn)
          static_cast<std::vector<std::string>*>(argument)->push_back(text);
      },
      &warnings));
  run();
  Check(onebitSetLogCallback(nullptr, nullptr));
  return warnings;
}

inline std::vector<std::string> WarningsOf(const Training& training) {
  return WarningsOf([&] { Train(training); });
}

// Compressor settings of the recorded trajectories: scales as in the papers, chunks of 8.
inline onebitCompressorConfig_t PaperCompressor(onebitScaleRule_t rule = onebitScaleL2,
                                                onebitMode_t mode = onebitModeEf) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.mode = mode;
  config.scaleRule = rule;
  config.block = ONEBIT_BLOCK_TENSOR;
  config.chunkAlignment = 8;
  return config;
}

// Optimizer settings of the recorded trajectories. `compressor` must outlive the result.
inline onebitOptimizerConfig_t PaperOptimizer(const onebitCompressorConfig_t& compressor,
                                              int64_t freeze_step) {
  onebitOptimizerConfig_t config = DefaultOptimizer();
  config.beta2 = 0.97;
  config.varianceFloor = 0;
  config.freezeStep = freeze_step;
  config.compressor = &compressor;
  return config;
}

// Expects on every rank the bytes of rank 0, for x after every call and for m and v at the end.
inline void ExpectReplicasEqual(const std::vector<Record>& records) {
  for (size_t rank = 1; rank < records.size(); ++rank) {
    EXPECT_EQ(records[rank].m, records[0].m) << "rank " << rank;
    EXPECT_EQ(records[rank].v, records[0].v) << "rank " << rank;
    for (size_t call = 0; call < records[0].x.size(); ++call) {
      ASSERT_EQ(records[rank].x[call], records[0].x[call])
          << "rank " << rank << ", after " << call << " calls";
    }
  }
}

// Largest difference between elements of a and b; NaN if there is one.
template <typename A, typename B>
double MaxDifference(const std::vector<A>& a, const std::vector<B>& b) {
  if (a.size() != b.size()) throw std::runtime_error("sizes differ");
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference =
        a[i] < b[i] ? double(b[i]) - double(a[i]) : double(a[i]) - double(b[i]);
    if (!(difference <= most)) most = difference;
  }
  return most;
}

}  // namespace onebit::testing
