// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/device_arithmetic.h"

#include <algorithm>
#include <vector>

#include "device/await.h"
#include "kernels/reference/elements.h"
#include "optim/api_status.h"
#include "optim/host_arithmetic.h"

namespace onebit::optim {
namespace {

using kernels::DataType;
using kernels::cuda::Kernel;

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
  constexpr size_t kTileBytes =
      std::max(sizeof(kernels::cuda::TileSum), sizeof(kernels::cuda::LambTile));
  const size_t tiles = kernels::BlockCount(count, kernels::kTensorSumBlock);
  ONEBIT_ASSIGN_OR_RETURN(made->tiles_, made->Allocate(tiles * kTileBytes, "partial sums"));
  return std::unique_ptr<Arithmetic>(std::move(made));
}

DeviceArithmetic::~DeviceArithmetic() { Settle(); }

void DeviceArithmetic::Settle() {
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
                 "stream is being captured, but an optimizer's step waits on the host for what "
                 "ranks agree on, which a graph cannot: capture what is before and behind it");
  }
  // One name may be another stream on every thread, so this is not left out where it is the same.
  if (has_last_) ONEBIT_TRY(devices_.Wait(stream, last_.get()));
  failure_ = OkStatus();
  stream_ = stream;
  scope_.emplace(std::move(scope));
  return OkStatus();
}

void DeviceArithmetic::End() {
  if (!scope_) return;
  // A device that cannot even do this refuses all that would have to wait for it, too.
  has_last_ = devices_.Record(last_.get(), stream_).ok() || has_last_;
  scope_.reset();
}

Status DeviceArithmetic::Await(onebitComm_t comm) {
  if (failure_.ok()) failure_ = devices_.Record(awaited_.get(), stream_);
  ONEBIT_TRY(failure_);
  return AwaitEvent(devices_, awaited_,
                    [comm] { return comm == nullptr ? OkStatus() : FailureOf(comm); });
}

void DeviceArithmetic::Launch(Kernel kernel, const void* params) {
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
  kernels::cuda::CopyParams params;
  params.input = params.output = v;
  params.mask = mask;
  params.verdict = &words()->verdict;  // of no interest
  params.list.count = 1;
  params.list.tiles = static_cast<uint32_t>(kernels::BlockCount(count, kernels::kTensorSumBlock));
  params.list.pieces[0].count = count;
  Launch(Kernel::kCopy, &params);
}

// By the host: no kernel does it by itself.
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

void DeviceArithmetic::Sum(Kernel kernel, const void* values, DataType type, size_t count,
                           double* sum) {
  const kernels::cuda::SumParams params = {
      .values = values,
      .type = type,
      .count = count,
      .tile_sums = reinterpret_cast<kernels::cuda::TileSum*>(tiles_.data()),
      .sum = sum};
  Launch(kernel, &params);
  Launch(Kernel::kFinishSum, &params);
}

void DeviceArithmetic::SumOfSquares(const void* values, DataType type, size_t count, double* sum) {
  Sum(Kernel::kSumOfSquares, values, type, count, sum);
}

void DeviceArithmetic::SumOfMagnitudes(const float* values, size_t count, double* sum) {
  Sum(Kernel::kSumOfMagnitudes, values, DataType::kF32, count, sum);
}

// Counted in device memory, where any device can add atomically.
void DeviceArithmetic::MaskOfNonzero(const float* v, size_t count, uint8_t* mask,
                                     uint64_t* set_bits) {
  const kernels::cuda::MaskParams params = {
      .v = v, .count = count, .mask = mask, .set_bits = &words()->set_bits};
  Clear(&words()->set_bits, sizeof(words()->set_bits));
  Launch(Kernel::kMaskOfNonzero, &params);
  static_assert(sizeof(*set_bits) == sizeof(words()->set_bits));
  Copy(set_bits, &words()->set_bits, sizeof(*set_bits));
}

void DeviceArithmetic::AdamDense(const kernels::AdamUpdate& update) {
  Launch(Kernel::kAdamDense, &update);
}

void DeviceArithmetic::AdamFrozen(const kernels::AdamUpdate& update) {
  Launch(Kernel::kAdamFrozen, &update);
}

void DeviceArithmetic::LocalMomentum(const float* m, const void* g, DataType g_type, float g_scale,
                                     float beta1, float one_minus_beta1, const uint8_t* mask,
                                     size_t count, float* out) {
  const kernels::cuda::LocalMomentumParams params = {.m = m,
                                                     .g = g,
                                                     .g_type = g_type,
                                                     .g_scale = g_scale,
                                                     .beta1 = beta1,
                                                     .one_minus_beta1 = one_minus_beta1,
                                                     .mask = mask,
                                                     .count = count,
                                                     .out = out};
  Launch(Kernel::kLocalMomentum, &params);
}

void DeviceArithmetic::Lamb(Kernel kernel, const kernels::LambUpdate& update,
                            kernels::LambNorms* norms) {
  const kernels::cuda::LambParams params = {
      .update = update,
      .tiles = reinterpret_cast<kernels::cuda::LambTile*>(tiles_.data()),
      .norms = norms};
  Launch(kernel, &params);
  Launch(Kernel::kFinishLamb, &params);
}

void DeviceArithmetic::LambDense(const kernels::LambUpdate& update, kernels::LambNorms* norms) {
  Lamb(Kernel::kLambDense, update, norms);
}

void DeviceArithmetic::LambFrozen(const kernels::LambUpdate& update, kernels::LambNorms* norms) {
  Lamb(Kernel::kLambFrozen, update, norms);
}

void DeviceArithmetic::ZeroOneLocal(const kernels::ZeroOneUpdate& update) {
  Launch(Kernel::kZeroOneLocal, &update);
}

void DeviceArithmetic::ZeroOneAccumulate(const kernels::ZeroOneUpdate& update, float* out) {
  const kernels::cuda::ZeroOneAccumulateParams params = {.update = update, .out = out};
  Launch(Kernel::kZeroOneAccumulate, &params);
}

void DeviceArithmetic::ZeroOneSync(const kernels::ZeroOneUpdate& update) {
  Launch(Kernel::kZeroOneSync, &update);
}

void DeviceArithmetic::RefreshVariance(const float* v, const void* input, DataType type,
                                       float input_scale, float beta2, float one_minus_beta2,
                                       size_t count, float* out) {
  const kernels::cuda::RefreshVarianceParams params = {.v = v,
                                                       .input = input,
                                                       .type = type,
                                                       .input_scale = input_scale,
                                                       .beta2 = beta2,
                                                       .one_minus_beta2 = one_minus_beta2,
                                                       .count = count,
                                                       .out = out};
  Launch(Kernel::kRefreshVariance, &params);
}

}  // namespace onebit::optim
