// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/nccl/clique_hub.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/nccl/cuda_calls.h"
#include "tests/support/nccl/frame_link.h"
#include "tests/support/nccl/hub_frames.h"
#include "tests/support/nccl/run_operation.h"
#include "tests/support/nccl/stand_in_comm.h"
#include "tests/support/nccl/unique_ids.h"

namespace onebit::testing::nccl {
namespace {

// For guests that wait for their last result.
constexpr std::chrono::seconds kWaitAtExit{1};
// Where this process has ended its own communicators: guests may have calls to make among them.
constexpr std::chrono::seconds kWaitAfterEnds{10};

// A rank of another process. Its threads run until its link ends.
struct Guest {
  FrameLink link;
  std::shared_ptr<Comm> comm = std::make_shared<Comm>();  // stands for the rank; has no handle
};

std::mutex guests_mutex;  // guards guest_count
int guest_count = 0;
// Never destroyed, because threads may outlive main.
auto& guest_left = *new std::condition_variable;
pid_t hub_process = -1;

void CountGuests(int more) {
  const std::lock_guard lock(guests_mutex);
  guest_count += more;
  guest_left.notify_all();
}

void AwaitGuestsAtExit() {
  if (getpid() != hub_process) return;  // a child by fork has none of the threads
  const auto longest = Handles().empty() ? kWaitAfterEnds : kWaitAtExit;
  std::unique_lock lock(guests_mutex);
  guest_left.wait_for(lock, longest, [] { return guest_count == 0; });
}

// Sends the state of the clique whenever it has changed.
void ReportState(const std::shared_ptr<Guest>& guest) {
  Comm& comm = *guest->comm;
  std::vector<std::byte> sent;
  std::unique_lock lock(comm.clique->mutex);
  while (!comm.member().is_ended) {
    Packer state;
    PackState(*comm.clique, comm.rank, &state);
    if (state.bytes() == sent) {
      comm.clique->changed.wait(lock);
      continue;
    }
    sent = state.bytes();
    lock.unlock();
    guest->link.Send(FrameKind::kState, 0, {sent});
    lock.lock();
  }
}

void RunForGuest(const std::shared_ptr<Guest>& guest, Frame request) {
  AllowDeviceMemory();  // of ranks of this process
  const uint64_t number = request.number;
  const auto received = ReadOperation(std::move(request), guest->comm);
  if (!RunNow(&received->operation)) return;
  guest->link.Send(FrameKind::kResult, number, {{received->outputs.get(), received->output_bytes}});
}

// Returns an empty text, or why the rank cannot join.
std::string Admit(const Frame& frame, Comm* comm) {
  const auto request = Unpacker(frame.span()).Take<JoinRequest>();
  comm->clique = CliqueOf(request.clique, request.ranks);
  comm->rank = request.rank;
  comm->device = request.device;
  if (comm->clique == nullptr) return "the unique id is wrong";
  const std::lock_guard lock(comm->clique->mutex);
  return comm->clique->Enter(request.rank, request.device) ? "" : "the rank has come already";
}

void ObeyGuest(const std::shared_ptr<Guest>& guest) {
  Comm& comm = *guest->comm;
  Frame frame;
  while (guest->link.Receive(&frame)) {
    if (frame.kind == FrameKind::kOperation) {
      // Operations on different streams run at once.
      std::thread(RunForGuest, guest, std::move(frame)).detach();
      continue;
    }
    const std::lock_guard lock(comm.clique->mutex);
    AddConnections(frame.span(), &comm.member());
    comm.clique->changed.notify_all();
  }
  const std::lock_guard lock(comm.clique->mutex);
  comm.member().is_ended = true;
  comm.clique->changed.notify_all();
}

void ServeGuest(const std::shared_ptr<Guest>& guest) {
  Frame frame;
  if (guest->link.Receive(&frame)) {
    const std::string refusal = Admit(frame, guest->comm.get());
    const FrameKind answer = refusal.empty() ? FrameKind::kWelcome : FrameKind::kRefusal;
    guest->link.Send(answer, 0, {std::as_bytes(std::span(refusal))});
    if (refusal.empty()) {
      std::thread(ReportState, guest).detach();
      ObeyGuest(guest);
    }
  }
  CountGuests(-1);
}

void AcceptGuests(const FrameLink& listener) {
  for (;;) {
    const auto guest = std::make_shared<Guest>();
    if (!guest->link.Accept(listener)) return;
    CountGuests(1);
    std::thread(ServeGuest, guest).detach();
  }
}

std::string StartHub() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  std::string name = "onebit-nccl-" + std::to_string(getpid()) + "-" + std::to_string(now.count());
  auto* const listener = new FrameLink;  // until the process ends
  if (!listener->Listen(name)) return "";
  hub_process = getpid();
  std::atexit(AwaitGuestsAtExit);
  std::thread([listener] { AcceptGuests(*listener); }).detach();
  return name;
}

}  // namespace

const std::string& HubName() {
  static const auto& name = *new std::string(StartHub());
  return name;
}

}  // namespace onebit::testing::nccl
