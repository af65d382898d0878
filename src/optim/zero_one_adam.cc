// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/zero_one_adam.h"

#include <algorithm>
#include <span>
#include <utility>

#include "optim/api_status.h"

namespace onebit::optim {
namespace {

using kernels::DataType;
using kernels::ZeroOneUpdate;

}  // namespace

// ------------------------------------------------------------------------------------- life time

Result<std::unique_ptr<Optimizer>> ZeroOneAdam::Create(
    Setup setup, const onebitCompressorConfig_t* compressor_config) {
  std::unique_ptr<ZeroOneAdam> made(new ZeroOneAdam(std::move(setup)));
  ONEBIT_TRY(made->Allocate(compressor_config));
  return std::unique_ptr<Optimizer>(std::move(made));
}

ZeroOneAdam::ZeroOneAdam(Setup setup)
    : Optimizer(std::move(setup)),
      schedule_(options_.policy.zero_one),
      variance_(table_, *arithmetic_),
      copies_(table_.segments().size()) {}

Status ZeroOneAdam::Allocate(const onebitCompressorConfig_t* compressor_config) {
  ONEBIT_TRY(AllocateMoments());
  ONEBIT_TRY(variance_.Allocate(options_.has_block_floors()));
  ONEBIT_TRY(AllocateFloats(count(), "sum of local steps", &u_));
  ONEBIT_TRY(AllocateFloats(count(), "parameters of the last sync", &x_sync_));
  ONEBIT_TRY(AllocateFloats(table_.dense_count(), "sums of dense segments", &dense_sums_));
  if (table_.dense_count() != 0) {
    ONEBIT_TRY(AllocateFloats(table_.compressed_count(), "local sums", &contributions_));
  }
  CopyParameters();
  ONEBIT_TRY(arithmetic_->Await(nullptr));
  ONEBIT_TRY(CreateCompressor(compressor_config));
  averages_.ObserveComm();
  BeginWatch();
  if (rank() == 0) WarnOfShortWarmup(options_);
  return OkStatus();
}

void ZeroOneAdam::BeginWatch() {
  if (rank() == 0) watch_.BeginRefreshes(options_.policy, options_.beta2);
  updates_.Begin(
      NameOf(options_.policy.algorithm),
      options_.has_fused_scales
          ? "give every tensor a segment and set scales to onebitScalesSegment, or lower the "
            "learning rate"
          : "lower the learning rate or localStepClipper, raise varFreezeStep, varUpdateScaler "
            "or varianceFloor, or flag rows that few gradients reach as onebitSegmentRareRows",
      "raise varFreezeStep, or onebitOptimizerRewarm");
}

Status ZeroOneAdam::AllocateFloats(size_t count, const char* purpose, Memory* memory) const {
  if (memory->size() != 0) return OkStatus();
  ONEBIT_ASSIGN_OR_RETURN(*memory, arithmetic_->Allocate(count * sizeof(float), purpose));
  return OkStatus();
}

// ------------------------------------------------------------------------------------------ step

onebitStage_t ZeroOneAdam::NextStage(double learning_rate) const {
  const StepKind kind = schedule_.Next(learning_rate).kind;
  if (SendsDense(kind)) return SendsCompressed(kind) ? onebitStageBoth : onebitStageDense;
  return SendsCompressed(kind) ? onebitStageCompressed : onebitStageLocal;
}

Status ZeroOneAdam::PrepareStep(const StepInput& input) {
  plan_ = schedule_.Next(input.learning_rate);
  // Allocated here, because a step that all ranks skip needs it after their first message.
  const bool may_go_back = is_interval_open() && input.gradients.floats() == nullptr;
  if (may_go_back && arithmetic_->is_deferred()) {
    ONEBIT_TRY(AllocateFloats(count(), "momenta", &next_v_));
  }
  if (plan_.kind == StepKind::kSwallowed) return OkStatus();
  if (plan_.refreshes_variance) ONEBIT_TRY(AllocateFloats(count(), "next variance", &next_v_));
  if (input.gradients.floats() == nullptr) {
    ONEBIT_TRY(AllocateFloats(table_.compressed_count(), "local sums", &contributions_));
  }
  const auto is_narrow = [](const Gradient& gradient) { return gradient.type != DataType::kF32; };
  if (plan_.refreshes_variance && std::ranges::any_of(input.gradients.by_segment, is_narrow)) {
    ONEBIT_TRY(AllocateFloats(count(), "gradients", &gradient_copy_));
  }
  if (plan_.resets_residuals) ONEBIT_TRY(averages_.ResetCompressor());
  return PrepareCompressor();
}

Status ZeroOneAdam::PrepareCompressor() {
  if (!have_masks_of_v_) ONEBIT_TRY(UpdateMasks(v()));
  have_masks_of_v_ = true;
  if (!have_dense_floors_of_v_) ONEBIT_TRY(UpdateDenseFloors(v()));
  have_dense_floors_of_v_ = true;
  return OkStatus();
}

Status ZeroOneAdam::UpdateMasks(const float* v) {
  return variance_.Freeze(v, 1, options_.variance_floor, averages_.compressor());
}

Status ZeroOneAdam::UpdateDenseFloors(const float* v) {
  if (table_.dense_count() == 0) return OkStatus();
  return variance_.FloorDenseSegments(v, options_.variance_floor);
}

Result<bool> ZeroOneAdam::Average(const StepInput& input, StepScale* scale) {
  if (plan_.refreshes_variance) {
    ONEBIT_ASSIGN_OR_RETURN(const bool is_usable, RefreshVariance(input, scale));
    if (!is_usable) return false;
  }
  if (plan_.compresses_gradient) return AverageGradient(input, scale);
  if (plan_.syncs) return AverageSums(input, scale);
  return true;
}

// Writes the new variance next to the old one, because the step may still fail. Masks are updated
// at once: the next compressed data must not include elements that v marks as dead.
Result<bool> ZeroOneAdam::RefreshVariance(const StepInput& input, StepScale* scale) {
  Gradients gradients = input.gradients;
  if (!plan_.feeds_momentum) {  // this rank's own gradients are still needed
    gradients = CopyOf(input.gradients);
  }
  ONEBIT_ASSIGN_OR_RETURN(const bool is_usable,
                          averages_.AverageGradients(gradients, Which::kAll, scale));
  if (!is_usable) return false;
  for (size_t i = 0; i < table_.segments().size(); ++i) {
    WriteVariance(i, gradients.by_segment[i], scale->average, Floats(next_v_));
  }
  have_dense_floors_of_v_ = have_masks_of_v_ = false;  // until this step has happened
  ONEBIT_TRY(UpdateMasks(Floats(next_v_)));
  ONEBIT_TRY(UpdateDenseFloors(Floats(next_v_)));
  return true;
}

// Copies gradients to where their average may be formed; those in one buffer stay together. fp32
// ones fit where the variance will be.
Gradients ZeroOneAdam::CopyOf(const Gradients& gradients) {
  const auto home = [&](DataType type) {
    return type == DataType::kF32 ? next_v_.data() : gradient_copy_.data();
  };
  for (size_t i = 0; i < copies_.size(); ++i) {
    const Segment& segment = table_.segments()[i];
    const Gradient& gradient = gradients.by_segment[i];
    copies_[i] = {ElementAt(home(gradient.type), gradient.type, segment.offset), gradient.type};
    arithmetic_->Copy(copies_[i].data, gradient.data,
                      segment.count * kernels::BytesOf(gradient.type));
  }
  return {copies_, gradients.buffer == nullptr ? nullptr : home(gradients.buffer_type())};
}

// Writes the variance of a segment after this step, from the average of its gradient.
void ZeroOneAdam::WriteVariance(size_t index, const Gradient& average, float scale, float* v) {
  const Segment& segment = table_.segments()[index];
  arithmetic_->Run<Kernel::kRefreshVariance>(
      {.v = this->v() + segment.offset,
       .input = average.data,
       .type = average.type,
       .input_scale = scale,
       .beta2 = static_cast<float>(options_.beta2),
       .one_minus_beta2 = static_cast<float>(1 - options_.beta2),
       .count = segment.count,
       .out = v + segment.offset});
  // Elements that the caller has masked have no variance, and do not contribute to the floor.
  const uint8_t* mask = user_mask(segment);
  if (mask != nullptr) arithmetic_->ClearOutside(mask, segment.count, v + segment.offset);
}

float* ZeroOneAdam::Contributions(const StepInput& input) const {
  float* const gradients = input.gradients.floats();
  return gradients != nullptr && table_.dense_count() == 0 ? gradients : Floats(contributions_);
}

// DeepSpeed's one-bit average before its freeze.
Result<bool> ZeroOneAdam::AverageGradient(const StepInput& input, StepScale* scale) {
  for (size_t i = 0; i < table_.segments().size(); ++i) {
    const Segment& segment = table_.segments()[i];
    if (segment.is_dense) continue;
    const Gradient& gradient = input.gradients.by_segment[i];
    arithmetic_->Run<Kernel::kLocalMomentum>({.m = m() + segment.offset,
                                              .g = gradient.data,
                                              .g_type = gradient.type,
                                              .g_scale = scale->own,
                                              .beta1 = 0,
                                              .one_minus_beta1 = 1,
                                              .mask = variance_.mask(segment),
                                              .count = segment.count,
                                              .out = Contributions(input) + segment.packed_offset});
  }
  if (table_.dense_count() != 0) {
    ONEBIT_ASSIGN_OR_RETURN(const bool is_usable, AverageDenseSegments(input, scale));
    if (!is_usable) return false;
  }
  return averages_.AverageCompressed(Contributions(input), table_.compressed_count());
}

Result<bool> ZeroOneAdam::AverageSums(const StepInput& input, StepScale* scale) {
  if (table_.dense_count() != 0) {
    ONEBIT_ASSIGN_OR_RETURN(const bool is_usable, AverageDenseSegments(input, scale));
    if (!is_usable) return false;
  }
  for (size_t i = 0; i < table_.segments().size(); ++i) {
    const Segment& segment = table_.segments()[i];
    if (segment.is_dense) continue;
    arithmetic_->Run<Kernel::kZeroOneAccumulate>(
        {.update = StepOf(i, input, MomentumScale(*scale)),
         .out = Contributions(input) + segment.packed_offset});
  }
  return averages_.AverageCompressed(Contributions(input), table_.compressed_count());
}

// Averages, for dense segments, this step's gradient for their variance, and the sums. If ranks
// agreed before this step, the sums follow from the gradient.
Result<bool> ZeroOneAdam::AverageDenseSegments(const StepInput& input, StepScale* scale) {
  const bool has_gradient = !plan_.refreshes_variance;  // else its average has gone into next_v_
  const auto sum_up = [&](float gradient_scale) {
    for (size_t i = 0; i < table_.segments().size(); ++i) {
      const Segment& segment = table_.segments()[i];
      if (!segment.is_dense) continue;
      arithmetic_->Run<Kernel::kZeroOneAccumulate>(
          {.update = StepOf(i, input, gradient_scale), .out = DenseSums() + segment.packed_offset});
    }
  };
  const bool follows = has_gradient && !is_interval_open();
  if (!follows) sum_up(MomentumScale(*scale));
  if (has_gradient) {
    ONEBIT_ASSIGN_OR_RETURN(const bool is_usable,
                            averages_.AverageGradients(input.gradients, Which::kDense, scale));
    if (!is_usable) return false;
  }
  if (!plan_.syncs) return true;
  if (follows) {
    sum_up(scale->average);
    return true;
  }
  return averages_.AverageFloats(DenseSums(), table_.dense_count());
}

// -------------------------------------------------------------------------------------- update

ZeroOneUpdate ZeroOneAdam::StepOf(size_t index, const StepInput& input, float scale) const {
  const Segment& segment = table_.segments()[index];
  const kernels::AdamUpdate adam = UpdateOf(segment, input.learning_rate);
  ZeroOneUpdate update;
  update.x = adam.x;
  update.m = adam.m;
  update.u = Floats(u_) + segment.offset;
  update.x_sync = Floats(x_sync_) + segment.offset;
  update.v = adam.v;
  update.count = segment.count;
  update.lr = static_cast<float>(input.learning_rate);
  update.lr_scale = static_cast<float>(segment.lr_scale);
  update.beta1 = adam.beta1;
  update.one_minus_beta1 = adam.one_minus_beta1;
  update.eps = adam.eps;
  update.lr_sum = static_cast<float>(schedule_.state().rate_sum + input.learning_rate);
  update.mask = segment.is_dense ? user_mask(segment) : variance_.mask(segment);
  update.floor = variance_.floor(index);
  update.block_floors = variance_.block_floors(index);
  update.copy = adam.copy;
  update.copy_type = adam.copy_type;
  // DeepSpeed applies weight decay to the result of local steps, and includes it in the momentum.
  const bool decays_locally = options_.policy.variant == Variant::kDeepSpeed &&
                              (plan_.kind == StepKind::kSync || plan_.kind == StepKind::kLocal);
  (decays_locally ? update.local_decay : update.weight_decay) = adam.weight_decay;
  if (!input.gradients.by_segment.empty()) {
    update.input = input.gradients.by_segment[index].data;
    update.input_type = input.gradients.by_segment[index].type;
    update.input_scale = scale;
  }
  return update;
}

Status ZeroOneAdam::Commit(const StepInput& input, const StepScale& scale) {
  if (plan_.refreshes_variance) {
    std::swap(v_, next_v_);
    have_masks_of_v_ = have_dense_floors_of_v_ = true;
  }
  if (plan_.syncs) {
    TakeMeans(input, scale.average);
  } else if (plan_.kind != StepKind::kSwallowed) {
    MoveAlone(input, scale);
    if (plan_.ends_interval) KeepAsSynced();
  }
  schedule_.Commit(input.learning_rate);
  if (plan_.refreshes_variance) ONEBIT_TRY(WatchRefresh());
  last_rate_ = input.learning_rate;
  // A device keeps them: freeing would wait for it, and so for streams that may wait for this
  // thread.
  if (schedule_.has_last_refresh_behind() && !arithmetic_->is_deferred()) {
    next_v_ = Memory();
    gradient_copy_ = Memory();
  }
  return OkStatus();
}

Status ZeroOneAdam::WatchRefresh() {
  if (rank() != 0) return OkStatus();
  const uint64_t refresh = schedule_.RefreshesBefore(schedule_.state().step);
  if (!watch_.NeedsVariance(refresh)) return OkStatus();
  ONEBIT_ASSIGN_OR_RETURN(const double sum, averages_.VarianceSum(v(), Which::kCompressed));
  watch_.Observe(refresh, sum);
  return OkStatus();
}

// Refreshes a dense segment from the average of this step's gradient; others use next_v_.
void ZeroOneAdam::RefreshDenseSegment(size_t index, const StepInput& input, float average_scale) {
  if (!table_.segments()[index].is_dense || plan_.refreshes_variance) return;
  have_dense_floors_of_v_ = false;
  WriteVariance(index, input.gradients.by_segment[index], average_scale, Floats(v_));
}

// Computes m, x and x_sync from the means over the ranks.
void ZeroOneAdam::TakeMeans(const StepInput& input, float average_scale) {
  for (size_t i = 0; i < table_.segments().size(); ++i) {
    const Segment& segment = table_.segments()[i];
    if (!input.gradients.by_segment.empty()) RefreshDenseSegment(i, input, average_scale);
    ZeroOneUpdate update = StepOf(i, input, average_scale);
    update.input = (segment.is_dense ? DenseSums() : Contributions(input)) + segment.packed_offset;
    arithmetic_->Run<Kernel::kZeroOneSync>(update);
  }
}

// Makes a step as Adam does: of this rank alone, or with an average that all ranks have.
void ZeroOneAdam::MoveAlone(const StepInput& input, const StepScale& scale) {
  for (size_t i = 0; i < table_.segments().size(); ++i) {
    const Segment& segment = table_.segments()[i];
    ZeroOneUpdate update = StepOf(i, input, MomentumScale(scale));
    if (plan_.compresses_gradient && segment.is_dense) {
      RefreshDenseSegment(i, input, scale.average);
      update.input_scale = scale.average;
    } else if (plan_.compresses_gradient) {
      update.input = Contributions(input) + segment.packed_offset;
      update.input_type = DataType::kF32;
      update.input_scale = 1;
    }
    arithmetic_->Run<Kernel::kZeroOneLocal>(update);
  }
}

// -------------------------------------------------------------------------------------- intervals

// Called when all ranks agree on x and m.
void ZeroOneAdam::KeepAsSynced() {
  CopyParameters();
  arithmetic_->Clear(u_.data(), u_.size());
}

void ZeroOneAdam::CopyParameters() {
  for (const ParameterRun& run : table_.runs()) {
    arithmetic_->Copy(Floats(x_sync_) + run.offset, run.x, run.count * sizeof(float));
  }
}

Result<bool> ZeroOneAdam::Skip(const StepInput& input) {
  if (!is_interval_open()) return false;
  ONEBIT_TRY(RevertToLastSync(input.gradients.floats()));
  return true;
}

// All ranks discard the sums since they last agreed, and return to that state. Residuals belong to
// data already sent, and stay. Momenta have diverged, too: all take their mean. `scratch` is large
// enough for it, or null.
Status ZeroOneAdam::RevertToLastSync(float* scratch) {
  Memory made;
  if (scratch == nullptr) {
    // A device uses permanent memory, which a step that comes here does not need.
    Memory& room = arithmetic_->is_deferred() ? next_v_ : made;
    ONEBIT_TRY(AllocateFloats(count(), "momenta", &room));
    scratch = Floats(room);
  }
  arithmetic_->Copy(scratch, m_.data(), m_.size());
  ONEBIT_ASSIGN_OR_RETURN(const bool is_finite, averages_.AverageFloats(scratch, count()));
  if (is_finite) {
    arithmetic_->Copy(m_.data(), scratch, m_.size());
  } else {
    arithmetic_->Clear(m_.data(), m_.size());
  }
  for (const ParameterRun& run : table_.runs()) {
    arithmetic_->Copy(run.x, Floats(x_sync_) + run.offset, run.count * sizeof(float));
  }
  arithmetic_->Clear(u_.data(), u_.size());
  Status status = WriteParameterCopy();
  if (status.ok()) status = arithmetic_->Await(nullptr);
  if (!status.ok()) return Torn(std::move(status));
  schedule_.EndInterval();
  return OkStatus();
}

Result<onebitStage_t> ZeroOneAdam::AgreeOnState() {
  if (!is_interval_open()) return onebitStageLocal;
  ONEBIT_TRY(AllocateFloats(table_.compressed_count(), "local sums", &contributions_));
  ONEBIT_TRY(PrepareCompressor());
  const StepInput none;
  plan_ = {};
  bool is_usable = schedule_.has_weight(0);
  if (is_usable) {
    for (const Segment& segment : table_.segments()) {
      float* out = segment.is_dense ? DenseSums() : Contributions(none);
      arithmetic_->Copy(out + segment.packed_offset, Floats(u_) + segment.offset,
                        segment.count * sizeof(float));
    }
    if (table_.dense_count() != 0) {
      ONEBIT_ASSIGN_OR_RETURN(is_usable,
                              averages_.AverageFloats(DenseSums(), table_.dense_count()));
    }
  }
  if (is_usable) {
    ONEBIT_ASSIGN_OR_RETURN(
        is_usable, averages_.AverageCompressed(Contributions(none), table_.compressed_count()));
  }
  if (!is_usable) {  // there is no mean to compute momenta from
    ONEBIT_TRY(RevertToLastSync(nullptr));
    return onebitStageDense;
  }
  TakeMeans(none, 1);
  schedule_.EndInterval();
  return onebitStageCompressed;
}

// The first step of DeepSpeed's policy, which drops the gradient, does not recur in an optimizer
// that has made steps.
Status ZeroOneAdam::BeginWarmup(int64_t steps) {
  if (steps != ONEBIT_FREEZE_AUTOMATIC) {
    return Error(Code::kInvalidArgument,
                 "steps is {}, but must be ONEBIT_FREEZE_AUTOMATIC for 0/1 Adam: varFreezeStep "
                 "says how long its variance is refreshed",
                 steps);
  }
  if (is_interval_open()) {
    return Error(Code::kInvalidUsage,
                 "ranks have moved apart in {} steps since the last sync: call onebitOptimizerSync "
                 "on all of them first",
                 schedule_.state().step - schedule_.state().interval_start);
  }
  ONEBIT_TRY(averages_.ResetCompressor());
  schedule_ = ZeroOneSchedule(schedule_.policy());
  if (step() > 0 && schedule_.Next(0).kind == StepKind::kSwallowed) schedule_.Commit(0);
  BeginWatch();
  return OkStatus();
}

bool ZeroOneAdam::is_interval_open() const {
  return schedule_.state().interval_start < schedule_.state().step;
}

// ------------------------------------------------------------------------------ state and counters

void ZeroOneAdam::ListState(StateList* list) {
  OptimizerState::ListState(list);
  list->AddReplicated(x_sync_);
  list->AddLocal(m_);
  list->AddLocal(u_);
  // By segment, as in TwoStage::ListState.
  for (const Segment& segment : table_.segments()) {
    if (segment.count != 0) list->AddLocal(std::span(segment.x, segment.count));
  }
  ZeroOneState& state = schedule_.mutable_state();
  list->AddValue(state.step);
  list->AddValue(state.interval_start);
  list->AddValue(state.rate_sum);
  list->AddValue(state.peak_rate);
}

std::vector<Moment> ZeroOneAdam::Moments() const {
  std::vector<Moment> moments = OptimizerState::Moments();
  moments.push_back({"s", {Floats(u_), count()}});
  moments.push_back({"x_sync", {Floats(x_sync_), count()}});
  return moments;
}

Status ZeroOneAdam::CheckState() const {
  ONEBIT_TRY(OptimizerState::CheckState());
  if (schedule_.state().step > step()) {
    return Damaged("its schedule is ahead of its steps");
  }
  return ZeroOneSchedule(schedule_.policy()).SetState(schedule_.state());
}

void ZeroOneAdam::AddStats(onebitOptimizerStats_t* stats) const {
  const uint64_t policy_began_at = step() - schedule_.state().step;
  stats->frozen_at =
      schedule_.has_last_refresh_behind() ? policy_began_at + schedule_.last_live_step() : 0;
  stats->stage = NextStage(last_rate_);
  stats->state_bytes += u_.size() + x_sync_.size() + next_v_.size() + contributions_.size() +
                        gradient_copy_.size() + dense_sums_.size() + variance_.bytes();
}

}  // namespace onebit::optim
