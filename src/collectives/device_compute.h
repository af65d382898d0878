// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Launches kernels for the computing steps of a plan on device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/plan.h"
#include "collectives/step_compute.h"
#include "device/devices.h"

namespace onebit {

// The stream of a call's kernels and their working memory. Its device must be current.
struct KernelQueue {
  const Devices* devices = nullptr;
  onebitStream_t stream = nullptr;
  // Has room for TileSumsFor(plan). Steps of a plan share it, because the stream orders them.
  kernels::cuda::TileSum* tile_sums = nullptr;
};

// Where a call's outcome so far is kept (kernels::cuda::Verdict).
struct CallVerdict {
  uint32_t* bits = nullptr;  // set by kernels, which must be able to address it
  const uint32_t* decision =
      nullptr;  // set by the host, in pinned memory; null: it decides nothing
};

// Number of partial sums that a step of such a plan needs for a tensor of this size; 0 if scales
// belong to blocks.
size_t TileSumsFor(const Plan& plan, size_t tensor_elements);

// Fails if plans with this key cannot run on device memory.
Status CheckDevicePlan(const Plan& plan);

// Enqueues the equivalent of StepCompute::Run for these steps of one phase, in this order, except
// for checksums of packets, packets of values that are not finite, and verdicts
// (StepKind::kVerdict). Kernels set kNonfinite in the verdict if they meet a value that is not
// finite. Packets may be in pinned memory; all other memory is the device's.
Status EnqueueSteps(const KernelQueue& queue, std::span<const Call> calls,
                    std::span<const Step> steps, std::span<const uint32_t> indices,
                    std::span<const CallVerdict> verdicts);

// Enqueues a fill of the call's output with NaN if the verdict is not clear.
Status EnqueueNan(const KernelQueue& queue, const Call& call, const CallVerdict& verdict);

// Enqueues the checksums of this rank's estimates of all chunks (HeldChecksum), which must be zero
// before. `checksums` is device memory.
Status EnqueueHeldChecksums(const KernelQueue& queue, const Call& call,
                            kernels::Checksum* checksums);

}  // namespace onebit
