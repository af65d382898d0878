// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// 1-bit sync: ranks add up what they would have sent, and every so many steps average the sums in
// one compressed allreduce. Steps in between send nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/aligned_buffer.h"
#include "base/state_blob.h"
#include "collectives/engine.h"
#include "schedule/sync_schedule.h"

namespace onebit {

// The accumulator u and the weight sum L of one tensor. Used by one thread at a time.
class OneBitSync {
 public:
  // For tensors of `count` fp32 elements, with u = 0 and L = 0 before step 0.
  static Result<OneBitSync> Create(size_t count, const SyncSchedule& schedule);

  struct Outcome {
    bool did_sync = false;
    float weight_sum = 0;  // of a sync
  };
  // u += x, L += weight. If a sync is due, `out` becomes the mean of u over the ranks, and then
  // u = 0 and L = 0; otherwise nothing is sent and `out` is not touched. It may equal `x`. After an
  // error nothing has changed but `out`. `engine` null: the compressor is detached, and a sync an
  // error.
  Result<Outcome> Step(Engine* engine, PlannedCompressor* compressor, const float* x, float weight,
                       float* out);

  // A sync that failed here counts if another rank committed it: a rebind has rolled the residuals
  // forward, and they have what was in u. Call it before Describe and Export.
  void SettleFailedSync(const Compressor& compressor);

  size_t count() const { return count_; }
  // The next steps, '1' for a sync, '.' for a local one, if no weight sum is zero.
  void Describe(std::span<char> steps) const;

  // Everything, the compressor's state of this rank included, in one blob (STATE.md).
  size_t StateBytes(const PlannedCompressor& compressor, StateKind kind) const;
  void ExportRank(const PlannedCompressor& compressor, std::byte* blob) const;
  // As ExportGlobalState.
  Status ExportGlobal(Comm& comm, Engine& engine, const PlannedCompressor& compressor,
                      std::byte* blob) const;
  // After an error both are what they were.
  Status Import(std::span<const std::byte> blob, PlannedCompressor* compressor);

 private:
  void EndInterval();
  void WriteFields(std::span<std::byte> section) const;

  SyncSchedule schedule_;
  size_t count_ = 0;
  AlignedBuffer accumulator_;  // u, count_ floats
  float weight_sum_ = 0;       // L
  uint64_t step_ = 0;          // of the next call
  std::optional<uint64_t> last_sync_;
  // Of the compressor when the last sync failed; other ranks may have committed it.
  std::optional<uint64_t> failed_epoch_;
};

}  // namespace onebit
