// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/one_bit_adam.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "base/log.h"
#include "optim/api_status.h"

namespace onebit::optim {
namespace {

using kernels::DataType;

onebitDataType_t ApiType(DataType type) {
  switch (type) {
    case DataType::kF32:
      return onebitFloat32;
    case DataType::kF16:
      return onebitFloat16;
    case DataType::kBf16:
      return onebitBfloat16;
  }
  return onebitFloat32;
}

std::byte* ElementAt(void* values, DataType type, size_t index) {
  return static_cast<std::byte*>(values) + index * kernels::BytesOf(type);
}

float* Floats(const AlignedBuffer& buffer) { return reinterpret_cast<float*>(buffer.data()); }

// Whether gradients whose squares have this sum leave every m and v finite: no square exceeds it.
bool IsUsable(double sum_of_squares) {
  return sum_of_squares <= std::numeric_limits<float>::max();  // false for NaN
}

// For steps that are committed already: a line that cannot be written is no error of theirs.
template <typename... Args>
void LogIfPossible(LogLevel level, fmt::format_string<Args...> format, Args&&... args) noexcept {
  try {
    Log(level, format, std::forward<Args>(args)...);
  } catch (const std::bad_alloc&) {
  }
}

FreezeRule MakeFreezeRule(const Options& options) {
  if (options.freeze_step == ONEBIT_FREEZE_AUTOMATIC) {
    return FreezeRule::Automatic(options.beta2, options.lr_warmup_steps);
  }
  return FreezeRule::After(static_cast<uint64_t>(options.freeze_step));
}

}  // namespace

// ------------------------------------------------------------------------------------- life time

Result<std::unique_ptr<OneBitAdam>> OneBitAdam::Create(onebitComm_t comm, size_t count,
                                                       float* parameters,
                                                       const onebitOptimizerConfig_t* config) {
  ONEBIT_ASSIGN_OR_RETURN(const Options options, ReadOptions(config));
  ONEBIT_ASSIGN_OR_RETURN(SegmentTable table,
                          SegmentTable::Create(config == nullptr ? nullptr : config->segments,
                                               config == nullptr ? 0 : config->segmentCount, count,
                                               options.weight_decay));
  std::unique_ptr<OneBitAdam> adam(
      new OneBitAdam(comm, count, parameters, options, std::move(table)));
  ONEBIT_TRY(adam->Allocate(config == nullptr ? nullptr : config->compressor));
  return adam;
}

OneBitAdam::OneBitAdam(onebitComm_t comm, size_t count, float* parameters, const Options& options,
                       SegmentTable table)
    : comm_(comm),
      count_(count),
      parameters_(parameters),
      options_(options),
      table_(std::move(table)),
      freeze_rule_(MakeFreezeRule(options)),
      frozen_(table_) {}

Status OneBitAdam::Allocate(const onebitCompressorConfig_t* compressor_config) {
  ONEBIT_TRY(FromApi(onebitCommUserRank(comm_, &rank_)));
  ONEBIT_ASSIGN_OR_RETURN(m_, AlignedBuffer::Create(count_ * sizeof(float), "momentum"));
  ONEBIT_ASSIGN_OR_RETURN(v_, AlignedBuffer::Create(count_ * sizeof(float), "variance"));
  if (options_.freeze_step == ONEBIT_FREEZE_NEVER || table_.compressed_count() == 0) {
    return WatchComm();
  }
  if (table_.dense_count() != 0) {
    ONEBIT_ASSIGN_OR_RETURN(
        dense_scratch_,
        AlignedBuffer::Create(table_.dense_count() * sizeof(float), "dense gradients"));
    ONEBIT_ASSIGN_OR_RETURN(
        momentum_scratch_,
        AlignedBuffer::Create(table_.compressed_count() * sizeof(float), "local momentum"));
  }
  // Last: creating a compressor takes a number of the communicator, also on the other ranks.
  ONEBIT_TRY(FromApi(onebitCompressorCreate(&compressor_, comm_, table_.compressed_count(),
                                            onebitFloat32, compressor_config)));
  return WatchComm();
}

Status OneBitAdam::WatchComm() {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.mode = onebitModeSign;
  return FromApi(onebitCompressorCreate(&comm_watch_, comm_, 0, onebitFloat32, &config));
}

OneBitAdam::~OneBitAdam() {
  onebitCompressorDestroy(compressor_);
  onebitCompressorDestroy(comm_watch_);
}

// ------------------------------------------------------------------------------------------ step

Status OneBitAdam::Step(const StepInput& input, StepOutcome* outcome) {
  ONEBIT_TRY(CheckComm());
  if (is_torn_) {
    return Error(Code::kInvalidUsage,
                 "the optimizer's state was left half taken over by onebitOptimizerRebind: call it "
                 "again, or load a checkpoint");
  }
  ONEBIT_TRY(PrepareStep(input.type));
  StepOutcome done{.stage = stage()};
  const uint64_t bytes_before = BytesSent();

  double scale = input.grad_scale;
  bool is_usable = true;
  if (input.max_grad_norm > 0) {
    ONEBIT_ASSIGN_OR_RETURN(done.grad_norm, AgreeOnNorm(input));
    is_usable = std::isfinite(done.grad_norm);
    if (done.grad_norm > input.max_grad_norm) scale *= input.max_grad_norm / done.grad_norm;
  }
  if (is_usable) {
    ONEBIT_ASSIGN_OR_RETURN(is_usable, Average(input, static_cast<float>(scale)));
  }
  if (is_usable) {
    Update(input, static_cast<float>(scale));
    Commit(input.learning_rate);
  } else {
    ++skipped_steps_;
  }

  done.is_skipped = !is_usable;
  done.bytes_sent = BytesSent() - bytes_before;
  bytes_sent_ += done.bytes_sent;
  *outcome = done;
  return OkStatus();
}

Status OneBitAdam::CheckComm() const {
  onebitCompressorStats_t stats{.size = sizeof(stats)};
  ONEBIT_TRY(FromApi(onebitCompressorGetStats(comm_watch_, &stats)));
  if (stats.is_detached == 0) return OkStatus();
  return Error(Code::kDetached,
               "the optimizer's communicator was destroyed: it can be taken over to another one by "
               "onebitOptimizerRebind, be asked for its state, or be destroyed, too");
}

// Everything a step needs memory for, before anything is sent.
Status OneBitAdam::PrepareStep(DataType type) {
  if (compressor_ == nullptr) return OkStatus();
  if (type != DataType::kF32 && momentum_scratch_.size() == 0) {
    ONEBIT_ASSIGN_OR_RETURN(
        momentum_scratch_,
        AlignedBuffer::Create(table_.compressed_count() * sizeof(float), "local momentum"));
  }
  return stage() == onebitStageCompressed ? Freeze() : OkStatus();
}

Status OneBitAdam::Freeze() {
  if (frozen_.is_ready()) return OkStatus();
  return frozen_.Freeze(v(), Correction(frozen_beta2_power_), options_.variance_floor, compressor_);
}

// sqrt(mean_r |g_r|^2) of scaled gradients, the same bytes on every rank; not finite if any is not.
Result<double> OneBitAdam::AgreeOnNorm(const StepInput& input) {
  const double sum = kernels::cpu::SumOfSquares(input.gradients, input.type, count_);
  const double scaled_sum = sum * input.grad_scale * input.grad_scale;
  float mean = IsUsable(scaled_sum) ? static_cast<float>(scaled_sum)
                                    : std::numeric_limits<float>::infinity();
  ONEBIT_TRY(
      FromApi(onebitAllReduce(&mean, &mean, 1, onebitFloat32, onebitAvg, nullptr, comm_, nullptr)));
  return std::sqrt(static_cast<double>(mean));
}

Result<bool> OneBitAdam::Average(const StepInput& input, float scale) {
  if (stage() == onebitStageDense) return AverageDense(input.gradients, count_, input.type, scale);

  if (table_.dense_count() != 0) {
    PackDenseGradients(input);
    ONEBIT_ASSIGN_OR_RETURN(
        const bool is_usable,
        AverageDense(dense_scratch_.data(), table_.dense_count(), input.type, scale));
    if (!is_usable) return false;
  }
  return AverageMomentum(input, scale);
}

Result<bool> OneBitAdam::AverageDense(void* gradients, size_t count, DataType type, float scale) {
  ONEBIT_TRY(FromApi(onebitAllReduce(gradients, gradients, count, ApiType(type), onebitAvg, nullptr,
                                     comm_, nullptr)));
  const double sum = kernels::cpu::SumOfSquares(gradients, type, count);
  return IsUsable(sum * scale * scale);
}

void OneBitAdam::PackDenseGradients(const StepInput& input) {
  for (const Segment& segment : table_.segments()) {
    if (!segment.is_dense || segment.count == 0) continue;
    std::memcpy(ElementAt(dense_scratch_.data(), input.type, segment.packed_offset),
                ElementAt(input.gradients, input.type, segment.offset),
                segment.count * kernels::BytesOf(input.type));
  }
}

// Compressed segments' local momentum, joined: over the gradients themselves where they fit.
float* OneBitAdam::MomentumBuffer(const StepInput& input) const {
  const bool is_in_place = input.type == DataType::kF32 && table_.dense_count() == 0;
  return is_in_place ? static_cast<float*>(input.gradients) : Floats(momentum_scratch_);
}

Result<bool> OneBitAdam::AverageMomentum(const StepInput& input, float scale) {
  float* momentum = MomentumBuffer(input);
  for (const Segment& segment : table_.segments()) {
    if (segment.is_dense) continue;
    kernels::cpu::LocalMomentum(
        m() + segment.offset, ElementAt(input.gradients, input.type, segment.offset), input.type,
        scale, static_cast<float>(options_.beta1), static_cast<float>(1 - options_.beta1),
        frozen_.mask(segment), segment.count, momentum + segment.packed_offset);
  }
  const size_t count = table_.compressed_count();
  ONEBIT_TRY(FromApi(onebitAllReduce(momentum, momentum, count, onebitFloat32, onebitAvg,
                                     compressor_, comm_, nullptr)));

  onebitCompressorStats_t stats{.size = sizeof(stats)};
  ONEBIT_TRY(FromApi(onebitCompressorGetStats(compressor_, &stats)));
  const bool met_nonfinite = stats.nonfinite_calls != nonfinite_calls_;
  nonfinite_calls_ = stats.nonfinite_calls;
  return !met_nonfinite;
}

// ---------------------------------------------------------------------------------- update, commit

double OneBitAdam::Correction(double beta_power) const {
  return options_.has_bias_correction ? 1.0 / (1.0 - beta_power) : 1.0;
}

void OneBitAdam::Update(const StepInput& input, float scale) {
  const bool is_compressed = stage() == onebitStageCompressed;
  const double beta2_power = beta2_power_ * options_.beta2;  // of this step

  kernels::AdamUpdate common;
  common.beta1 = static_cast<float>(options_.beta1);
  common.one_minus_beta1 = static_cast<float>(1 - options_.beta1);
  common.beta2 = static_cast<float>(options_.beta2);
  common.one_minus_beta2 = static_cast<float>(1 - options_.beta2);
  common.eps = static_cast<float>(options_.eps);
  common.m_correction = static_cast<float>(Correction(beta1_power_ * options_.beta1));
  common.copy_type = options_.parameter_copy_type;

  for (size_t i = 0; i < table_.segments().size(); ++i) {
    const Segment& segment = table_.segments()[i];
    kernels::AdamUpdate update = common;
    update.x = parameters_ + segment.offset;
    update.m = Floats(m_) + segment.offset;
    update.v = Floats(v_) + segment.offset;
    update.count = segment.count;
    update.lr = static_cast<float>(input.learning_rate * segment.lr_scale);
    update.weight_decay = static_cast<float>(segment.weight_decay);
    if (options_.parameter_copy != nullptr) {
      update.copy =
          ElementAt(options_.parameter_copy, options_.parameter_copy_type, segment.offset);
    }

    if (is_compressed && !segment.is_dense) {
      update.input = MomentumBuffer(input) + segment.packed_offset;
      update.v_correction = static_cast<float>(Correction(frozen_beta2_power_));
      update.floor = frozen_.floor(i);
      update.mask = frozen_.mask(segment);
      kernels::cpu::AdamFrozen(update);
    } else {
      update.input = is_compressed
                         ? ElementAt(dense_scratch_.data(), input.type, segment.packed_offset)
                         : ElementAt(input.gradients, input.type, segment.offset);
      update.input_type = input.type;
      update.input_scale = scale;
      update.v_correction = static_cast<float>(Correction(beta2_power));
      update.mask = table_.user_mask(segment);
      kernels::cpu::AdamDense(update);
    }
  }
}

void OneBitAdam::Commit(double learning_rate) {
  ++step_;
  beta1_power_ *= options_.beta1;
  beta2_power_ *= options_.beta2;
  if (stage() == onebitStageCompressed) ++compressed_steps_;
  WarnWithoutWarmup(learning_rate);
  if (compressor_ == nullptr || stage() == onebitStageCompressed) return;

  double variance_sum = 0;  // of what would be frozen
  if (freeze_rule_.needs_variance_sum()) {
    for (const Segment& segment : table_.segments()) {
      if (segment.is_dense) continue;
      variance_sum +=
          kernels::cpu::SumOfMagnitudes(v() + segment.offset, DataType::kF32, segment.count);
    }
  }
  if (!freeze_rule_.ShouldFreeze(variance_sum)) return;
  frozen_at_ = step_;
  frozen_beta2_power_ = beta2_power_;
  if (rank_ == 0) {
    LogIfPossible(LogLevel::kInfo, "1-bit adam: variance frozen after step {}", step_);
  }
}

// Without bias correction update t is (1 - b1^t) / sqrt(1 - b2^t) times that of AdamW: 3 to 7 times
// at first with the usual betas.
void OneBitAdam::WarnWithoutWarmup(double learning_rate) {
  if (step_ == 1) first_learning_rate_ = learning_rate;
  if (step_ != 2 || rank_ != 0 || options_.has_bias_correction || options_.lr_warmup_steps != 0 ||
      learning_rate > first_learning_rate_) {
    return;
  }
  LogIfPossible(
      LogLevel::kWarn,
      "1-bit adam: no bias correction and no learning-rate warm-up: first steps are too large; "
      "raise the rate over the first steps (and set lrWarmupSteps), or set biasCorrection = 1");
}

// ---------------------------------------------------------------------------------------- counters

uint64_t OneBitAdam::BytesSent() const {
  onebitCommStats_t stats{.size = sizeof(stats)};
  return onebitCommGetStats(comm_, &stats) == onebitSuccess ? stats.bytes_sent : 0;
}

void OneBitAdam::GetStats(onebitOptimizerStats_t* stats) const {
  stats->step = step_;
  stats->compressed_steps = compressed_steps_;
  stats->skipped = skipped_steps_;
  stats->frozen_at = frozen_at_;
  stats->bytes_sent = bytes_sent_;
  stats->stage = stage();
  stats->lost_elements = 0;
  stats->state_bytes =
      m_.size() + v_.size() + momentum_scratch_.size() + dense_scratch_.size() + frozen_.bytes();
  onebitCompressorStats_t compressor_stats{.size = sizeof(compressor_stats)};
  if (compressor_ != nullptr &&
      onebitCompressorGetStats(compressor_, &compressor_stats) == onebitSuccess) {
    stats->state_bytes += compressor_stats.residual_bytes;
    stats->lost_elements = compressor_stats.lost_elements;
  }
}

}  // namespace onebit::optim
