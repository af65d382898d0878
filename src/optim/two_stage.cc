// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/two_stage.h"

#include <span>
#include <utility>

#include "optim/adam_rule.h"
#include "optim/api_status.h"
#include "optim/gradient_elements.h"
#include "optim/lamb_rule.h"
#include "optim/quiet_log.h"

namespace onebit::optim {
namespace {

using kernels::DataType;

std::unique_ptr<UpdateRule> MakeRule(const Options& options, const SegmentTable& table,
                                     Arithmetic& arithmetic) {
  if (options.policy.algorithm == onebitAlgorithmOneBitLamb) {
    return std::make_unique<LambRule>(table, options.lamb, arithmetic);
  }
  return std::make_unique<AdamRule>(arithmetic);
}

// Swaps two schedules, and swaps them back at the end of a scope unless this is kept.
class Exchange {
 public:
  Exchange(TwoStageSchedule& a, TwoStageSchedule& b) : a_(a), b_(b) { std::swap(a_, b_); }
  ~Exchange() {
    if (!is_kept_) std::swap(a_, b_);
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  void Keep() { is_kept_ = true; }

 private:
  TwoStageSchedule& a_;
  TwoStageSchedule& b_;
  bool is_kept_ = false;
};

}  // namespace

// ------------------------------------------------------------------------------------- life time

Result<std::unique_ptr<Optimizer>> TwoStage::Create(
    Setup setup, const onebitCompressorConfig_t* compressor_config) {
  std::unique_ptr<TwoStage> made(new TwoStage(std::move(setup)));
  ONEBIT_TRY(made->Allocate(compressor_config));
  return std::unique_ptr<Optimizer>(std::move(made));
}

TwoStage::TwoStage(Setup setup)
    : Optimizer(std::move(setup)),
      rule_(MakeRule(options_, table_, *arithmetic_)),
      schedule_(options_.policy.variant, FreezeRuleOf(options_.policy)),
      frozen_(table_, *arithmetic_),
      freeze_rule_(options_.policy.freeze_step) {}

Status TwoStage::Allocate(const onebitCompressorConfig_t* compressor_config) {
  ONEBIT_TRY(AllocateMoments());
  const bool has_compressed_stage =
      options_.policy.freeze_step != ONEBIT_FREEZE_NEVER && table_.compressed_count() != 0;
  ONEBIT_TRY(rule_->Allocate(has_compressed_stage));
  ONEBIT_TRY(frozen_.Allocate(options_.has_block_floors()));
  if (!has_compressed_stage) {
    averages_.ObserveComm();
    return OkStatus();
  }
  if (table_.dense_count() != 0) {
    ONEBIT_ASSIGN_OR_RETURN(
        momentum_scratch_,
        arithmetic_->Allocate(table_.compressed_count() * sizeof(float), "local momentum"));
  }
  ONEBIT_TRY(CreateCompressor(compressor_config));
  averages_.ObserveComm();
  BeginWatch(freeze_rule_);
  if (rank() == 0) WarnOfShortWarmup(options_);
  return OkStatus();
}

// ------------------------------------------------------------------------------------------ step

onebitStage_t TwoStage::NextStage(double /*learning_rate*/) const {
  const StepKind kind = schedule_.Next();
  if (SendsDense(kind)) return onebitStageDense;
  return SendsCompressed(kind) ? onebitStageCompressed : onebitStageLocal;
}

Status TwoStage::PrepareStep(const StepInput& input) {
  if (averages_.compressor() == nullptr) return OkStatus();
  if (input.gradients.floats() == nullptr && momentum_scratch_.size() == 0) {
    ONEBIT_ASSIGN_OR_RETURN(
        momentum_scratch_,
        arithmetic_->Allocate(table_.compressed_count() * sizeof(float), "local momentum"));
  }
  return PrepareCompressor();
}

Status TwoStage::PrepareCompressor() {
  if (!is_frozen() || frozen_.is_ready()) return OkStatus();
  return frozen_.Freeze(v(), Correction(frozen_beta2_power_), options_.variance_floor,
                        averages_.compressor());
}

Result<bool> TwoStage::Average(const StepInput& input, StepScale* scale) {
  if (!is_frozen()) return averages_.AverageGradients(input.gradients, Which::kAll, scale);

  if (table_.dense_count() != 0) {
    ONEBIT_ASSIGN_OR_RETURN(const bool is_usable,
                            averages_.AverageGradients(input.gradients, Which::kDense, scale));
    if (!is_usable) return false;
  }
  return AverageMomentum(input, scale->own);
}

// Local momentum of compressed segments, concatenated; overwrites the gradients themselves if it
// fits.
float* TwoStage::MomentumBuffer(const StepInput& input) const {
  float* const gradients = input.gradients.floats();
  return gradients != nullptr && table_.dense_count() == 0 ? gradients : Floats(momentum_scratch_);
}

Result<bool> TwoStage::AverageMomentum(const StepInput& input, float scale) {
  float* momentum = MomentumBuffer(input);
  for (size_t i = 0; i < table_.segments().size(); ++i) {
    const Segment& segment = table_.segments()[i];
    if (segment.is_dense) continue;
    const Gradient& gradient = input.gradients.by_segment[i];
    const double k = rule_->MomentumScale(i);
    arithmetic_->Run<Kernel::kLocalMomentum>(
        {.m = m() + segment.offset,
         .g = gradient.data,
         .g_type = gradient.type,
         .g_scale = scale,
         .beta1 = static_cast<float>(options_.beta1 * k),
         .one_minus_beta1 = static_cast<float>((1 - options_.beta1) * k),
         .mask = frozen_.mask(segment),
         .count = segment.count,
         .out = momentum + segment.packed_offset});
  }
  return averages_.AverageCompressed(momentum, table_.compressed_count());
}

// ---------------------------------------------------------------------------------- update, commit

Status TwoStage::Update(const StepInput& input, float average_scale) {
  const double fresh_correction = Correction(beta2_power_ * options_.beta2);
  const double dense_correction = Correction(dense_beta2_power_ * options_.beta2);
  const auto m_correction = static_cast<float>(Correction(beta1_power_ * options_.beta1));
  for (size_t i = 0; i < table_.segments().size(); ++i) {
    const Segment& segment = table_.segments()[i];
    kernels::AdamUpdate update = UpdateOf(segment, input.learning_rate);
    update.m_correction = m_correction;
    if (is_frozen() && !segment.is_dense) {
      update.input = MomentumBuffer(input) + segment.packed_offset;
      update.input_scale = 1 / rule_->MomentumScale(i);
      update.v_correction = static_cast<float>(Correction(frozen_beta2_power_));
      update.floor = frozen_.floor(i);
      update.block_floors = frozen_.block_floors(i);
      update.mask = frozen_.mask(segment);
      rule_->UpdateFrozen(i, update, fresh_correction);
    } else {
      update.input = input.gradients.by_segment[i].data;
      update.input_type = input.gradients.by_segment[i].type;
      update.input_scale = average_scale;
      update.v_correction =
          static_cast<float>(segment.is_dense ? dense_correction : fresh_correction);
      update.mask = user_mask(segment);
      rule_->UpdateDense(i, update);
    }
  }
  return rule_->EndUpdate();
}

Status TwoStage::Commit(const StepInput& input, const StepScale& scale) {
  if (schedule_.Next() == StepKind::kSwallowed) {
    schedule_.Commit(0);
    return OkStatus();
  }
  ONEBIT_TRY(Update(input, scale.average));
  beta1_power_ *= options_.beta1;
  beta2_power_ *= options_.beta2;
  dense_beta2_power_ *= options_.beta2;
  if (averages_.compressor() == nullptr) return OkStatus();  // nothing will ever be frozen
  const bool was_frozen = is_frozen();
  double variance_sum = 0;
  if (!was_frozen) {
    ONEBIT_ASSIGN_OR_RETURN(variance_sum, WatchVariance());
  }
  schedule_.Commit(variance_sum);
  if (was_frozen || !is_frozen()) return OkStatus();
  frozen_beta2_power_ = beta2_power_;
  ONEBIT_TRY(rule_->Freeze(m(), v()));
  if (rank() == 0) {
    LogIfPossible(LogLevel::kInfo, "{}: variance frozen after step {}",
                  NameOf(options_.policy.algorithm), schedule_.state().step);
  }
  return OkStatus();
}

void TwoStage::BeginWatch(int64_t freeze_step) {
  if (rank() == 0) watch_.Begin(options_.policy, options_.beta2, freeze_step);
  updates_.Begin(
      NameOf(options_.policy.algorithm),
      options_.has_fused_scales
          ? "give every tensor a segment and set scales to onebitScalesSegment, or lower the "
            "learning rate"
          : "lower the learning rate, raise freezeStep or varianceFloor, or make rows that few "
            "gradients reach a dense segment",
      "raise freezeStep, leave it automatic, or onebitOptimizerRewarm",
      options_.policy.algorithm == onebitAlgorithmOneBitLamb
          ? UpdateWatch::kMost * options_.lamb.max_coefficient
          : UpdateWatch::kMost);
}

// Returns |v|_1 of the segments that will be frozen, if the schedule or the watch needs it after
// this dense step.
Result<double> TwoStage::WatchVariance() {
  const uint64_t step = schedule_.rule().progress().step + 1;
  const bool is_watched = rank() == 0 && watch_.NeedsVariance(step);
  if (!schedule_.needs_variance_sum() && !is_watched) return 0;
  ONEBIT_ASSIGN_OR_RETURN(const double sum, averages_.VarianceSum(v(), Which::kCompressed));
  if (is_watched) watch_.Observe(step, sum * Correction(beta2_power_));
  const std::span<const double> history = schedule_.rule().history();
  if (rank() == 0 && !history.empty()) {
    watch_.ObserveAutomatic(step, sum, history[step % history.size()]);
  }
  return sum;
}

// ----------------------------------------------------------------------------------------- re-warm

// v goes on from its frozen value, with its bias. Residuals are reset because they belong to
// averages of another kind than those from here on.
Status TwoStage::BeginWarmup(int64_t steps) {
  if (options_.policy.freeze_step == ONEBIT_FREEZE_NEVER) {
    return Error(Code::kInvalidUsage,
                 "freezeStep is ONEBIT_FREEZE_NEVER: all steps are dense already, and the "
                 "optimizer was made without what it would need after a freeze");
  }
  if (steps == ONEBIT_FREEZE_SETTLED) {
    return Error(Code::kInvalidArgument,
                 "steps is ONEBIT_FREEZE_SETTLED, which is for the first freeze: here v continues "
                 "from its frozen value, and would seem to have settled at once; give a number of "
                 "steps, or ONEBIT_FREEZE_AUTOMATIC");
  }
  ONEBIT_ASSIGN_OR_RETURN(FreezeRule rule, MakeFreezeRule(steps));
  if (averages_.compressor() != nullptr) ONEBIT_TRY(averages_.ResetCompressor());
  if (is_frozen()) beta2_power_ = frozen_beta2_power_;
  frozen_beta2_power_ = 0;
  rule.progress() = {.power = beta2_power_, .delayed_power = beta2_power_};
  schedule_.Rewarm(std::move(rule));
  freeze_rule_ = steps;
  BeginWatch(steps);
  frozen_.Forget();
  rule_->Rewarm();
  return OkStatus();
}

// Makes the rule for a dense stage of `steps`, in the encoding of freezeStep.
Result<FreezeRule> TwoStage::MakeFreezeRule(int64_t steps) const {
  PolicyOptions policy = options_.policy;
  policy.freeze_step = steps;
  if (FollowsVariance(steps)) {
    if (policy.variant == Variant::kDeepSpeed) {
      return Error(
          Code::kInvalidArgument,
          "steps is ONEBIT_FREEZE_AUTOMATIC, which DeepSpeed does not have: give a number");
    }
    if (VarianceRule::Window(policy.beta2) > VarianceRule::kMaxWindow) {
      return Error(Code::kInvalidArgument,
                   "steps is ONEBIT_FREEZE_AUTOMATIC, which needs a beta2 of at most 1 - 1e-6; "
                   "here it is {}",
                   policy.beta2);
    }
  } else if (steps == 1 && schedule_.Next() == StepKind::kSwallowed) {
    return Error(
        Code::kInvalidArgument,
        "steps is 1, but must be at least 2: DeepSpeed swallows the first step, and without "
        "dense steps there is no variance");
  } else if (steps < 1) {
    return Error(Code::kInvalidArgument,
                 "steps is {}, but must be at least 1, ONEBIT_FREEZE_AUTOMATIC or "
                 "ONEBIT_FREEZE_NEVER",
                 steps);
  }
  return FreezeRuleOf(policy);
}

// ------------------------------------------------------------------------------ state and counters

void TwoStage::ListState(StateList* list) {
  OptimizerState::ListState(list);
  list->AddReplicated(m_);
  // By segment: where they lie may differ between ranks, but the parts of a state may not.
  for (const Segment& segment : table_.segments()) {
    if (segment.count != 0) list->AddReplicated(std::span(segment.x, segment.count));
  }
  list->AddReplicatedOnHost(schedule_.rule().history());
  list->AddValue(dense_beta2_power_);
  list->AddValue(frozen_beta2_power_);
  list->AddValue(schedule_.state().step);
  list->AddValue(schedule_.state().frozen_at);
  FreezeProgress& progress = schedule_.rule().progress();
  list->AddValue(progress.step);
  list->AddValue(progress.power);
  list->AddValue(progress.delayed_power);
  rule_->ListState(list);
}

std::vector<Moment> TwoStage::Moments() const {
  std::vector<Moment> moments = OptimizerState::Moments();
  const std::span<float> fresh = rule_->fresh_variance();
  if (!fresh.empty()) moments.push_back({"w", fresh, false});
  return moments;
}

Status TwoStage::CheckState() const {
  ONEBIT_TRY(OptimizerState::CheckState());
  const TwoStageState& state = schedule_.state();
  if (state.frozen_at > state.step) {
    return Damaged(Format("step {} precedes frozen_at {}", state.step, state.frozen_at));
  }
  if (is_frozen() && averages_.compressor() == nullptr) {
    return Damaged(
        Format("it is frozen at step {}, but nothing is ever compressed", state.frozen_at));
  }
  const bool are_powers = dense_beta2_power_ >= 0 && dense_beta2_power_ <= 1 &&
                          frozen_beta2_power_ >= 0 && frozen_beta2_power_ < 1;
  if (!are_powers) {
    return Damaged(Format("its powers of beta2 are {} and {}, not between 0 and 1",
                          dense_beta2_power_, frozen_beta2_power_));
  }
  if (rule_->IsStatePossible()) return OkStatus();
  return Damaged("a trust ratio is negative, or the scale of a momentum is not positive");
}

// The argument of Rewarm determines the size of the state, so its rule is restored first.
Status TwoStage::Adopt(const SavedOptimizer& saved) {
  Result<FreezeRule> rule = MakeFreezeRule(saved.head.freeze_rule);
  if (!rule.ok()) return Damaged(rule.status().text());
  TwoStageSchedule schedule(options_.policy.variant, std::move(rule).value());
  Exchange exchange(schedule_, schedule);
  ONEBIT_TRY(OptimizerState::Adopt(saved));
  exchange.Keep();
  if (saved.head.freeze_rule != freeze_rule_) BeginWatch(saved.head.freeze_rule);
  freeze_rule_ = saved.head.freeze_rule;
  return OkStatus();
}

void TwoStage::AddStats(onebitOptimizerStats_t* stats) const {
  stats->frozen_at = schedule_.state().frozen_at;
  stats->stage = NextStage(0);
  stats->state_bytes += momentum_scratch_.size() + frozen_.bytes() + rule_->bytes();
}

}  // namespace onebit::optim
