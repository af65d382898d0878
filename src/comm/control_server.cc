// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/control_server.h"

#include <sodium.h>
#include <sys/resource.h>

#include <algorithm>
#include <memory>
#include <thread>

namespace onebit {
namespace {

// The time for telling ranks why, and for the next to come.
constexpr std::chrono::milliseconds kAnswers{1000};
constexpr std::chrono::milliseconds kQuiet{300};
constexpr std::chrono::milliseconds kLook{5};

uint64_t RandomCommId() {
  uint64_t id;
  randombytes_buf(&id, sizeof(id));
  return id;
}

}  // namespace

ControlServer::ControlServer(Options options)
    : options_(std::move(options)),
      hub_(options_.process, RandomCommId(), *this, options_.job),
      door_(*this, *this,
            {.key = options_.key,
             .most_message_bytes = kMostRankMessageBytes,
             .handshake_timeout = options_.handshake_timeout}) {}

Result<SocketAddress> ControlServer::Start(Options options) {
  ONEBIT_ASSIGN_OR_RETURN(Descriptor listener, Listen(options.address));
  ONEBIT_ASSIGN_OR_RETURN(const SocketAddress address, LocalAddress(listener));
  const auto destroy = [](ControlServer* server) { delete server; };
  std::unique_ptr<ControlServer, decltype(destroy)> server(new ControlServer(std::move(options)),
                                                           destroy);
  ControlLoop& loop = ControlLoop::Get();
  std::lock_guard lock(loop.mutex());
  ONEBIT_TRY(loop.Add(server.get()));
  if (Status status = server->door_.Open(std::move(listener)); !status.ok()) {
    loop.Remove(server.get());
    return status;
  }
  Live().push_back(server.get());
  server.release();
  return address;
}

void ControlServer::OnEvent(int fd, uint32_t events) { door_.OnEvent(fd, events); }

Clock::time_point ControlServer::OnTimer(Clock::time_point now) {
  Clock::time_point next = hub_.OnTimer(now);
  if (hub_.is_complete()) CloseListener();
  next = std::min(next, door_.OnTimer(now));
  if (hub_.has_failed() && !failed_at_) failed_at_ = now;
  // While a rank is connected, no timer ends the server; the last rank to leave does.
  if (hub_.present() == 0) next = std::min(next, End());
  return next;
}

void ControlServer::OnOutOfMemory() {
  door_.DropAll();
  is_retired_ = true;
}

std::vector<ControlServer*>& ControlServer::Live() {
  static auto* live = new std::vector<ControlServer*>;  // never destroyed, like the loop
  return *live;
}

void ControlServer::RetireFailed() {
  ControlLoop& loop = ControlLoop::Get();
  std::lock_guard lock(loop.mutex());
  for (ControlServer* server : Live()) {
    // In a forked child those of the parent are still in the list.
    if (!server->origin_.is_here()) continue;
    if (!server->hub_.has_failed() || server->hub_.is_complete()) continue;
    server->CloseListener();
    server->is_retired_ = true;
    loop.Wake();
  }
}

void ControlServer::AnswerWaiting() {
  const auto end = Clock::now() + kAnswers;
  // Ranks that were refused, or turned away by a full port, come again after a pause.
  for (auto quiet_since = Clock::now();
       Clock::now() < end && Clock::now() < quiet_since + kQuiet;) {
    {
      std::lock_guard lock(ControlLoop::Get().mutex());
      const auto owes = [](const ControlServer* server) {
        return server->origin_.is_here() && server->owes_answers_;
      };
      if (std::ranges::none_of(Live(), owes)) return;
      const bool is_quiet = std::ranges::none_of(Live(), [&](const ControlServer* server) {
        return owes(server) && !server->door_.IsQuiet();
      });
      if (!is_quiet) quiet_since = Clock::now();
    }
    std::this_thread::sleep_for(kLook);
  }
}

// Ranks that have joined need not wait in vain for those that cannot.
void ControlServer::OnShortage() {
  if (hub_.present() == 0) return;
  owes_answers_ = true;
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  hub_.Fail(Error(Code::kSystemError,
                  "process {}, which lets the ranks in, has too few file descriptors left for all "
                  "of them: raise ulimit -n there (now {})",
                  options_.process, limit.rlim_cur));
}

bool ControlServer::is_over() const {
  if (is_retired_) return true;
  if (hub_.is_over()) return true;
  return hub_.present() == 0 && Clock::now() >= End();
}

Clock::time_point ControlServer::End() const {
  if (failed_at_) return *failed_at_ + options_.failure_linger;
  if (options_.first_rank_timeout.count() == 0) return Clock::time_point::max();
  return started_ + options_.first_rank_timeout;
}

void ControlServer::Retire() {
  CloseListener();
  std::erase(Live(), this);
  delete this;
}

void ControlServer::Send(uint64_t link, const HubMessage& message) {
  door_.Send(link, Encode(message));
}

void ControlServer::Close(uint64_t link) { door_.CloseLink(link); }

Status ControlServer::OnLinkMessage(uint64_t link, const Bytes& bytes) {
  ONEBIT_ASSIGN_OR_RETURN(const RankMessage message, DecodeRankMessage(bytes));
  hub_.OnMessage(link, message, Clock::now());
  return OkStatus();
}

void ControlServer::OnLinkGone(uint64_t link, std::string_view why) { hub_.OnGone(link, why); }

// Nobody can connect after this.
void ControlServer::CloseListener() {
  if (!door_.is_open()) return;
  door_.Close();
  if (options_.on_closed) options_.on_closed();
}

}  // namespace onebit
