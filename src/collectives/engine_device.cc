// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls of an engine on the memory of a device, over a transport that moves host memory.
#include <algorithm>

#include "collectives/device_side.h"
#include "collectives/engine.h"
#include "collectives/stream_executor.h"
#include "collectives/stream_watch.h"

namespace onebit {

Engine::Engine(Comm& comm) : comm_(comm), executor_(comm) {}

Engine::~Engine() {
  if (stream_ != nullptr) EndStream();
}

std::optional<int> Engine::device() const {
  if (stream_ != nullptr) return stream_->device();
  if (device_ != nullptr) return device_->steps->device();
  return std::nullopt;
}

Status Engine::UseDevice(const Devices& devices, int device) {
  if (device_ != nullptr) {
    if (device_->steps->device() == device) return OkStatus();
    return Error(Code::kInvalidUsage,
                 "rank {}: buffers are memory of CUDA device {}, but this communicator works on "
                 "device {}: one communicator has one device",
                 comm_.rank(), device, device_->steps->device());
  }
  ONEBIT_ASSIGN_OR_RETURN(auto steps, DeviceSteps::Create(devices, device));
  device_ = std::make_unique<DeviceSide>(std::move(steps), comm_);
  packets_ = Memory();  // from now on kernels must reach them
  return OkStatus();
}

std::byte* Engine::packets() const {
  return device_ == nullptr ? packets_.data() : device_->packets.data();
}

DeviceSteps* Engine::device_steps() const {
  return device_ == nullptr ? nullptr : device_->steps.get();
}

Status Engine::ReserveForDevice(const Plan& plan) {
  ONEBIT_TRY(device_->packets.Reserve(plan.packet_space_bytes,
                                      [this](size_t bytes) { return NewPackets(bytes); }));
  return device_->steps->Reserve(plan);
}

Result<Memory> Engine::NewPackets(size_t bytes) const {
  const DeviceSteps& steps = *device_->steps;
  return Memory::CreatePinned(steps.devices(), steps.device(), bytes, "packet space");
}

Status Engine::PrepareForDevice(std::span<const Request> requests) {
  const Request& first = requests[0];
  if (requests.size() == 1 && first.compressor != nullptr &&
      first.key.collective != Collective::kAllToAllv) {
    return OkStatus();  // the compressor has it all since it was made
  }
  const int rank = comm_.rank();
  const int ranks = comm_.ranks();
  ONEBIT_TRY(device_->staging.Prepare(requests, rank, ranks));
  for (const Request& request : requests) {
    if (request.compressor == nullptr || request.key.collective != Collective::kAllToAllv) continue;
    ONEBIT_TRY(device_->steps->Prepare(
        *request.compressor->plan, TensorElementsOf(request.pairs, static_cast<size_t>(ranks))));
  }
  return device_->packets.Prepare(device_->needs.PacketBytes(requests),
                                  [this](size_t bytes) { return NewPackets(bytes); });
}

Status Engine::RunStaged(const Request& request) {
  const int rank = comm_.rank();
  const int ranks = comm_.ranks();
  ONEBIT_TRY(device_->staging.Reserve({&request, 1}, rank, ranks));
  device_->staged.assign(1, request);
  ONEBIT_TRY(device_->staging.BringIn(device_->staged, rank, ranks));
  ONEBIT_TRY(Run(device_->staged[0]));
  return device_->staging.BringOut({&request, 1}, device_->staged, rank, ranks);
}

Result<std::span<const Engine::Request>> Engine::StageGroup(std::span<const Request> requests) {
  originals_ = requests;
  const bool has_staged = std::any_of(requests.begin(), requests.end(), IsStaged);
  if (!has_staged) return requests;
  ONEBIT_TRY(device_->staging.Reserve(requests, comm_.rank(), comm_.ranks()));
  device_->staged.assign(requests.begin(), requests.end());
  ONEBIT_TRY(device_->staging.BringIn(device_->staged, comm_.rank(), comm_.ranks()));
  return std::span<const Request>(device_->staged);
}

Status Engine::UnstageGroup() {
  if (originals_.data() == requests_.data()) return OkStatus();
  return device_->staging.BringOut(originals_, requests_, comm_.rank(), comm_.ranks());
}

bool Engine::IsStaged(const Request& request) {
  return request.compressor == nullptr && request.buffers.location.is_device();
}

Status Engine::FillNanOnDevice(const onebit::Call& call) {
  ONEBIT_TRY(device_->steps->FillNan(call));
  return device_->steps->Synchronize();
}

}  // namespace onebit
