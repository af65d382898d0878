// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The sections of an optimizer's state (src/state/STATE.md), and the members that must be
// equal to load it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/state_blob.h"
#include "base/status.h"
#include "optim/options.h"
#include "optim/segment_table.h"

namespace onebit::optim {

// The head of the optimizer section, at the offsets of STATE.md. Contains the members that shape
// the state of its algorithm; members of other algorithms are 0.
struct SavedHead {
  uint64_t count = 0;
  uint64_t segments = 0;
  uint32_t algorithm = 0;
  uint32_t variant = 0;
  uint32_t ranks = 1;
  uint32_t rank = 0;  // 0 in a state of all ranks
  double beta2 = 0;
  int64_t freeze_step = 0;
  uint64_t lr_warmup_steps = 0;
  uint64_t var_freeze_step = 0;
  uint64_t var_update_scaler = 0;
  uint64_t local_step_scaler = 0;
  uint64_t local_step_clipper = 0;
  uint64_t local_step_start = 0;
  uint32_t rate_tied = 0;
  uint32_t dense_step_feeds_momentum = 0;
  int64_t freeze_rule = 0;  // as freeze_step, but from the last onebitOptimizerRewarm
};
static_assert(sizeof(SavedHead) == 112);

// The error of a state with `what`, which no optimizer writes.
Status Damaged(std::string_view what);

// Fills in the head from the configuration; the caller sets ranks and rule.
SavedHead HeadOf(const Options& options, const SegmentTable& table, size_t count);

// The section consists of the head, followed by the segments.
size_t OptimizerSectionBytes(const SegmentTable& table);
void WriteOptimizerSection(const SavedHead& head, const SegmentTable& table, std::byte* section);

// A state with valid checksums, by its sections.
struct SavedOptimizer {
  bool is_global = false;
  SavedHead head;
  std::span<const std::byte> segments;
  std::span<const std::byte> values;
  std::span<const std::byte> elements;
  std::optional<std::span<const std::byte>> compressor;

  // `blob` must outlive the result. Errors are those of StateReader::Open, and kMismatch for
  // another kind of state.
  static Result<SavedOptimizer> Read(std::span<const std::byte> blob);

  // Returns "" if the state can be loaded into an optimizer with `here` and `table`, else the
  // differences: "count 100 in the state, 200 here; ...".
  std::string DescribeDifference(const SavedHead& here, const SegmentTable& table) const;
};

}  // namespace onebit::optim
