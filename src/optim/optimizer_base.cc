// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer_base.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/digest.h"
#include "optim/api_status.h"
#include "optim/gradient_elements.h"
#include "optim/gradient_norm.h"
#include "optim/quiet_log.h"

namespace onebit::optim {

// ------------------------------------------------------------------------------------- life time

void Optimizer::Drain() {
  arithmetic_->Drain();
  // After a device error the communicator's thread may still use it.
  averages_.Drain();
}

Status Optimizer::CreateCompressor(const onebitCompressorConfig_t* config) {
  if (rank() == 0) ONEBIT_TRY(updates_.Allocate(table_, *arithmetic_));
  std::vector<size_t> cuts;
  if (!options_.has_fused_scales) cuts = table_.CompressedCuts();
  return averages_.CreateCompressor(table_.compressed_count(), config, cuts);
}

// Another rank may be rank 0, which warns, from here on. Without memory for a sample it does not.
void Optimizer::BeginAnew() {
  agreed_stages_ = 0;
  updates_.Forget();
  if (rank() == 0 && averages_.compressor() != nullptr) {
    static_cast<void>(updates_.Allocate(table_, *arithmetic_));
  }
}

// ------------------------------------------------------------------------------------------ step

Status Optimizer::Step(StepInput input, StepOutcome* outcome) {
  ONEBIT_TRY(CheckWhole());
  ONEBIT_TRY(gradients_.FillZeros(arithmetic_.get()));
  input.gradients = gradients_.gradients();
  StepOutcome done{.stage = NextStage(input.learning_rate)};
  if (done.stage == onebitStageLocal) {
    ONEBIT_TRY(PrepareStep(input));
    ONEBIT_TRY(StepAlone(input, &done));
    *outcome = done;
    return OkStatus();
  }

  ONEBIT_TRY(averages_.CheckComm());
  ONEBIT_TRY(PrepareStep(input));
  if (Status status = AgreeOnStep(input, done.stage); !status.ok()) return InStep(status);
  const uint64_t bytes_before = averages_.BytesSent();  // so that equal steps have equal results
  Result<StepScale> scale = ScaleOf(input, done.stage);
  if (!scale.ok()) return InStep(scale.status());
  // A norm that all ranks have agreed on may say already that some gradient is not finite.
  bool is_usable = options_.clips_average || std::isfinite(scale.value().grad_norm);
  if (is_usable) {
    const Result<bool> averaged = Average(input, &scale.value());
    if (!averaged.ok()) return InStep(averaged.status());
    is_usable = averaged.value();
  }
  done.grad_norm = scale.value().grad_norm;
  if (is_usable) {
    ONEBIT_TRY(CommitOrTear(input, scale.value()));
    CountStep(done.stage);
    WarnWithoutWarmup(input.learning_rate);
  } else {
    ONEBIT_ASSIGN_OR_RETURN(const bool has_changed, Skip(input));
    ++skipped_steps_;
    if (has_changed) CountCommit(onebitStageDense);
  }

  done.is_skipped = !is_usable;
  done.bytes_sent = averages_.BytesSent() - bytes_before;
  bytes_sent_ += done.bytes_sent;
  *outcome = done;
  return OkStatus();
}

// Measures the norm that limits a step, unless the step itself will.
Result<StepScale> Optimizer::ScaleOf(const StepInput& input, onebitStage_t stage) {
  StepScale scale;
  scale.own = scale.average = static_cast<float>(input.grad_scale);
  if (input.max_grad_norm == 0) return scale;
  if (options_.clips_average) {
    scale.average_limit = input.max_grad_norm;
    if (averages_all_gradients()) return scale;
    ONEBIT_ASSIGN_OR_RETURN(const double scaled_sum,
                            averages_.ScaledSumOfSquares(input.gradients, input));
    scale.grad_norm = NormOf(scaled_sum);
    scale.own = ClippedScale(input, scale.grad_norm);
    // A rank that sends its momentum makes all ranks skip the step with it. One that sends only
    // gradients contributes nothing to its own momentum, as in a local step.
    if (!IsUsable(scaled_sum)) {
      scale.own = stage == onebitStageDense ? 0 : std::numeric_limits<float>::quiet_NaN();
    }
    return scale;
  }
  ONEBIT_ASSIGN_OR_RETURN(const double scaled_sum,
                          averages_.ScaledSumOfSquares(input.gradients, input));
  ONEBIT_ASSIGN_OR_RETURN(scale.grad_norm, averages_.AgreeOnNorm(scaled_sum));
  scale.own = scale.average = ClippedScale(input, scale.grad_norm);
  return scale;
}

// Compares values before the first step of each stage, when calls of another kind are new anyway,
// and now and then later, because a schedule of rates can take ranks apart. Parameters are compared
// at the first occasion, unless local steps have taken ranks apart.
Status Optimizer::AgreeOnStep(const StepInput& input, onebitStage_t stage) {
  if (averages_.ranks() == 1) return OkStatus();
  const uint32_t bit = 1u << stage;
  const bool is_new_stage = (agreed_stages_ & bit) == 0;
  if (!is_new_stage && steps_until_comparison_ > 0) {
    --steps_until_comparison_;
    return OkStatus();
  }
  std::vector<uint64_t> digests;
  if (agreed_stages_ == 0 && ranks_share_parameters()) {
    ONEBIT_ASSIGN_OR_RETURN(digests, ParameterDigests());
  }
  ONEBIT_TRY(CompareStep(averages_.comm(), rank(), input, options_, table_, digests));
  agreed_stages_ |= bit;
  steps_until_comparison_ = kStepsBetweenComparisons - 1;
  return OkStatus();
}

// Returns a digest of each segment's parameters; those on a device are read in pieces.
Result<std::vector<uint64_t>> Optimizer::ParameterDigests() {
  constexpr size_t kPiece = size_t{1} << 20;  // elements
  std::vector<uint64_t> digests;
  std::vector<float> copy(arithmetic_->is_deferred() ? std::min(count(), kPiece) : 0);
  for (const Segment& segment : table_.segments()) {
    uint64_t digest = 0;
    for (size_t begin = 0; begin < segment.count; begin += kPiece) {
      std::span<float> piece(segment.x + begin, std::min(kPiece, segment.count - begin));
      if (arithmetic_->is_deferred()) {
        arithmetic_->Copy(copy.data(), piece.data(), piece.size_bytes());
        ONEBIT_TRY(arithmetic_->Await(nullptr));
        piece = std::span(copy).first(piece.size());
      }
      digest = DigestOf(std::as_bytes(piece), digest);
    }
    digests.push_back(digest);
  }
  return digests;
}

Status Optimizer::CommitOrTear(const StepInput& input, const StepScale& scale) {
  const bool is_live = has_live_variance();
  Status status = Commit(input, scale);
  if (status.ok()) {
    if (rank() == 0) {
      updates_.Observe(input.learning_rate, is_live, ranks_share_parameters(), arithmetic_.get());
    }
    status = arithmetic_->Check();
  }
  return status.ok() ? status : Torn(InStep(status));
}

// Adds the step to errors of collectives, which do not know it.
Status Optimizer::InStep(const Status& status) const {
  return Error(status.code(), "{}, step {}: {}", NameOf(options_.policy.algorithm), step_ + 1,
               status.text());
}

// Ranks cannot agree on a step that sends nothing. All ranks make it, so that they stay at the same
// step; a rank whose gradients are not finite counts them as zeros.
Status Optimizer::StepAlone(StepInput input, StepOutcome* outcome) {
  ONEBIT_ASSIGN_OR_RETURN(const double scaled_sum,
                          averages_.ScaledSumOfSquares(input.gradients, input));
  StepScale scale{.own = static_cast<float>(input.grad_scale)};
  if (input.max_grad_norm > 0) {
    outcome->grad_norm = NormOf(scaled_sum);
    scale.own = ClippedScale(input, outcome->grad_norm);
  }
  if (!IsUsable(scaled_sum)) {
    input.gradients = {};
    scale.own = 0;
    ++local_overflows_;
  }
  ONEBIT_TRY(CommitOrTear(input, scale));
  CountStep(onebitStageLocal);
  return OkStatus();
}

void Optimizer::CountStep(onebitStage_t stage) {
  ++step_;
  if (stage == onebitStageDense || stage == onebitStageBoth) ++dense_steps_;
  if (stage == onebitStageCompressed || stage == onebitStageBoth) ++compressed_steps_;
  if (stage == onebitStageLocal) ++local_steps_;
  CountCommit(stage);
}

void Optimizer::CountCommit(onebitStage_t stage) {
  if (stage != onebitStageLocal) ++commits_;
  if (stage == onebitStageCompressed || stage == onebitStageBoth) ++residual_commits_;
}

Status Optimizer::Sync() {
  ONEBIT_TRY(CheckWhole());
  ONEBIT_TRY(averages_.CheckComm());
  const uint64_t bytes_before = averages_.BytesSent();
  ONEBIT_ASSIGN_OR_RETURN(const onebitStage_t sent, AgreeOnState());
  if (Status status = arithmetic_->Await(nullptr); !status.ok()) return Torn(std::move(status));
  CountCommit(sent);
  bytes_sent_ += averages_.BytesSent() - bytes_before;
  return OkStatus();
}

Status Optimizer::Rewarm(int64_t steps) {
  ONEBIT_TRY(CheckWhole());
  ONEBIT_TRY(BeginWarmup(steps));
  if (rank() == 0) {
    LogIfPossible(LogLevel::kInfo, "{}: back to full precision after step {}",
                  NameOf(options_.policy.algorithm), step_);
  }
  return OkStatus();
}

Status Optimizer::SetRates(size_t segment, double lr_scale, double weight_decay) {
  if (!ranks_share_parameters()) {
    return Error(Code::kInvalidUsage,
                 "an interval of local steps has begun, and all its steps must have the same "
                 "factors: call onebitOptimizerSync first");
  }
  return table_.SetRates(segment, lr_scale, weight_decay);
}

// ---------------------------------------------------------------------------------------- update

double Optimizer::Correction(double beta_power) const {
  return options_.has_bias_correction ? 1.0 / (1.0 - beta_power) : 1.0;
}

kernels::AdamUpdate Optimizer::UpdateOf(const Segment& segment, double learning_rate) const {
  kernels::AdamUpdate update;
  update.x = segment.x;
  update.m = Floats(m_) + segment.offset;
  update.v = Floats(v_) + segment.offset;
  update.count = segment.count;
  update.lr = static_cast<float>(learning_rate * segment.lr_scale);
  update.beta1 = static_cast<float>(options_.beta1);
  update.one_minus_beta1 = static_cast<float>(1 - options_.beta1);
  update.beta2 = static_cast<float>(options_.beta2);
  update.one_minus_beta2 = static_cast<float>(1 - options_.beta2);
  update.eps = static_cast<float>(options_.eps);
  update.weight_decay = static_cast<float>(segment.weight_decay);
  update.copy = segment.copy;
  update.copy_type = options_.parameter_copy_type;
  return update;
}

// Without bias correction, update t is (1 - b1^t) / sqrt(1 - b2^t) times that of AdamW: with the
// usual betas 3 to 7 times as large at first. A trust ratio cancels this factor.
void Optimizer::WarnWithoutWarmup(double learning_rate) {
  if (step_ == 1) first_learning_rate_ = learning_rate;
  if (step_ != 2 || rank() != 0 || options_.has_bias_correction ||
      options_.policy.lr_warmup_steps != 0 ||
      options_.policy.algorithm == onebitAlgorithmOneBitLamb ||
      learning_rate > first_learning_rate_) {
    return;
  }
  LogIfPossible(
      LogLevel::kWarn,
      "{}: no bias correction and no learning-rate warm-up: first steps are too large; raise the "
      "rate over the first steps (and set lrWarmupSteps){}",
      NameOf(options_.policy.algorithm),
      options_.policy.algorithm == onebitAlgorithmOneBitAdam ? ", or set biasCorrection = 1" : "");
}

// ---------------------------------------------------------------------------------------- counters

void Optimizer::GetStats(onebitOptimizerStats_t* stats) const {
  stats->step = step_;
  stats->dense_steps = dense_steps_;
  stats->compressed_steps = compressed_steps_;
  stats->local_steps = local_steps_;
  stats->skipped = skipped_steps_;
  stats->bytes_sent = bytes_sent_;
  stats->local_overflows = local_overflows_;
  stats->lost_elements = 0;
  stats->state_bytes = m_.size() + v_.size() + gradients_.bytes();
  onebitCompressorStats_t compressor_stats{.size = sizeof(compressor_stats)};
  if (averages_.compressor() != nullptr &&
      onebitCompressorGetStats(averages_.compressor(), &compressor_stats) == onebitSuccess) {
    stats->state_bytes += compressor_stats.residual_bytes;
    stats->lost_elements = compressor_stats.lost_elements;
  }
  AddStats(stats);
}

}  // namespace onebit::optim
