// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What the optimizers that freeze their variance differ in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/status.h"
#include "kernels/optimizer.h"
#include "optim/arithmetic.h"
#include "optim/state_list.h"
#include "optim/trust_ratio.h"

namespace onebit::optim {

// The part of an update that depends on the algorithm, one segment at a time. Segments go by their
// index in the table. On the host nothing but Allocate can fail.
class UpdateRule {
 public:
  // `arithmetic` must outlive the rule.
  explicit UpdateRule(Arithmetic& arithmetic) : arithmetic_(arithmetic) {}
  virtual ~UpdateRule() = default;

  // State besides m and v; `has_compressed_stage` is false where it never comes to that.
  virtual Status Allocate(bool /*has_compressed_stage*/) { return OkStatus(); }

  // `update` is complete, its input the averaged gradient; v is live.
  virtual void UpdateDense(size_t segment, const kernels::AdamUpdate& update) = 0;
  // `update` is complete, its input the averaged momentum times MomentumScale; v is frozen.
  // `fresh_correction` is what would correct a v that had gone on.
  virtual void UpdateFrozen(size_t segment, const kernels::AdamUpdate& update,
                            double fresh_correction) = 0;
  // Behind those of all segments: what had to wait for results.
  virtual Status EndUpdate() { return OkStatus(); }

  // m and v, all elements, as the last dense step left them.
  virtual Status Freeze(const float* /*m*/, const float* /*v*/) { return OkStatus(); }
  // Back to dense steps.
  virtual void Rewarm() {}
  // What a segment's momentum is multiplied with before it is compressed.
  virtual float MomentumScale(size_t /*segment*/) const { return 1; }

  // Nothing for rules that have no trust ratios.
  virtual std::optional<TrustRatio> trust_ratio(size_t /*segment*/) const { return std::nullopt; }

  virtual void ListState(StateList* /*list*/) {}
  // Whether values that were replaced, all of them finite, can be those of this rule.
  virtual bool IsStatePossible() const { return true; }
  virtual size_t bytes() const { return 0; }

 protected:
  Arithmetic& arithmetic_;
};

}  // namespace onebit::optim
