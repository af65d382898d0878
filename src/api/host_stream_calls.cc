// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Streams of the C API.
#include "api/host_stream_calls.h"

#include <array>
#include <chrono>
#include <memory>
#include <string>

#include "wait/backoff.h"

namespace onebit {
namespace {

// Live handles, in an array of fixed length so that a look-up takes no lock.
constexpr size_t kMostStreams = 1024;
std::array<std::atomic<HostStream*>, kMostStreams> live_streams;

onebitStream_t HandleOf(HostStream* stream) { return reinterpret_cast<onebitStream_t>(stream); }

std::atomic<HostStream*>* FindSlot(const HostStream* stream) {
  for (std::atomic<HostStream*>& slot : live_streams) {
    if (slot.load(std::memory_order_acquire) == stream) return &slot;
  }
  return nullptr;
}

Status Register(HostStream* stream) {
  for (std::atomic<HostStream*>& slot : live_streams) {
    HostStream* none = nullptr;
    if (slot.compare_exchange_strong(none, stream, std::memory_order_acq_rel)) return OkStatus();
  }
  return Error(Code::kSystemError, "{} streams are alive: destroy some of them", kMostStreams);
}

Status Create(onebitStream_t* handle) {
  if (handle == nullptr) return Error(Code::kInvalidArgument, "stream is NULL");
  ONEBIT_ASSIGN_OR_RETURN(std::unique_ptr<HostStream> stream, HostStream::Create());
  ONEBIT_TRY(Register(stream.get()));
  *handle = HandleOf(stream.release());
  return OkStatus();
}

Status Destroy(onebitStream_t handle) {
  auto* const stream = reinterpret_cast<HostStream*>(handle);
  if (stream == nullptr) return OkStatus();
  std::atomic<HostStream*>* const slot = FindSlot(stream);
  if (slot != nullptr && !stream->origin.is_here()) {
    slot->store(nullptr, std::memory_order_release);
    return OkStatus();
  }
  ONEBIT_TRY(FindStream(handle).status());
  if (HostStream::Current() == stream) {
    return Error(Code::kInvalidUsage, "a stream cannot be destroyed by its own thread");
  }
  slot->store(nullptr, std::memory_order_release);
  const std::unique_ptr<HostStream> owned(stream);
  return stream->Synchronize();
}

// True on the stream's own thread, where a host function makes its calls one after the other.
bool IsOwn(const PendingWork& pending) {
  return HostStream::Current() != nullptr &&
         HostStream::Current() == pending.stream.load(std::memory_order_relaxed);
}

Status BeginPendingOf(PendingWork& pending, HostStream* stream, const char* what) {
  if (pending.count.load(std::memory_order_acquire) != 0 &&
      pending.stream.load(std::memory_order_relaxed) != stream) {
    return Error(Code::kInvalidUsage,
                 "calls with this {} are pending on another stream, so their order would be "
                 "undefined: call onebitStreamSynchronize on that one first",
                 what);
  }
  pending.stream.store(stream, std::memory_order_relaxed);
  pending.count.fetch_add(1, std::memory_order_acq_rel);
  return OkStatus();
}

// Once the count is 0 the owner of `pending` may be destroyed.
void EndPendingOf(PendingWork& pending) { pending.count.fetch_sub(1, std::memory_order_acq_rel); }

}  // namespace

Result<HostStream*> FindStream(onebitStream_t handle) {
  auto* const stream = reinterpret_cast<HostStream*>(handle);
  if (stream == nullptr || FindSlot(stream) == nullptr) {
    return Error(Code::kInvalidArgument,
                 "stream was not made by onebitStreamCreate, or was destroyed");
  }
  ONEBIT_TRY(CheckHandle(stream, "stream"));
  return stream;
}

bool IsHostStream(onebitStream_t handle) {
  return handle != nullptr && FindSlot(reinterpret_cast<HostStream*>(handle)) != nullptr;
}

Status CheckNonePending(const PendingWork& pending, const char* what) {
  const uint32_t count = pending.count.load(std::memory_order_acquire);
  if (count == 0 || IsOwn(pending)) return OkStatus();
  return Error(Code::kInvalidUsage,
               "{} calls with this {} are pending on a stream: call onebitStreamSynchronize first",
               count, what);
}

Status AwaitPending(onebitComm_t comm) {
  const PendingWork& pending = comm->pending;
  const auto count = [&] { return pending.count.load(std::memory_order_acquire); };
  if (count() == 0) return OkStatus();
  if (!comm->comm->is_stopped() || IsOwn(pending)) {
    return Error(Code::kInvalidUsage,
                 "{} calls with this communicator are pending on a stream: call "
                 "onebitStreamSynchronize first, or onebitCommAbort to abandon them",
                 count());
  }
  // Each of them fails as soon as it begins.
  PollUntil(kNoDeadline, [&] { return count() == 0; });
  return OkStatus();
}

Result<PendingTicket> PendingTicket::Begin(onebitComm_t comm, onebitCompressor_t compressor,
                                           HostStream* stream) {
  ONEBIT_TRY(BeginPendingOf(comm->pending, stream, "communicator"));
  PendingTicket pending(comm, nullptr);
  if (compressor == nullptr) return pending;
  ONEBIT_TRY(BeginPendingOf(compressor->pending, stream, "compressor"));
  pending.compressor_ = compressor;
  return pending;
}

PendingTicket::~PendingTicket() {
  if (comm_ == nullptr) return;
  if (compressor_ != nullptr) EndPendingOf(compressor_->pending);
  EndPendingOf(comm_->pending);
}

Status CheckNonePending(const ApiCall& call) {
  ONEBIT_TRY(CheckNonePending(call.comm->pending, "communicator"));
  if (call.compressor == nullptr) return OkStatus();
  return CheckNonePending(call.compressor->pending, "compressor");
}

}  // namespace onebit

using onebit::Code;
using onebit::Error;
using onebit::Guard;
using onebit::HostStream;
using onebit::OkStatus;
using onebit::Status;

onebitResult_t onebitStreamCreate(onebitStream_t* stream) {
  return Guard([&] { return onebit::Create(stream); });
}

onebitResult_t onebitStreamDestroy(onebitStream_t stream) {
  return Guard([&] { return onebit::Destroy(stream); });
}

onebitResult_t onebitStreamSynchronize(onebitStream_t stream) {
  return Guard([&]() -> Status {
    ONEBIT_ASSIGN_OR_RETURN(HostStream* const found, onebit::FindStream(stream));
    return found->Synchronize();
  });
}

onebitResult_t onebitStreamQuery(onebitStream_t stream) {
  return Guard([&]() -> Status {
    ONEBIT_ASSIGN_OR_RETURN(HostStream* const found, onebit::FindStream(stream));
    if (!found->is_idle()) return {Code::kInProgress, "calls are pending on the stream"};
    return found->failure();
  });
}

onebitResult_t onebitStreamLaunchHostFunc(onebitStream_t stream, onebitHostFunc_t function,
                                          void* argument) {
  return Guard([&]() -> Status {
    if (function == nullptr) return Error(Code::kInvalidArgument, "function is NULL");
    ONEBIT_ASSIGN_OR_RETURN(HostStream* const found, onebit::FindStream(stream));
    return found->Enqueue(HostStream::AfterFailure::kSkip, [function, argument]() -> Status {
      const onebitResult_t result = function(argument);
      if (result == onebitSuccess) return OkStatus();
      const std::string text = onebit::LastErrorText();
      return Error(static_cast<Code>(result), "a host function failed; {}{}",
                   text.empty() ? "it returned this result without an error text"
                                : "the last error on its thread: ",
                   text);
    });
  });
}
