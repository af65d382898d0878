// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The options of train_text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "onebit/onebit.h"
#include "onebit/optim.h"
#include "perf/common/procs.h"
#include "perf/common/rank_environment.h"
#include "perf/train_text/model.h"
#include "perf/train_text/outer_rule.h"
#include "perf/train_text/text_corpus.h"

namespace onebit::train {

enum class OptimizerKind {
  kAdam,
  kOneBitAdam,
  kShardedOneBitAdam,
  kLamb,
  kOneBitLamb,
  kZeroOneAdam
};

/**
 * A rank that is to be killed in the middle of a step, after which the others must continue without
 * it.
 */
struct Loss {
  int rank = 0;
  int step = 1;  // the first is 1
};

struct TrainOptions {
  // The run.
  int ranks = 4;
  perf::RankSource source;  // where they come from
  std::string transport = "local";
  int steps = 500;
  int batch = 64;  // examples per rank and step: bytes that are predicted, or windows of them
  uint64_t seed = 0;
  ModelShape shape;
  std::string text_path = kDefaultTextPath;

  // The optimizer.
  OptimizerKind optimizer = OptimizerKind::kOneBitAdam;
  onebitVariant_t variant = onebitVariantPaper;
  double lr = 3e-3;
  int warmup_steps = 40;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0;
  double max_grad_norm = 0;  // 0: no clipping
  // The freeze of two-stage optimizers: a step, or ONEBIT_FREEZE_AUTOMATIC or _SETTLED; default: a
  // fifth of the steps.
  std::optional<int64_t> freeze;
  std::optional<double> variance_floor;  // default: VarianceFloorOf
  // Members that only LAMB or 0/1 Adam have, as optimizer_config.h lists them. The others are
  // ignored.
  onebitOptimizerConfig_t rule = ONEBIT_OPTIMIZER_CONFIG_INIT;
  bool is_overlapped = false;  // one optimizer per layer, which begins before the other gradients
  std::optional<OuterRule> outer;  // ranks step by themselves; these averages are the exchange

  // The exchange.
  onebitDataType_t gradient_type = onebitFloat32;
  std::optional<double>
      loss_scale;  // default: 1024 for fp16 gradients, which begin at 6e-8; else 1
  onebitMode_t mode = onebitModeEf;
  onebitScaleRule_t scale_rule = onebitScaleL2;
  onebitScales_t scales = onebitScalesSegment;  // of compressing optimizers, with scales of blocks
  int block = 4096;                             // or ONEBIT_BLOCK_TENSOR
  // Gradients, or with `outer` what ranks have done, are averaged with this codec by optimizers
  // that compress nothing themselves; none: in full precision. By a sharded one gradients of its
  // compressed stage are; none: as signs.
  std::optional<onebitCodec_t> codec;
  onebitCodec_t gather = onebitCodecFp4;  // of the parameters of a sharded optimizer
  onebitDataType_t residual_type = onebitFloat32;
  bool server_residual = true;

  // The report.
  std::string json_path;  // empty: none
  bool check_replicas = false;
  double evaluate_every_percent = 0;  // of the steps; 0: only at the end

  std::optional<Loss> survive;  // ranks are processes then

  double gradient_scale() const;
};

/** Throws perf::UsageError if options.survive names no rank or step of the run. */
void CheckLoss(const TrainOptions& options, int ranks);

/** Names as on the command line. */
const char* ModelName(ModelKind kind);
const char* OptimizerName(OptimizerKind optimizer);
const char* GatherName(onebitCodec_t codec);
const char* VariantName(onebitVariant_t variant);
std::string ModeName(const TrainOptions& options);  // "dense" if nothing is compressed
const char* TypeName(onebitDataType_t type);

inline constexpr int kMaxSteps = 10'000'000;

/**
 * Prints help to stdout and returns no value if asked for it; throws perf::UsageError on a mistake.
 * Launched ranks all have the same command line, so only the first one prints.
 */
std::optional<TrainOptions> ParseOptions(int argc, const char* const* argv,
                                         std::optional<int> launched_rank = perf::LaunchedRank());

}  // namespace onebit::train
