// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Launches kernels for the computing steps of a plan on device memory.
#pragma once

#include <cstddef>
#include <cstdint>

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

// Number of partial sums that a step of such a plan needs for a tensor of this size; 0 if scales
// belong to blocks.
size_t TileSumsFor(const Plan& plan, size_t tensor_elements);

// Fails if plans with this key cannot run on device memory.
Status CheckDevicePlan(const Plan& plan);

// Enqueues the equivalent of StepCompute::Run, except for checksums of packets, packets of values
// that are not finite, and verdicts (StepKind::kVerdict). Kernels set kNonfinite in *verdict, which
// must be addressable by the device, if they meet a value that is not finite. Packets may be in
// pinned memory; all other memory is the device's.
Status EnqueueStep(const KernelQueue& queue, const Call& call, const Step& step, uint32_t* verdict);

// Enqueues a fill of the call's output with NaN if *condition is not clear; always if `condition`
// is null.
Status EnqueueNan(const KernelQueue& queue, const Call& call, const uint32_t* condition);

// Enqueues the checksum of this rank's estimate of `chunk` (HeldChecksum). *checksum must be zero.
Status EnqueueHeldChecksum(const KernelQueue& queue, const Call& call, uint32_t chunk,
                           kernels::Checksum* checksum);

}  // namespace onebit
