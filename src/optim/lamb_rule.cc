// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/lamb_rule.h"

#include <algorithm>
#include <cmath>

#include "optim/gradient_elements.h"

namespace onebit::optim {
namespace {

using kernels::AdamUpdate;
using kernels::DataType;
using kernels::LambNorms;
using kernels::LambUpdate;

// A layer without gradients for a long time has almost no momentum. Scaled to the size of the
// others, it would dominate them when its gradients return, and overflow before that.
constexpr double kMaxMomentumScale = 1 << 20;

// Fills in everything except the variance of reconstructed gradients.
LambUpdate LambUpdateOf(const AdamUpdate& update) {
  return {.x = update.x,
          .m = update.m,
          .v = update.v,
          .v_fresh = nullptr,
          .input = update.input,
          .input_type = update.input_type,
          .count = update.count,
          .beta1 = update.beta1,
          .one_minus_beta1 = update.one_minus_beta1,
          .beta2 = update.beta2,
          .one_minus_beta2 = update.one_minus_beta2,
          .eps = update.eps,
          .weight_decay = update.weight_decay,
          .input_scale = update.input_scale,
          .m_correction = update.m_correction,
          .v_correction = update.v_correction,
          .floor = update.floor,
          .mask = update.mask};
}

}  // namespace

LambRule::LambRule(const SegmentTable& table, const LambOptions& lamb, Arithmetic& arithmetic)
    : UpdateRule(arithmetic), table_(table), lamb_(lamb), layers_(table.segments().size()) {
  if (arithmetic.is_deferred()) pending_.reserve(layers_.size());
}

Status LambRule::Allocate(bool has_compressed_stage) {
  ONEBIT_ASSIGN_OR_RETURN(norms_, arithmetic_.AllocateResults(layers_.size() * sizeof(LambNorms)));
  if (!has_compressed_stage) return OkStatus();
  size_t count = 0;
  for (const Segment& segment : table_.segments()) count += segment.count;
  ONEBIT_ASSIGN_OR_RETURN(fresh_variance_,
                          arithmetic_.Allocate(count * sizeof(float), "fresh variance"));
  return OkStatus();
}

// --------------------------------------------------------------------------------- dense stage

void LambRule::UpdateDense(size_t segment, const AdamUpdate& update) {
  TrustRatio& layer = layers_[segment];
  if (!table_.segments()[segment].has_trust_ratio) {
    layer.coefficient = 1;
    return arithmetic_.Run<Kernel::kAdamDense>(update);
  }
  arithmetic_.Run<Kernel::kLambDense>({.update = LambUpdateOf(update), .norms = norms(segment)});
  MoveWhenMeasured({segment, update, false});
}

// Moves at once on the host, while the layer is in the cache; on a device all layers are measured
// first, so that the host waits once.
void LambRule::MoveWhenMeasured(const Pending& pending) {
  if (arithmetic_.is_deferred()) {
    pending_.push_back(pending);
  } else {
    ResolvePending(pending);
  }
}

Status LambRule::EndUpdate() {
  if (pending_.empty()) return OkStatus();
  Status status = arithmetic_.Await(nullptr);
  if (status.ok()) {
    for (const Pending& pending : pending_) ResolvePending(pending);
  }
  pending_.clear();
  return status;
}

void LambRule::ResolvePending(const Pending& pending) {
  const LambNorms& measured = *norms(pending.segment);
  TrustRatio& layer = layers_[pending.segment];
  if (pending.is_frozen) {
    layer.factor = Factor(measured, pending.update.weight_decay, layer.factor);
    // A layer whose ratio could never be measured moves as in Adam.
    layer.coefficient = (layer.average > 0 ? layer.average : 1) * layer.factor;
  } else {
    Measure(measured, &layer);
  }
  Move(pending.update, layer.coefficient);
}

// Moves x by `coefficient` times the Adam step; the moments are already updated.
void LambRule::Move(AdamUpdate update, double coefficient) {
  update.input = update.m;
  update.input_type = DataType::kF32;
  update.input_scale = 1;
  update.lr *= static_cast<float>(coefficient);
  arithmetic_.Run<Kernel::kAdamFrozen>(update);
}

// A layer that is zero, or does not move, has no ratio: it moves as in Adam, and leaves the average
// unchanged. DeepSpeed interprets any ratio of exactly 1 as such a layer.
void LambRule::Measure(const LambNorms& norms, TrustRatio* layer) const {
  const double ratio = std::sqrt(norms.x_squared) / std::sqrt(norms.decayed_squared);
  const bool is_defined = norms.x_squared > 0 && norms.decayed_squared > 0 && std::isfinite(ratio);
  layer->coefficient =
      is_defined ? std::clamp(ratio, lamb_.min_coefficient, lamb_.max_coefficient) : 1;
  if (!is_defined || (lamb_.skips_ratio_one && layer->coefficient == 1)) return;
  layer->average = lamb_.beta * layer->average + (1 - lamb_.beta) * layer->coefficient;
}

// ---------------------------------------------------------------------------- compressed stage

Status LambRule::Freeze(const float* m, const float* v) {
  arithmetic_.Copy(fresh_variance_.data(), v, fresh_variance_.size());
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Segment& segment = table_.segments()[i];
    if (segment.is_dense) continue;
    arithmetic_.Run<Kernel::kSumOfSquares>(
        {.values = m + segment.offset, .count = segment.count, .sum = &norms(i)->update_squared});
  }
  ONEBIT_TRY(arithmetic_.Await(nullptr));
  // Scales all layers to the same root mean square, so that one scale fits blocks and servers that
  // hold parts of several. Layers without momentum cannot be scaled.
  double sum = 0;
  size_t summed = 0;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Segment& segment = table_.segments()[i];
    layers_[i].factor = 1;
    layers_[i].momentum_scale = 0;
    if (segment.is_dense) continue;
    if (segment.count == 0) continue;
    const double scale = std::sqrt(norms(i)->update_squared / static_cast<double>(segment.count));
    if (!(scale > 0)) continue;
    layers_[i].momentum_scale = scale;
    sum += scale;
    ++summed;
  }
  const double mean = sum / static_cast<double>(std::max<size_t>(summed, 1));
  for (TrustRatio& layer : layers_) {
    const bool is_live = layer.momentum_scale * kMaxMomentumScale > mean;
    layer.momentum_scale = is_live ? mean / layer.momentum_scale : 1;
  }
  return OkStatus();
}

void LambRule::UpdateFrozen(size_t segment, const AdamUpdate& update, double fresh_correction) {
  if (!table_.segments()[segment].has_trust_ratio) {
    layers_[segment].coefficient = 1;
    return arithmetic_.Run<Kernel::kAdamFrozen>(update);
  }
  LambUpdate moments = LambUpdateOf(update);
  moments.v_fresh = Floats(fresh_variance_) + table_.segments()[segment].offset;
  moments.v_fresh_correction = static_cast<float>(fresh_correction);
  arithmetic_.Run<Kernel::kLambFrozen>({.update = moments, .norms = norms(segment)});
  MoveWhenMeasured({segment, update, true});
}

double LambRule::Factor(const LambNorms& norms, double weight_decay, double last) const {
  if (!(norms.max_ratio > 0)) return last;  // every element is masked
  double factor = norms.max_ratio;
  if (weight_decay > 0 && norms.decayed_squared > 0) {
    const double share =
        std::min(1.0, std::sqrt(norms.update_squared) / std::sqrt(norms.decayed_squared));
    factor = factor * share + (1 - share);
  }
  // Limits the range first, then the rate of change.
  factor = std::clamp(factor, lamb_.min_factor, lamb_.max_factor);
  return std::clamp(factor, (1 - lamb_.threshold) * last, (1 + lamb_.threshold) * last);
}

void LambRule::Rewarm() { std::fill(layers_.begin(), layers_.end(), TrustRatio()); }

// ------------------------------------------------------------------------------------------ state

std::span<float> LambRule::fresh_variance() const {
  return {Floats(fresh_variance_), fresh_variance_.size() / sizeof(float)};
}

void LambRule::ListState(StateList* list) {
  list->AddReplicated(fresh_variance_);
  for (TrustRatio& layer : layers_) {
    list->AddValue(layer.coefficient);
    list->AddValue(layer.average);
    list->AddValue(layer.factor);
    list->AddValue(layer.momentum_scale);
  }
}

bool LambRule::IsStatePossible() const {
  return std::all_of(layers_.begin(), layers_.end(), [](const TrustRatio& layer) {
    return layer.coefficient >= 0 && layer.average >= 0 && layer.factor > 0 &&
           layer.momentum_scale > 0 &&
           std::isfinite(1 / static_cast<float>(layer.momentum_scale)) &&
           std::isfinite(static_cast<float>(layer.momentum_scale));
  });
}

size_t LambRule::bytes() const {
  return fresh_variance_.size() + layers_.size() * sizeof(TrustRatio);
}

}  // namespace onebit::optim
