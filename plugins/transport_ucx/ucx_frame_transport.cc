// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Construction and destruction of a frame transport, its frames, and its sleep.
#include "plugins/transport_ucx/ucx_frame_transport.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <mutex>
#include <utility>

#include "plugins/transport_ucx/ucx_process.h"

namespace onebit::ucx {
namespace {

// UCX delivers active messages without their sender.
constexpr int kUnknownPeer = -1;

constexpr uint64_t kNsPerSecond = 1'000'000'000;
// UCX has no event for free capacity in the memory that a peer shares. A sender that waits for it
// polls at this interval.
constexpr uint64_t kLookAgainNs = 50'000;
constexpr int kTriesToArm = 3;

}  // namespace

UcxFrameTransport::UcxFrameTransport(Context* context, const onebitTransportCommInfo& info)
    : FrameTransport(info), context_(context) {
  context_->AddEndpoint();
}

onebitResult_t UcxFrameTransport::Create(Context* context, const onebitTransportCommInfo& info,
                                         std::unique_ptr<UcxFrameTransport>* frames) {
  if (!HasDescriptorsForUcx()) return context->NoDescriptors();
  std::unique_ptr<UcxFrameTransport> created(new UcxFrameTransport(context, info));
  const LogScope scope(context->host());
  created->abort_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (created->abort_fd_ < 0) {
    context->Warn("no descriptor for an endpoint: %s", std::strerror(errno));
    return onebitSystemError;
  }
  const ucp_context_h ucp = context->UcpFor(info);
  if (ucp == nullptr) return onebitSystemError;
  const onebitResult_t result =
      Worker::Create(*context, ucp, OnArrival, OnGreeting, created.get(), &created->worker_);
  if (result == onebitSuccess) *frames = std::move(created);
  return result;
}

UcxFrameTransport::~UcxFrameTransport() {
  if (worker_ != nullptr) {
    const LogScope scope(context_->host());
    if (worker_->Close(links_, *context_)) {
      // Sends that end with the worker return their slots, so it must be destroyed before the
      // pools.
      worker_.reset();
    } else {
      Park();
    }
  }
  if (abort_fd_ >= 0) close(abort_fd_);
  context_->RemoveEndpoint();
}

// A worker that must not be destroyed stays until the process ends, with all that it uses.
void UcxFrameTransport::Park() {
  struct Parked {
    std::unique_ptr<Worker> worker;
    std::vector<UcxLink> links;
    Staging short_frames;
    Staging pieces;
  };
  static std::mutex mutex;
  static auto* const parked = new std::vector<Parked>;  // checkers of leaks find all of it
  const std::lock_guard lock(mutex);
  parked->push_back({.worker = std::move(worker_),
                     .links = std::move(links_),
                     .short_frames = std::move(short_frames_),
                     .pieces = std::move(pieces_)});
  context_->KeepUcp();
}

void UcxFrameTransport::OnArrival(void* argument, const void* header, size_t header_bytes,
                                  const void* payload, size_t payload_bytes) {
  static_cast<UcxFrameTransport*>(argument)->sink_.OnFrame(kUnknownPeer, header, header_bytes,
                                                           payload, payload_bytes);
}

void UcxFrameTransport::OnGreeting(void* argument, uint32_t rank) {
  auto& links = static_cast<UcxFrameTransport*>(argument)->links_;
  if (rank < links.size()) links[rank].is_heard = true;
}

// Goes on with the opening of a link. kYes: its first frame may be sent.
plugin::Sent UcxFrameTransport::Open(UcxLink* link) {
  if (link->opening == Opening::kConnecting) {
    const plugin::Sent greeted = Worker::Greet(link, static_cast<uint32_t>(rank_));
    if (greeted != plugin::Sent::kYes) return greeted;
  }
  return link->is_heard ? plugin::Sent::kYes : plugin::Sent::kNoRoom;
}

plugin::Sent UcxFrameTransport::Send(int rank, onebitFrameKind kind,
                                     std::span<const std::byte> header,
                                     std::span<const std::byte> payload) {
  const LogScope scope(context_->host());
  UcxLink& link = links_[static_cast<size_t>(rank)];
  if (link.opening != Opening::kDone) {
    const plugin::Sent opened = Open(&link);
    if (opened != plugin::Sent::kYes) return opened;
  }
  return Worker::Send(&link, header, payload, kind == onebitFrameLong ? pieces_ : short_frames_);
}

bool UcxFrameTransport::Progress() {
  const LogScope scope(context_->host());
  return worker_->Progress();
}

// Sleeps until UCX has something to do, an abort, or the time-out.
void UcxFrameTransport::Sleep(uint64_t timeout_ns) {
  const LogScope scope(context_->host());
  pollfd fds[] = {{.fd = abort_fd_, .events = POLLIN, .revents = 0},
                  {.fd = worker_->wake_fd(), .events = POLLIN, .revents = 0}};
  nfds_t count = 2;
  // Arm refuses if anything arrived since the last progress, so no event is missed. Over shared
  // memory the first refusal may be due to an event that is over, so Arm is called again.
  bool is_armed = worker_->Arm();
  for (int tries = 0; !is_armed && tries < kTriesToArm; ++tries) {
    if (worker_->Progress()) return;
    is_armed = worker_->Arm();
  }
  // Verbs raise no event for what came before they were armed and after the last look.
  if (is_armed && worker_->Progress()) return;
  if (!is_armed) {
    timeout_ns = std::min(timeout_ns, kLookAgainNs);
    count = 1;
  }
  const timespec timeout{.tv_sec = static_cast<time_t>(timeout_ns / kNsPerSecond),
                         .tv_nsec = static_cast<long>(timeout_ns % kNsPerSecond)};
  ppoll(fds, count, &timeout, nullptr);
}

onebitResult_t UcxFrameTransport::Abort() {
  MarkAborted();
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(abort_fd_, &one, sizeof one);
  return onebitSuccess;
}

// UCX calls a send done when it has copied it. A flush hands it to the operating system.
void UcxFrameTransport::StartFlush() {
  const LogScope scope(context_->host());
  worker_->StartFlush();
}

bool UcxFrameTransport::is_flushed() const { return worker_->is_flushed(); }

}  // namespace onebit::ucx
