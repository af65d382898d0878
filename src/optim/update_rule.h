// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The differences between the optimizers that freeze their variance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/status.h"
#include "kernels/optimizer.h"
#include "optim/arithmetic.h"
#include "optim/state_list.h"
#include "optim/trust_ratio.h"

namespace onebit::optim {

// The part of an update that depends on the algorithm, one segment at a time. Segments are
// identified by their index in the table. On the host only Allocate can fail.
class UpdateRule {
 public:
  // `arithmetic` must outlive the rule.
  explicit UpdateRule(Arithmetic& arithmetic) : arithmetic_(arithmetic) {}
  virtual ~UpdateRule() = default;

  // Allocates state besides m and v; `has_compressed_stage` is false if that stage never comes.
  virtual Status Allocate(bool /*has_compressed_stage*/) { return OkStatus(); }

  // `update` is complete, with the averaged gradient as its input; v is live.
  virtual void UpdateDense(size_t segment, const kernels::AdamUpdate& update) = 0;
  // `update` is complete, with the averaged momentum times MomentumScale as its input; v is frozen.
  // `fresh_correction` is the bias correction of a v that was never frozen.
  virtual void UpdateFrozen(size_t segment, const kernels::AdamUpdate& update,
                            double fresh_correction) = 0;
  // Called after all segments, for work that had to wait for results.
  virtual Status EndUpdate() { return OkStatus(); }

  // Receives all elements of m and v, as the last dense step left them.
  virtual Status Freeze(const float* /*m*/, const float* /*v*/) { return OkStatus(); }
  // Returns to dense steps.
  virtual void Rewarm() {}
  // The factor that multiplies a segment's momentum before compression.
  virtual float MomentumScale(size_t /*segment*/) const { return 1; }

  // Empty for rules without trust ratios.
  virtual std::optional<TrustRatio> trust_ratio(size_t /*segment*/) const { return std::nullopt; }

  // The variance of reconstructed gradients; empty for rules without one.
  virtual std::span<float> fresh_variance() const { return {}; }

  virtual void ListState(StateList* /*list*/) {}
  // Checks that replaced values, all of them finite, are possible for this rule.
  virtual bool IsStatePossible() const { return true; }
  virtual size_t bytes() const { return 0; }

 protected:
  Arithmetic& arithmetic_;
};

}  // namespace onebit::optim
