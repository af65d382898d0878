// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The configuration of an optimizer, checked and with its defaults filled in.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "kernels/types.h"
#include "onebit/optim.h"
#include "schedule/policy_options.h"

namespace onebit::optim {

// Of 1-bit LAMB: how far trust ratios go.
struct LambOptions {
  double min_coefficient = 0.01;
  double max_coefficient = 10;
  double beta = 0.9;  // of the moving average
  double min_factor = 0.5;
  double max_factor = 4;
  double threshold = 0.1;
  bool skips_ratio_one = false;
};

// Values in force. Members mean what those of onebitOptimizerConfig_t mean.
struct Options {
  PolicyOptions policy;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double variance_floor = 0.01;
  bool has_bias_correction = false;
  LambOptions lamb;
  void* parameter_copy = nullptr;
  kernels::DataType parameter_copy_type = kernels::DataType::kF32;  // kF32 when there is no copy
};

// `config` null: all defaults. Does not look at the segments, and of the compressor only at what
// the optimizer forbids.
Result<Options> ReadOptions(const onebitOptimizerConfig_t* config);

// For log lines.
const char* NameOf(onebitAlgorithm_t algorithm);

// `value`, or `fallback` if it is ONEBIT_UNDEF_REAL. An error that names `member` unless the result
// is finite, also in fp32, and not negative.
Result<double> ReadReal(std::string_view member, double value, double fallback);

// The kernels' name of an element type; an error for an unknown one.
Result<kernels::DataType> ReadDataType(std::string_view member, int32_t type);

}  // namespace onebit::optim
