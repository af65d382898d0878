// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/device_side.h"

#include <algorithm>

namespace onebit {

Result<std::unique_ptr<DeviceSide>> DeviceSide::Create(const Comm& comm, const Devices& devices,
                                                       int device) {
  ONEBIT_ASSIGN_OR_RETURN(auto steps, DeviceSteps::Create(devices, device));
  return std::unique_ptr<DeviceSide>(new DeviceSide(comm, std::move(steps)));
}

Result<Memory> DeviceSide::NewPackets(size_t bytes) const {
  return Memory::CreatePinned(steps_->devices(), steps_->device(), bytes, "packet space");
}

Status DeviceSide::Reserve(const Plan& plan) {
  ONEBIT_TRY(packets_.Reserve(plan.packet_space_bytes,
                              [this](size_t bytes) { return NewPackets(bytes); }));
  return steps_->Reserve(plan);
}

Status DeviceSide::Prepare(std::span<const CallRequest> requests) {
  const CallRequest& first = requests[0];
  if (requests.size() == 1 && first.compressor != nullptr &&
      first.collective != Collective::kAllToAllv) {
    return OkStatus();  // allocated with the compressor
  }
  ONEBIT_TRY(staging_.Prepare(requests));
  for (const CallRequest& request : requests) {
    if (request.compressor == nullptr || request.collective != Collective::kAllToAllv) continue;
    ONEBIT_TRY(
        steps_->Prepare(*request.compressor->plan,
                        TensorElementsOf(request.pairs, static_cast<size_t>(comm_.ranks()))));
  }
  return packets_.Prepare(PacketBytes(requests),
                          [this](size_t bytes) { return NewPackets(bytes); });
}

// Counts come from the requests, because the plan of a compressed all-to-all-v has those of the
// call that is running.
size_t DeviceSide::PacketBytes(std::span<const CallRequest> requests) {
  planned_.PlanBatches(requests, &batches_);
  size_t most = 0;
  for (const CallBatch& batch : batches_) {
    const CallRequest& first = requests[batch.cut.begin];
    const bool has_counts =
        first.collective == Collective::kAllToAllv && first.compressor != nullptr;
    most = std::max(most, has_counts ? PacketBytesOfPairs(*batch.plan, first.pairs)
                                     : batch.whole().packet_space_bytes);
  }
  return most;
}

Result<std::span<const CallRequest>> DeviceSide::StageIn(std::span<const CallRequest> requests) {
  ONEBIT_TRY(staging_.Reserve(requests));
  staged_.assign(requests.begin(), requests.end());
  ONEBIT_TRY(staging_.StageIn(staged_));
  return std::span<const CallRequest>(staged_);
}

Status DeviceSide::StageOut(std::span<const CallRequest> requests) {
  return staging_.StageOut(requests, staged_);
}

Status DeviceSide::FillNan(const Call& call) {
  ONEBIT_TRY(steps_->FillNan(call));
  return steps_->Synchronize();
}

}  // namespace onebit
