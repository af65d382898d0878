// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "exec/stream_compute.h"

#include <atomic>
#include <utility>
#include <vector>

#include "base/guard.h"
#include "wait/backoff.h"

namespace onebit {

Result<std::unique_ptr<StreamCompute>> StreamCompute::Create(const Devices& devices, int device,
                                                             const HostMap& hosts) {
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(devices, device));
  std::unique_ptr<StreamCompute> compute(new StreamCompute(devices, device));
  const MemoryLocation location{MemoryKind::kDevice, device};
  const size_t bytes = sizeof(Words) + 2 * size_t{hosts.ranks()} * sizeof(uint64_t);
  ONEBIT_ASSIGN_OR_RETURN(compute->words_,
                          Memory::Create(location, &devices, bytes, "call numbers"));
  const std::vector<float> sizes = hosts.Sizes();
  const size_t size_bytes = sizes.size() * sizeof(float);
  ONEBIT_ASSIGN_OR_RETURN(compute->host_sizes_,
                          Memory::Create(location, &devices, size_bytes, "ranks on each host"));
  ONEBIT_TRY(CopyNow(devices, device, compute->host_sizes_.data(), sizes.data(), size_bytes));
  ONEBIT_ASSIGN_OR_RETURN(
      compute->report_,
      Memory::CreatePinned(devices, device, sizeof(KernelReport), "an account of calls"));
  ONEBIT_ASSIGN_OR_RETURN(compute->last_, DeviceEvent::Create(devices));
  ONEBIT_ASSIGN_OR_RETURN(compute->fills_, DeviceFills::Share(devices, device));
  return compute;
}

size_t StreamCompute::SumBytesFor(const Plan& plan, size_t tensor_elements) const {
  return TileSumsFor(plan, tensor_elements) * sizeof(kernels::TileSum);
}

Status StreamCompute::ReserveSums(size_t bytes) {
  return tile_sums_.Reserve(bytes, [this](size_t grown) {
    return Memory::CreateOrdered({MemoryKind::kDevice, device_}, &devices_, grown, "partial sums");
  });
}

// A call that keeps one generation of its residuals may have to reset both of them, besides filling
// its output.
size_t StreamCompute::ListBytesFor(size_t calls, size_t messages) {
  constexpr size_t kMostSpans = 3;
  if (kMostSpans * calls <= kernels::cuda::kMaxPieces) return 0;  // parameters suffice
  return calls * (kMostSpans * sizeof(kernels::cuda::FillSpan) + sizeof(kernels::cuda::EndedCall)) +
         messages * sizeof(kernels::cuda::CallMessages);
}

Status StreamCompute::Begin(onebitStream_t stream) {
  stream_ = stream;
  steps_.Begin(stream, reinterpret_cast<kernels::TileSum*>(tile_sums_.data()), host_sizes());
  ONEBIT_ASSIGN_OR_RETURN(is_capturing_, devices_.IsCapturing(stream));
  lists_.Begin(stream, is_capturing_);
  ONEBIT_TRY(DeviceFills::Order(device_, stream));
  return is_capturing_ || !has_last_ ? OkStatus() : devices_.Wait(stream, last_.get());
}

Status StreamCompute::BeginCall(const FaultWords& faults) {
  return devices_.Copy(faults.faults, &words()->halted, sizeof(uint32_t), stream_);
}

void StreamCompute::EndCall(const Call& call, const FaultWords& faults, bool counts_sequence) {
  steps_.AddEnd(call, faults,
                {.sequence = counts_sequence ? SequenceOf(call.plan->key) : nullptr,
                 .halted = &words()->halted,
                 .nonfinite_calls = &report()->nonfinite_calls});
}

Status StreamCompute::End() {
  ONEBIT_TRY(steps_.EnqueueEnds());
  if (is_capturing_) return OkStatus();
  has_last_ = true;
  return devices_.Record(last_.get(), stream_);
}

void StreamCompute::Halt(onebitStream_t stream) {
  const auto scope = DeviceScope::Enter(devices_, device_);
  if (!scope.ok()) return;
  const auto is_capturing = devices_.IsCapturing(stream);
  if (!is_capturing.ok() || is_capturing.value()) return;
  // Waits, so that earlier calls are not halted. A device that refuses this runs no later calls
  // either.
  if (has_last_ && !devices_.Wait(stream, last_.get()).ok()) return;
  static_cast<void>(devices_.Fill(&words()->halted, kernels::cuda::kHalted, 1, stream));
  // Dropped calls may already use the working memory.
  if (devices_.Record(last_.get(), stream).ok()) has_last_ = true;
}

uint64_t StreamCompute::nonfinite_calls() const {
  return std::atomic_ref(report()->nonfinite_calls).load(std::memory_order_relaxed);
}

Result<bool> StreamCompute::IsIdle() const {
  if (!has_last_) return true;
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(devices_, device_));
  return devices_.IsDone(last_.get());
}

Status StreamCompute::WatchDevice(Comm& comm) {
  const auto look = [this, &comm]() noexcept {
    if (comm.is_stopped()) return;
    const auto is_idle = IsIdle();
    if (is_idle.ok()) return;
    static_cast<void>(comm.Fail(CatchNoMemory([&]() -> Status {
      return Error(is_idle.status().code(), "rank {}: {}", comm.rank(), is_idle.status().text());
    })));
  };
  ONEBIT_ASSIGN_OR_RETURN(watch_, StreamWatch::Start(look));
  return OkStatus();
}

// Once the communicator is stopped nothing holds streams up any more, so they end soon.
Status StreamCompute::AwaitAll(Comm& comm) const {
  const auto begin = std::chrono::steady_clock::now();
  const std::chrono::milliseconds timeout(comm.options().timeout_ms);
  constexpr std::chrono::milliseconds kTimeToStop{5000};
  for (Backoff backoff;; backoff.Pause()) {
    ONEBIT_ASSIGN_OR_RETURN(const bool is_idle, IsIdle());
    if (is_idle) return OkStatus();
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (comm.is_stopped() && waited > kTimeToStop) return comm.FindFailure();
    if (waited > timeout) {
      return Error(Code::kTimeout, "rank {}: calls on a stream have not finished after {:.1f} s",
                   comm.rank(), std::chrono::duration<double>(timeout).count());
    }
  }
}

bool StreamCompute::IsIdleWithin(std::chrono::milliseconds limit) const {
  return PollUntil(std::chrono::steady_clock::now() + limit, [this] {
    const auto is_idle = IsIdle();
    return !is_idle.ok() || is_idle.value();  // a broken device runs nothing
  });
}

StreamCompute::Blocks StreamCompute::TakeMemory() {
  return {std::move(words_), std::move(host_sizes_), std::move(report_), std::move(tile_sums_),
          lists_.TakeMemory()};
}

void StreamCompute::LeakMemory() {
  static_cast<void>(words_.Release());
  static_cast<void>(host_sizes_.Release());
  static_cast<void>(report_.Release());
  tile_sums_.Release();
  lists_.LeakMemory();
}

}  // namespace onebit
