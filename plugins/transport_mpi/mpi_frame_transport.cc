// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Frames over MPI, and a sleep that polls because MPI has no events.
#include "plugins/transport_mpi/mpi_frame_transport.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "plugins/transport_mpi/mpi_process.h"

namespace onebit::mpi {
namespace {

constexpr uint64_t kShortestPauseNs = 20'000;
constexpr uint64_t kLongestPauseNs = 1'000'000;
// Each step of an MPI collective needs progress on this rank.
constexpr uint64_t kLongestPauseInCollectiveNs = 100'000;
constexpr int kShortSleeps = 50;

std::shared_ptr<Group> GroupOf(const onebitTransportCommInfo& info) {
  return info.group == nullptr ? nullptr : *static_cast<std::shared_ptr<Group>*>(info.group);
}

}  // namespace

MpiFrameTransport::MpiFrameTransport(Context* context, const onebitTransportCommInfo& info)
    : FrameTransport(info), context_(context), group_(GroupOf(info)), pause_ns_(kShortestPauseNs) {
  context_->AddEndpoint();
}

// Operations that MPI has not finished go on without us.
MpiFrameTransport::~MpiFrameTransport() {
  context_->RemoveEndpoint();
  if (channel_ == nullptr) return;
  CancelAllreduce();
  MpiProcess& process = MpiProcess::Get();
  if (process.IsUsableHere()) {
    channel_->StartEnd();
  } else {
    process.SetBroken();
  }
  process.Park(std::move(channel_));
  process.PollParked();
}

plugin::Sent MpiFrameTransport::Send(int rank, onebitFrameKind kind,
                                     std::span<const std::byte> header,
                                     std::span<const std::byte> payload) {
  if (!MpiProcess::Get().IsUsableHere()) return plugin::Sent::kNoRoom;
  const plugin::Sent sent = channel_->Send(rank, kind, header, payload);
  if (sent == plugin::Sent::kYes) HasMoved();
  if (sent == plugin::Sent::kFailed) has_losses_ |= channel_->TakeLosses();
  return sent;
}

bool MpiFrameTransport::Progress() {
  if (!MpiProcess::Get().IsUsableHere()) return false;
  const bool has_moved = channel_->Progress(&sink_);
  has_losses_ |= channel_->TakeLosses();
  if (has_moved) HasMoved();
  return has_moved;
}

// Sleeps ever longer while nothing arrives, after some short sleeps: a frame that MPI moves in
// parts needs progress at both ends several times before either sees that something has moved.
void MpiFrameTransport::Sleep(uint64_t timeout_ns) {
  if (is_aborted()) return;
  const uint64_t longest_ns =
      channel_->native().is_in_mpi() ? kLongestPauseInCollectiveNs : kLongestPauseNs;
  const uint64_t pause_ns = std::min({timeout_ns, pause_ns_, longest_ns});
  std::this_thread::sleep_for(std::chrono::nanoseconds(pause_ns));
  if (++idle_sleeps_ > kShortSleeps) pause_ns_ = std::min(pause_ns_ * 2, kLongestPauseNs);
}

void MpiFrameTransport::HasMoved() {
  pause_ns_ = kShortestPauseNs;
  idle_sleeps_ = 0;
}

onebitResult_t MpiFrameTransport::CheckThread() const {
  return MpiProcess::Get().CheckThread(*context_);
}

bool MpiFrameTransport::CanSendFromAnyThread() const {
  return MpiProcess::Get().is_multiple() && MpiProcess::Get().IsUsableHere();
}

onebitResult_t MpiFrameTransport::Abort() {
  MarkAborted();
  return onebitSuccess;
}

onebitResult_t MpiFrameTransport::StartAllreduce(const void* send, void* recv, size_t count,
                                                 onebitDataType_t type, onebitRedOp_t op) {
  if (type != onebitFloat32 || (op != onebitSum && op != onebitAvg) ||
      ((send == nullptr || recv == nullptr) && count != 0)) {
    return onebitInvalidArgument;
  }
  if (context_->options().native_dense == 0) return onebitInvalidUsage;
  const bool has_started =
      channel_->native().Start({.comm = channel_->comm(),
                                .send = static_cast<const float*>(send),
                                .recv = static_cast<float*>(recv),
                                .count = count,
                                .divisor = op == onebitAvg ? static_cast<float>(nranks_) : 1.0f});
  return has_started ? onebitSuccess : onebitInProgress;
}

onebitResult_t MpiFrameTransport::TestAllreduce(size_t* bytes_done) {
  const NativeAllreduce& native = channel_->native();
  *bytes_done = native.finished() * sizeof(float);
  if (native.code() == MPI_SUCCESS) return onebitSuccess;
  context_->Warn("MPI_Iallreduce failed: %s", ErrorText(native.code()).c_str());
  return onebitSystemError;
}

void MpiFrameTransport::CancelAllreduce() {
  if (channel_ != nullptr) channel_->native().Cancel();
}

}  // namespace onebit::mpi
