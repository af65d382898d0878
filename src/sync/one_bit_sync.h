// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// 1-bit sync: ranks accumulate what they would have sent, and average the sums every so many steps
// in one compressed allreduce. Steps in between send nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/state_blob.h"
#include "exec/engine.h"
#include "schedule/sync_schedule.h"
#include "sync/device_sum.h"

namespace onebit {

// The accumulator u and the weight sum L of one tensor. Not thread-safe.
class OneBitSync {
 public:
  // Creates a sync for the fp32 tensor of a compressor, with u = 0 and L = 0 before step 0. u is in
  // the same memory as the residuals.
  static Result<OneBitSync> Create(const Compressor::Config& config, const SyncSchedule& schedule);

  struct Outcome {
    bool did_sync = false;
    float weight_sum = 0;  // L of a sync
  };
  // u += x, L += weight. If a sync is due, `out` becomes the mean of u over the ranks, and then u =
  // 0 and L = 0; otherwise nothing is sent and `out` is not touched. `out` may equal `x`, and is
  // all that an error changes. `engine` is null if the compressor is detached; a sync then fails.
  Result<Outcome> Step(Engine* engine, PlannedCompressor* compressor, const float* x, float weight,
                       float* out);

  // The allreduce of a sync on a device, which its communicator makes.
  class AllReduce {
   public:
    virtual ~AllReduce() = default;
    // Puts it on the stream of the step. `weight_bits` is the bit pattern of L, which ranks
    // compare.
    virtual Status Make(uint32_t weight_bits) = 0;
    // The error that put the communicator out of use.
    virtual Status FindFailure() = 0;
  };
  // Step on device memory. A step that sends nothing is enqueued; a sync waits until it is done.
  // `call` is null if the compressor is detached.
  Result<Outcome> StepOnDevice(AllReduce* call, PlannedCompressor* compressor, const float* x,
                               float weight, float* out, onebitStream_t stream);

  bool is_on_device() const { return on_device_.has_value(); }
  // Waits until no device uses the sync any more.
  Status Drain();

  // Counts a sync that failed here as done if another rank committed it: a rebind has then rolled
  // the residuals forward, and they contain u. Must be called before Describe and Export.
  void ResolveFailedSync(const Compressor& compressor);

  size_t count() const { return count_; }
  // Writes the next steps, '1' for a sync, '.' for a local one, if no weight sum is zero.
  void Describe(std::span<char> steps) const;

  // One blob with everything, the compressor's state of this rank included (STATE.md).
  size_t StateBytes(const PlannedCompressor& compressor, StateKind kind) const;
  Status ExportRank(const PlannedCompressor& compressor, std::byte* blob);
  // Collective, like ExportGlobalState.
  Status ExportGlobal(Comm& comm, Engine& engine, const PlannedCompressor& compressor,
                      std::byte* blob);
  // The compressor's part of a state; empty if there is none.
  static std::span<const std::byte> CompressorStateOf(std::span<const std::byte> blob);
  // After an error sync and compressor are what they were.
  Status Import(std::span<const std::byte> blob, PlannedCompressor* compressor);

 private:
  // The next step, after its arguments were checked.
  struct Next {
    bool is_sync = false;
    float weight_sum = 0;  // L with this step
  };
  Result<Next> LookAt(float weight, const Compressor& compressor, bool is_attached);
  void AddWeight(const Next& next);
  Status Failed(const Status& status, uint64_t epoch, float weight_sum);
  void EndInterval();
  void WriteFields(std::span<std::byte> section) const;

  SyncSchedule schedule_;
  size_t count_ = 0;
  Memory accumulator_;                  // u, count_ floats, on the host
  std::optional<DeviceSum> on_device_;  // u, on a device
  float weight_sum_ = 0;                // L
  uint64_t step_ = 0;                   // that of the next call
  std::optional<uint64_t> last_sync_;
  // The compressor's epoch when the last sync failed; other ranks may have committed it.
  std::optional<uint64_t> failed_epoch_;
};

}  // namespace onebit
