// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/device_arithmetic.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "device/await.h"
#include "kernels/reference/elements.h"
#include "optim/api_status.h"
#include "optim/host_arithmetic.h"

namespace onebit::optim {
namespace {

using kernels::DataType;
using kernels::cuda::KernelFor;

Status FailureOf(onebitComm_t comm) {
  onebitResult_t result = onebitSuccess;
  ONEBIT_TRY(FromApi(onebitCommGetAsyncError(comm, &result)));
  if (result == onebitSuccess) return OkStatus();
  return {static_cast<Code>(result), onebitGetLastError(comm)};
}

}  // namespace

Result<std::unique_ptr<Arithmetic>> Arithmetic::Create(const MemoryLocation& location,
                                                       const Devices* devices, size_t count) {
  if (location.is_device()) return DeviceArithmetic::Create(*devices, location.device, count);
  return std::unique_ptr<Arithmetic>(std::make_unique<HostArithmetic>());
}

// ------------------------------------------------------------------------------------- life time

Result<std::unique_ptr<Arithmetic>> DeviceArithmetic::Create(const Devices& devices, int device,
                                                             size_t count) {
  std::unique_ptr<DeviceArithmetic> made(new DeviceArithmetic(devices, device));
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(devices, device));
  ONEBIT_ASSIGN_OR_RETURN(made->own_, DeviceStream::Create(devices));
  ONEBIT_ASSIGN_OR_RETURN(made->awaited_, DeviceEvent::Create(devices));
  ONEBIT_ASSIGN_OR_RETURN(made->last_, DeviceEvent::Create(devices));
  ONEBIT_ASSIGN_OR_RETURN(made->words_, made->Allocate(sizeof(Words), "counters"));
  constexpr size_t kTileBytes = std::max(sizeof(kernels::TileSum), sizeof(kernels::LambTile));
  const size_t tiles = kernels::BlockCount(count, kernels::kTensorSumBlock);
  ONEBIT_ASSIGN_OR_RETURN(made->tiles_, made->Allocate(tiles * kTileBytes, "partial sums"));
  return std::unique_ptr<Arithmetic>(std::move(made));
}

DeviceArithmetic::~DeviceArithmetic() { Drain(); }

void DeviceArithmetic::Drain() {
  const auto scope = DeviceScope::Enter(devices_, location().device);
  if (scope.ok() && has_last_) static_cast<void>(AwaitEvent(devices_, last_, OkStatus));
}

Result<Memory> DeviceArithmetic::AllocateResults(size_t bytes) const {
  return Memory::CreatePinned(devices_, location().device, bytes, "results");
}

// ---------------------------------------------------------------------------------------- stream

Status DeviceArithmetic::Begin(onebitStream_t stream) {
  ONEBIT_ASSIGN_OR_RETURN(DeviceScope scope, DeviceScope::Enter(devices_, location().device));
  ONEBIT_ASSIGN_OR_RETURN(const bool is_capturing, devices_.IsCapturing(stream));
  if (is_capturing) {
    return Error(Code::kInvalidUsage,
                 "stream is being captured, but in an optimizer's step the host waits for the "
                 "ranks to agree, which a graph cannot do: capture what comes before and after it");
  }
  // Needed even if the stream has not changed, because the handle of the default stream can mean
  // another stream on every thread.
  if (has_last_) ONEBIT_TRY(devices_.Wait(stream, last_.get()));
  failure_ = OkStatus();
  stream_ = stream;
  scope_.emplace(std::move(scope));
  return OkStatus();
}

void DeviceArithmetic::End() {
  if (!scope_) return;
  // A device where even this fails also rejects all work that would have to wait for it.
  has_last_ = devices_.Record(last_.get(), stream_).ok() || has_last_;
  scope_.reset();
}

Status DeviceArithmetic::Await(onebitComm_t comm) {
  if (failure_.ok()) failure_ = devices_.Record(awaited_.get(), stream_);
  ONEBIT_TRY(failure_);
  return AwaitEvent(devices_, awaited_,
                    [comm] { return comm == nullptr ? OkStatus() : FailureOf(comm); });
}

void DeviceArithmetic::Launch(kernels::cuda::Kernel kernel, const void* params) {
  if (failure_.ok()) failure_ = devices_.Launch(kernel, params, stream_);
}

// --------------------------------------------------------------------------------------- elements

void DeviceArithmetic::Copy(void* to, const void* from, size_t bytes) {
  if (failure_.ok()) failure_ = devices_.Copy(to, from, bytes, stream_);
}

void DeviceArithmetic::Clear(void* memory, size_t bytes) {
  if (failure_.ok()) failure_ = devices_.Fill(memory, 0, bytes, stream_);
}

void DeviceArithmetic::ClearOutside(const uint8_t* mask, size_t count, float* v) {
  kernels::cuda::CopyParamsOf<kernels::cuda::kFewPieces> params;
  params.list.count = 1;
  params.list.tiles = static_cast<uint32_t>(kernels::BlockCount(count, kernels::kTensorSumBlock));
  params.list.pieces[0] = {.count = count,
                           .values = v,
                           .mask = mask,
                           .faults = &words()->faults,  // never read
                           .source = reinterpret_cast<const std::byte*>(v)};
  Launch(kernels::cuda::Kernel::kCopyFew, &params);
}

// Runs on the host, because no kernel only rounds.
Status DeviceArithmetic::Round(const float* values, size_t count, DataType type, void* out) {
  std::vector<float> exact(count);
  std::vector<std::byte> rounded(count * kernels::BytesOf(type));
  Copy(exact.data(), values, count * sizeof(float));
  ONEBIT_TRY(Await(nullptr));
  for (size_t i = 0; i < count; ++i) {
    kernels::reference::StoreElement(exact[i], type, i, rounded.data());
  }
  Copy(out, rounded.data(), rounded.size());
  return Await(nullptr);
}

// ---------------------------------------------------------------------------------------- kernels

void DeviceArithmetic::RunKernel(Kernel kernel, const void* params) {
  switch (kernel) {
    case Kernel::kSumOfSquares:
    case Kernel::kSumOfMagnitudes:
      return Sum(kernel, *static_cast<const kernels::SumParams*>(params));
    case Kernel::kLambDense:
    case Kernel::kLambFrozen:
      return Lamb(kernel, *static_cast<const kernels::LambParams*>(params));
    case Kernel::kMaskOfNonzero:
      return CountNonzero(*static_cast<const kernels::MaskParams*>(params));
    default:  // the kernel needs no scratch memory
      return Launch(KernelFor(kernel), params);
  }
}

void DeviceArithmetic::Sum(Kernel kernel, kernels::SumParams params) {
  params.tile_sums = reinterpret_cast<kernels::TileSum*>(tiles_.data());
  Launch(KernelFor(kernel), &params);
  Launch(kernels::cuda::Kernel::kFinishSum, &params);
}

void DeviceArithmetic::Lamb(Kernel kernel, kernels::LambParams params) {
  params.tiles = reinterpret_cast<kernels::LambTile*>(tiles_.data());
  Launch(KernelFor(kernel), &params);
  Launch(kernels::cuda::Kernel::kFinishLamb, &params);
}

// Counts in device memory, because not every device can add atomically to pinned memory.
void DeviceArithmetic::CountNonzero(kernels::MaskParams params) {
  unsigned long long* const result = std::exchange(params.set_bits, &words()->set_bits);
  Clear(params.set_bits, sizeof(*params.set_bits));
  Launch(KernelFor(Kernel::kMaskOfNonzero), &params);
  Copy(result, params.set_bits, sizeof(*result));
}

}  // namespace onebit::optim
