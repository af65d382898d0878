// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Queries an application's communicator, and broadcasts over it.
#include "plugins/transport_nccl/nccl_group.h"

#include <cstring>
#include <string>
#include <utility>

#include "plugins/transport_nccl/other_nccl.h"
#include "wait/backoff.h"

namespace onebit::nccl {
namespace {

using cuda::AddressOf;

constexpr size_t kMostBytes = 1u << 20;

// Device memory with a private stream. Only Free frees it, because nobody may wait for a device
// that may still write to the memory.
class Scratch {
 public:
  explicit Scratch(const cuda::Driver& driver) : driver_(driver) {}

  CUresult Reserve(size_t bytes) {
    CUresult code = driver_.cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0);
    if (code == CUDA_SUCCESS) code = driver_.cuMemAlloc_v2(&bytes_, bytes);
    return code;
  }
  void Free() {
    if (bytes_ != 0) driver_.cuMemFree_v2(bytes_);
    if (stream_ != nullptr) driver_.cuStreamDestroy_v2(stream_);
  }
  CUdeviceptr bytes() const { return bytes_; }
  void* memory() const { return reinterpret_cast<void*>(static_cast<uintptr_t>(bytes_)); }
  onebitStream_t stream() const { return stream_; }

 private:
  const cuda::Driver& driver_;
  onebitStream_t stream_ = nullptr;
  CUdeviceptr bytes_ = 0;
};

// Waits until the stream has done all work, or the communicator has failed.
onebitResult_t AwaitStream(Communicator* communicator, CommHandle handle, onebitStream_t stream,
                           uint64_t timeout_ms) {
  const cuda::Driver& driver = *communicator->binding().driver;
  const PollDeadline deadline = DeadlineAfter(timeout_ms);
  for (Backoff backoff;; backoff.Pause()) {
    const CUresult code = driver.cuStreamQuery(stream);
    if (code == CUDA_SUCCESS) return onebitSuccess;
    if (code != CUDA_ERROR_NOT_READY) {
      return communicator->Fail(onebitUnhandledCudaError, "the broadcast failed on the device: " +
                                                              cuda::ErrorText(driver, code));
    }
    int state = kSuccess;
    if (communicator->api().CommGetAsyncError(handle, &state) != kSuccess || state != kSuccess) {
      return communicator->Finish("ncclBroadcast", state);
    }
    if (std::chrono::steady_clock::now() >= deadline) break;
  }
  return communicator->Fail(onebitTimeout, "ncclBroadcast: not all ranks called it within " +
                                               std::to_string(timeout_ms) + " ms");
}

onebitResult_t Carry(Communicator* communicator, CommHandle handle, const Scratch& scratch,
                     void* bytes, size_t count, uint64_t timeout_ms) {
  const cuda::Driver& driver = *communicator->binding().driver;
  CUresult code = driver.cuMemcpyAsync(scratch.bytes(), AddressOf(bytes), count, scratch.stream());
  if (code == CUDA_SUCCESS) {
    const onebitResult_t result = communicator->Finish(
        "ncclBroadcast", communicator->api().Broadcast(scratch.memory(), scratch.memory(), count,
                                                       kInt8, 0, handle, scratch.stream()));
    if (result != onebitSuccess) return result;
    // A copy to pageable memory blocks on the stream, and must not wait for the peers.
    const onebitResult_t done = AwaitStream(communicator, handle, scratch.stream(), timeout_ms);
    if (done != onebitSuccess) return done;
    code = driver.cuMemcpyAsync(AddressOf(bytes), scratch.bytes(), count, scratch.stream());
    if (code == CUDA_SUCCESS) {
      return AwaitStream(communicator, handle, scratch.stream(), timeout_ms);
    }
  }
  return communicator->Fail(
      onebitUnhandledCudaError,
      "bytes for a broadcast could not be copied: " + cuda::ErrorText(driver, code));
}

struct Facts {
  int rank = 0;
  int ranks = 0;
  int device = 0;
};

// Waits until the communicator is ready: a non-blocking one may still be under construction.
int AskFacts(const NcclApi& api, CommHandle handle, uint64_t timeout_ms, Facts* facts) {
  int state = kSuccess;
  int code = kSuccess;
  PollUntil(DeadlineAfter(timeout_ms), [&] {
    code = api.CommGetAsyncError(handle, &state);
    return code != kSuccess || state != kInProgress;
  });
  if (code != kSuccess) return code;
  if (state != kSuccess) return state;
  code = api.CommUserRank(handle, &facts->rank);
  if (code == kSuccess) code = api.CommCount(handle, &facts->ranks);
  if (code == kSuccess) code = api.CommCuDevice(handle, &facts->device);
  return code;
}

}  // namespace

onebitResult_t Adopt(Context* context, const void* native, size_t native_bytes, uint64_t timeout_ms,
                     std::shared_ptr<Group>* group) {
  if (native == nullptr) {
    context->Warn(
        "native is NULL, but NCCL has no communicator of all processes: pass an ncclComm_t");
    return onebitInvalidUsage;
  }
  CommHandle handle = nullptr;
  if (native_bytes != sizeof handle) {
    context->Warn("an ncclComm_t has %zu bytes, not %zu", sizeof handle, native_bytes);
    return onebitInvalidArgument;
  }
  std::memcpy(&handle, native, sizeof handle);
  if (handle == nullptr) {
    context->Warn("the communicator is NULL");
    return onebitInvalidArgument;
  }
  if (const std::string other = OtherNccl(context->api()); !other.empty()) {
    context->Warn(
        "the communicator does not belong to the NCCL that onebit uses, %s, but to the program's "
        "own: set ONEBIT_NCCL_LIB to %s",
        context->api().file.c_str(), other.c_str());
    return onebitInvalidUsage;
  }
  DeviceBinding binding;
  const onebitResult_t result = context->FindDeviceBinding("joining a communicator", &binding);
  if (result != onebitSuccess) return result;
  Facts facts;
  const int code = AskFacts(context->api(), handle, timeout_ms, &facts);
  if (code == kInProgress) {
    context->Warn("the communicator was not ready within %llu ms",
                  static_cast<unsigned long long>(timeout_ms));
    return onebitTimeout;
  }
  if (code != kSuccess) {
    context->Warn("the communicator cannot be used: %s", context->api().Explain(code).c_str());
    return ResultOf(code);
  }
  if (facts.device != binding.device) {
    context->Warn(
        "rank %d: the communicator is on device %d, but device %d is current; make device %d "
        "current before the call",
        facts.rank, facts.device, binding.device, facts.device);
    return onebitInvalidUsage;
  }
  auto adopted = std::make_shared<Group>();
  adopted->context = context;
  adopted->communicator =
      std::make_shared<Communicator>(*context, std::move(binding), facts.rank, facts.ranks);
  adopted->communicator->Join(handle, timeout_ms);
  *group = std::move(adopted);
  return onebitSuccess;
}

onebitResult_t Broadcast(Group* group, void* bytes, size_t count, uint64_t timeout_ms) {
  if (count > kMostBytes) return onebitInvalidArgument;
  if (count == 0) return onebitSuccess;
  Communicator* communicator = group->communicator.get();
  return communicator->Use([&](CommHandle handle) {
    const cuda::Driver& driver = *communicator->binding().driver;
    const cuda::CurrentContext current(driver, communicator->binding().device_context);
    const cuda::RelaxedCapture relaxed(driver);
    Scratch scratch(driver);
    if (const CUresult code = scratch.Reserve(count); code != CUDA_SUCCESS) {
      scratch.Free();
      return communicator->Fail(onebitUnhandledCudaError, "no memory or stream for a broadcast: " +
                                                              cuda::ErrorText(driver, code));
    }
    const onebitResult_t result = Carry(communicator, handle, scratch, bytes, count, timeout_ms);
    if (result == onebitSuccess) scratch.Free();
    return result;
  });
}

}  // namespace onebit::nccl
