// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The update of 1-bit LAMB (Li et al. 2021, algorithm 1): each layer moves by a trust ratio times
// its Adam step. With a frozen variance LAMB's ratio cannot be measured; it is replaced by its
// earlier moving average, times a factor that follows a variance of reconstructed gradients.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/lamb.h"
#include "optim/options.h"
#include "optim/segment_table.h"
#include "optim/update_rule.h"

namespace onebit::optim {

class LambRule final : public UpdateRule {
 public:
  // `table` and `arithmetic` must outlive the rule; `lamb` is copied.
  LambRule(const SegmentTable& table, const LambOptions& lamb, Arithmetic& arithmetic);

  Status Allocate(bool has_compressed_stage) override;
  void UpdateDense(size_t segment, const kernels::AdamUpdate& update) override;
  void UpdateFrozen(size_t segment, const kernels::AdamUpdate& update,
                    double fresh_correction) override;
  Status EndUpdate() override;
  Status Freeze(const float* m, const float* v) override;
  void Rewarm() override;
  float MomentumScale(size_t segment) const override {
    return static_cast<float>(layers_[segment].momentum_scale);
  }
  std::optional<TrustRatio> trust_ratio(size_t segment) const override { return layers_[segment]; }
  std::span<float> fresh_variance() const override;
  void ListState(StateList* list) override;
  bool IsStatePossible() const override;
  size_t bytes() const override;

 private:
  // A layer with new moments, which moves when its norms are known.
  struct Pending {
    size_t segment = 0;
    kernels::AdamUpdate update;
    bool is_frozen = false;
  };

  void MoveWhenMeasured(const Pending& pending);
  void ResolvePending(const Pending& pending);
  void Move(kernels::AdamUpdate update, double coefficient);
  kernels::LambNorms* norms(size_t segment) const {
    return reinterpret_cast<kernels::LambNorms*>(norms_.data()) + segment;
  }
  void Measure(const kernels::LambNorms& norms, TrustRatio* layer) const;
  double Factor(const kernels::LambNorms& norms, double weight_decay, double last) const;

  const SegmentTable& table_;
  const LambOptions lamb_;
  std::vector<TrustRatio> layers_;  // one per segment
  Memory fresh_variance_;           // as v, but from reconstructed gradients
  Memory norms_;                    // one per segment
  std::vector<Pending> pending_;    // layers of the current update, if results are deferred
};

}  // namespace onebit::optim
