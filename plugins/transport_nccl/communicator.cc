// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Use of a communicator, and its errors.
#include "plugins/transport_nccl/communicator.h"

#include <cstdio>
#include <utility>

#include "wait/backoff.h"

namespace onebit::nccl {

Communicator::Communicator(const Context& context, DeviceBinding binding, int rank, int ranks)
    : context_(context),
      api_(context.api()),
      binding_(std::move(binding)),
      rank_(rank),
      ranks_(ranks) {}

void Communicator::Join(CommHandle handle, uint64_t timeout_ms) {
  is_joined_ = true;
  timeout_ms_ = timeout_ms;
  handle_.store(handle, std::memory_order_release);
}

void Communicator::ReleaseLock() {
  if (lock_.Unlock()) return;
  EndAborted();
  lock_.UnlockAborted();
}

int Communicator::Await(CommHandle handle, uint64_t timeout_ms,
                        const Interruption& interruption) const {
  int state = kInProgress;
  PollUntil(
      DeadlineAfter(timeout_ms),
      [&] {
        const int code = api_.CommGetAsyncError(handle, &state);
        if (code != kSuccess) state = code;
        return code != kSuccess || state != kInProgress;
      },
      [&] { return lock_.is_aborted() || interruption() != onebitSuccess; });
  return state;
}

void Communicator::NoteCapture(onebitStream_t stream) {
  // The application destroys a joined communicator itself, and knows its graphs. The legacy stream
  // is never captured.
  if (has_captured_ || is_joined_ || stream == nullptr) return;
  // A stream that cannot tell accepts no work either.
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  has_captured_ = binding_.driver->cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
                  status != CU_STREAM_CAPTURE_STATUS_NONE;
}

onebitResult_t Communicator::Finish(const char* what, int result,
                                    const Interruption& interruption) {
  if (result == kSuccess) return onebitSuccess;
  // An abort that stopped waiting for us has freed the handle.
  if (result == kInProgress && !lock_.is_aborted()) {
    result = Await(handle_.load(std::memory_order_relaxed), timeout_ms_, interruption);
    if (result == kSuccess) return onebitSuccess;
  }
  if (lock_.is_aborted()) return onebitAborted;
  if (result == kInProgress) {
    if (const onebitResult_t other = interruption(); other != onebitSuccess) {
      return Fail(other, std::string(what) +
                             " was given up: another communicator of the group "
                             "failed or was aborted");
    }
    return Fail(onebitTimeout, std::string(what) + " was not on the stream within " +
                                   std::to_string(timeout_ms_) + " ms: a peer did not connect");
  }
  return Fail(ResultOf(result), std::string(what) + " failed: " + api_.Explain(result));
}

onebitResult_t Communicator::Fail(onebitResult_t result, const std::string& text) {
  Keep(result, text);
  context_.Warn("rank %d: %s", rank_, text.c_str());
  return result;
}

void Communicator::Keep(onebitResult_t result, const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (failure_.load(std::memory_order_relaxed) != onebitSuccess) return;
  failure_text_ = text;
  failure_.store(result, std::memory_order_release);
}

void Communicator::PollAsyncError() {
  CommHandle handle = handle_.load(std::memory_order_relaxed);
  if (handle == nullptr) return;
  int state = kSuccess;
  const int code = api_.CommGetAsyncError(handle, &state);
  if (code != kSuccess) state = code;
  if (state == kSuccess || state == kInProgress) return;
  Keep(ResultOf(state), "NCCL reports: " + api_.Explain(state));
}

onebitResult_t Communicator::AsyncError(char* text, size_t capacity) {
  if (failure_.load(std::memory_order_acquire) == onebitSuccess && !lock_.is_aborted() &&
      lock_.TryLock()) {
    if (!lock_.is_aborted()) PollAsyncError();
    ReleaseLock();
  }
  // Queried with every call: without an error there is no text, so the lock is not needed.
  if (failure_.load(std::memory_order_acquire) == onebitSuccess && !lock_.is_aborted()) {
    if (capacity != 0) *text = '\0';
    return onebitSuccess;
  }
  const std::lock_guard lock(mutex_);
  const bool is_over = lock_.is_aborted();
  const bool has_text = !is_over || !failure_text_.empty();
  std::snprintf(text, capacity, "%s", has_text ? failure_text_.c_str() : "aborted");
  return is_over ? onebitAborted : failure_.load(std::memory_order_relaxed);
}

}  // namespace onebit::nccl
