// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/dense_staging.h"

#include <algorithm>

namespace onebit {
size_t DenseStaging::StagedBytes(std::span<const CallRequest> requests) const {
  size_t bytes = 0;
  for (const CallRequest& request : requests) {
    if (!IsStaged(request)) continue;
    const BufferBytes needed = BytesOf(request, comm_);
    bytes += RoundUp(needed.input, kCacheLine) + RoundUp(needed.output, kCacheLine);
  }
  return bytes;
}

Status DenseStaging::Reserve(std::span<const CallRequest> requests) {
  return memory_.Reserve(StagedBytes(requests), [this](size_t bytes) { return NewMemory(bytes); });
}

Status DenseStaging::Prepare(std::span<const CallRequest> requests) {
  return memory_.Prepare(StagedBytes(requests), [this](size_t bytes) { return NewMemory(bytes); });
}

Result<Memory> DenseStaging::NewMemory(size_t bytes) const {
  return Memory::CreatePinned(device_.devices(), device_.device(), bytes,
                              "the way of dense calls through the host");
}

Status DenseStaging::StageIn(std::span<CallRequest> requests) {
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope,
                          DeviceScope::Enter(device_.devices(), device_.device()));
  std::byte* next = memory_.data();
  for (CallRequest& request : requests) {
    if (!IsStaged(request)) continue;
    const BufferBytes bytes = BytesOf(request, comm_);
    std::byte* const input = next;
    std::byte* const output = input + RoundUp(bytes.input, kCacheLine);
    next = output + RoundUp(bytes.output, kCacheLine);
    const auto& devices = device_.devices();
    ONEBIT_TRY(devices.Copy(input, request.sendbuff, bytes.input, device_.stream()));
    if (request.collective == Collective::kAllToAllv) {  // its gaps must stay unchanged
      ONEBIT_TRY(devices.Copy(output, request.recvbuff, bytes.output, device_.stream()));
    }
    request.sendbuff = bytes.input == 0 ? nullptr : input;
    request.recvbuff = output;
    request.location = {};
  }
  return device_.Synchronize();
}

Status DenseStaging::StageOut(std::span<const CallRequest> originals,
                              std::span<const CallRequest> staged) {
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope,
                          DeviceScope::Enter(device_.devices(), device_.device()));
  for (size_t i = 0; i < originals.size(); ++i) {
    if (!IsStaged(originals[i])) continue;
    ONEBIT_TRY(device_.devices().Copy(originals[i].recvbuff, staged[i].recvbuff,
                                      BytesOf(originals[i], comm_).output, device_.stream()));
  }
  return device_.Synchronize();
}

}  // namespace onebit
