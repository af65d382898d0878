// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// An optimizer's configuration, checked and with defaults filled in.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "kernels/types.h"
#include "onebit/optim.h"
#include "schedule/policy_options.h"

namespace onebit::optim {

// Bounds for the trust ratios of 1-bit LAMB.
struct LambOptions {
  double min_coefficient = 0.01;
  double max_coefficient = 10;
  double beta = 0.9;  // for the moving average
  double min_factor = 0.5;
  double max_factor = 4;
  double threshold = 0.1;
  bool skips_ratio_one = false;
};

// Effective values. Members mean the same as those of onebitOptimizerConfig_t.
struct Options {
  PolicyOptions policy;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double variance_floor = 0.01;  // of two-stage optimizers
  bool has_bias_correction = false;
  bool clips_average = false;
  bool has_fused_scales = false;  // scales of the compressed average may span segments
  LambOptions lamb;
  // True if the variance has floors for blocks, too. LAMB moves a layer as a whole.
  bool has_block_floors() const {
    return !has_fused_scales && variance_floor > 0 && policy.algorithm != onebitAlgorithmOneBitLamb;
  }
  void* parameter_copy = nullptr;  // null: only segments may have one
  kernels::DataType parameter_copy_type = kernels::DataType::kF32;  // kF32: there is no copy
};

// A null `config` means all defaults. Does not check the segments, and checks the compressor only
// for values that optimizers forbid.
Result<Options> ReadOptions(const onebitOptimizerConfig_t* config);

// The name in log lines.
const char* NameOf(onebitAlgorithm_t algorithm);

// Returns `value`, or `fallback` if it is ONEBIT_UNDEF_REAL. An error that names `member` unless
// the result is not negative and finite, also in fp32.
Result<double> ReadReal(std::string_view member, double value, double fallback);

// The kernels' name of an element type; an error for an unknown one.
Result<kernels::DataType> ReadDataType(std::string_view member, int32_t type);

}  // namespace onebit::optim
