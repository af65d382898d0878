// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/nccl/remote_clique.h"

#include <thread>
#include <utility>

#include "tests/support/nccl/hub_frames.h"

namespace onebit::testing::nccl {

std::shared_ptr<RemoteClique> RemoteClique::Join(const IdContent& id, int ranks, int rank,
                                                 int device, std::string* error) {
  std::shared_ptr<RemoteClique> joined(new RemoteClique(ranks, rank));
  if (!joined->AskToJoin(id, device, error)) return nullptr;
  std::thread([joined] { joined->ReceiveAll(); }).detach();
  return joined;
}

bool RemoteClique::AskToJoin(const IdContent& id, int device, std::string* error) {
  *error = "the process that made the unique id does not answer";
  const JoinRequest request{
      .clique = id.number, .ranks = mirror_->ranks, .rank = rank_, .device = device};
  Frame answer;
  if (!link_.Connect(id.hub) ||
      !link_.Send(FrameKind::kJoin, 0, {std::as_bytes(std::span(&request, 1))}) ||
      !link_.Receive(&answer)) {
    return false;
  }
  if (answer.kind == FrameKind::kRefusal) *error = Unpacker(answer.span()).RestAsText();
  const std::lock_guard lock(mirror_->mutex);
  return answer.kind == FrameKind::kWelcome && mirror_->Enter(rank_, device);
}

void RemoteClique::SendConnections() {
  Packer packer;
  {
    const std::lock_guard lock(mirror_->mutex);
    PackConnections(mirror_->members[static_cast<size_t>(rank_)], &packer);
  }
  link_.Send(FrameKind::kConnections, 0, {packer.bytes()});
}

void RemoteClique::Run(const Operation& operation, std::unique_lock<std::mutex>* lock) {
  const Member& member = mirror_->members[static_cast<size_t>(rank_)];
  const uint64_t number = next_operation_++;
  lock->unlock();
  SendOperation(operation, number, &link_);
  lock->lock();
  mirror_->changed.wait(*lock, [&] { return member.is_ended || results_.contains(number); });
  const auto result = results_.extract(number);
  if (!result.empty()) WriteOutputs(result.mapped().span(), operation);
}

void RemoteClique::ReceiveAll() {
  Frame frame;
  while (link_.Receive(&frame)) {
    const std::lock_guard lock(mirror_->mutex);
    if (frame.kind == FrameKind::kState) {
      ApplyState(frame.span(), rank_, mirror_.get());
    } else if (frame.kind == FrameKind::kResult) {
      results_[frame.number] = std::move(frame);
    }
    mirror_->changed.notify_all();
  }
}

}  // namespace onebit::testing::nccl
