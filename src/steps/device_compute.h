// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Launches kernels for the computing steps of calls on device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/devices.h"
#include "plan/plan.h"
#include "steps/code_kernels.h"
#include "steps/long_lists.h"
#include "steps/step_compute.h"

namespace onebit {

// The faults of a call so far (kernels::cuda::Faults).
struct FaultWords {
  uint32_t* faults = nullptr;  // set by kernels, which must be able to address it
  const uint32_t* decision =
      nullptr;  // set by the host, in pinned memory; null: it decides nothing
};

// Number of partial sums that a step of such a plan needs for a tensor of this size; 0 if scales
// belong to blocks.
size_t TileSumsFor(const Plan& plan, size_t tensor_elements);

// Fails if plans with this key cannot run on device memory.
Status CheckDevicePlan(const Plan& plan);

// Work on a stream whose device is current. What several calls have in common shares launches.
class DeviceCompute {
 public:
  DeviceCompute(const Devices& devices, LongLists& long_lists);
  ~DeviceCompute();

  // `tile_sums` has room for TileSumsFor the plans of all calls whose steps are enqueued together.
  // `host_sizes`: the ranks on each host, in device memory.
  void Begin(onebitStream_t stream, kernels::TileSum* tile_sums, const float* host_sizes);

  // Adds a step of call number `call_index` to the phase that EnqueueSteps enqueues. Steps of a
  // call come in their order; those of different calls do not depend on each other.
  void Add(size_t call_index, const Call& call, const Step& step, const FaultWords& words);
  // Enqueues the equivalent of StepCompute::Run for all steps added, except for checksums of
  // packets, packets of values that are not finite, and verdicts (StepKind::kVerdict). Kernels set
  // kNonfinite in the faults if they meet a value that is not finite. Packets may be in pinned
  // memory; all other memory is the device's.
  Status EnqueueSteps();

  // The words of a communicator that the end of a call changes (kernels::cuda::CommitParams).
  struct CommWords {
    uint64_t* sequence = nullptr;  // that counts calls like this one
    uint32_t* halted = nullptr;
    uint64_t* nonfinite_calls = nullptr;
  };
  // Ends compressed calls: commits each, or fills its output with NaN. EnqueueEnds follows the
  // last.
  void AddEnd(const Call& call, const FaultWords& words, const CommWords& comm);
  Status EnqueueEnds();

  // Enqueues the checksums of this rank's estimates of all chunks (HeldChecksum), which must be
  // zero before. `checksums` is device memory.
  Status EnqueueHeldChecksums(const Call& call, kernels::Checksum* checksums);

 private:
  struct Lists;
  class StepKernels;
  struct AddedStep {
    const Call* call = nullptr;
    const Step* step = nullptr;
    FaultWords words;
    uint32_t turn = 0;  // steps of equal turns may share a launch
    uint32_t index = 0;
  };
  struct StepTurn {
    StepKind kind = StepKind::kCompress;
    uint32_t turn = 0;
    bool has_steps = false;
  };

  Status Launch(kernels::cuda::Kernel kernel, const void* params) const {
    return devices_.Launch(kernel, params, stream_);
  }
  // Launches the kernels of the open list and empties it.
  Status Flush();
  // Does so for the steps of a turn, before those that need their results.
  Status FlushTurn();
  template <typename Params>
  Status LaunchTensor(kernels::cuda::Kernel signs, kernels::cuda::Kernel residual, Params* params);

  const Devices& devices_;
  LongLists& long_lists_;
  onebitStream_t stream_ = nullptr;
  kernels::TileSum* tile_sums_ = nullptr;
  const float* host_sizes_ = nullptr;
  const std::unique_ptr<Lists> lists_;  // parameters of launches, kept because they are large
  kernels::cuda::Kernel open_ = kernels::cuda::Kernel::kCount;  // whose list has pieces, if any has
  CodeKernels codes_;
  std::vector<AddedStep> steps_;
  std::vector<StepTurn> turns_;  // by call
  // Calls that have ended leave these.
  std::vector<kernels::cuda::FillSpan> fills_;
  std::vector<kernels::cuda::EndedCall> ends_;
};

}  // namespace onebit
