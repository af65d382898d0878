// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What the computing steps of a plan do on the memory of a device: the kernels that they launch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/plan.h"
#include "collectives/step_compute.h"
#include "device/devices.h"

namespace onebit {

// Where the kernels of a call run, and what they need beside it. Its device is the current one.
struct KernelQueue {
  const Devices* devices = nullptr;
  onebitStream_t stream = nullptr;
  // Room for TileSumsFor(plan); the stream's order lets the steps of a plan share it.
  kernels::cuda::TileSum* tile_sums = nullptr;
};

// Partial sums that the steps of such a plan of so many elements need at a time; 0 for scales of
// blocks.
size_t TileSumsFor(const Plan& plan, size_t tensor_elements);

// Fails if plans of this key cannot run on device memory.
Status CheckDevicePlan(const Plan& plan);

// Enqueues what StepCompute::Run does for a step, but for the checksums of packets, packets of
// values that are not finite, and verdicts (StepKind::kVerdict). If something is not finite the
// kernels set kNonfinite in *verdict, which they can address. Packets are memory that the device
// addresses; all other memory is its own.
Status EnqueueStep(const KernelQueue& queue, const Call& call, const Step& step, uint32_t* verdict);

// Enqueues the filling of all that the call writes with NaN, if *condition is not clear; null:
// whatever it is.
Status EnqueueNan(const KernelQueue& queue, const Call& call, const uint32_t* condition);

// Enqueues the checksum of what this rank holds of the elements of `chunk` (HeldChecksum) to
// `checksum`, which is zero.
Status EnqueueHeldChecksum(const KernelQueue& queue, const Call& call, uint32_t chunk,
                           kernels::Checksum* checksum);

}  // namespace onebit
