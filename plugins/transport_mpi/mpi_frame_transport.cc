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
    : context_(context),
      rank_(info.rank),
      nranks_(info.nranks),
      comm_id_(info.commId),
      group_(GroupOf(info)),
      pause_ns_(kShortestPauseNs) {}

// Operations that MPI has not finished go on without us.
void MpiFrameTransport::Close() {
  if (channel_ == nullptr) return;
  ForgetCallers();
  MpiProcess& process = MpiProcess::Get();
  if (process.IsUsableHere()) {
    channel_->StartEnd();
  } else {
    process.SetBroken();
  }
  process.Park(std::move(channel_));
  process.PollParked();
}

plugin::Sent MpiFrameTransport::Send(int rank, plugin::FrameKind kind,
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
  const bool has_moved = channel_->Progress(sink_);
  has_losses_ |= channel_->TakeLosses();
  if (has_moved) HasMoved();
  return has_moved;
}

// Sleeps ever longer while nothing arrives, after some short sleeps: a frame that MPI moves in
// parts needs progress at both ends several times before either sees that something has moved.
void MpiFrameTransport::Sleep(uint64_t timeout_ns) {
  if (is_interrupted_.load(std::memory_order_relaxed)) return;
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

bool MpiFrameTransport::CanAnnounceAbort() const {
  return MpiProcess::Get().is_multiple() && MpiProcess::Get().IsUsableHere();
}

void MpiFrameTransport::ForgetCallers() {
  if (channel_ != nullptr) channel_->native().Cancel();
}

}  // namespace onebit::mpi
