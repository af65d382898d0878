// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/control_server.h"

#include <poll.h>
#include <sodium.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "base/log.h"

namespace onebit {
namespace {

// The pause after the process ran out of descriptors.
constexpr std::chrono::milliseconds kPause{50};
// The time for which ranks wait for descriptors before the start fails.
constexpr std::chrono::milliseconds kShortage{2000};
// The time for telling ranks why, and for the next to come.
constexpr std::chrono::milliseconds kAnswers{1000};
constexpr std::chrono::milliseconds kQuiet{300};
// Connections accepted at a time, so that a flood of them keeps nobody else waiting.
constexpr int kMostAccepts = 64;

uint64_t RandomCommId() {
  uint64_t id;
  randombytes_buf(&id, sizeof(id));
  return id;
}

template <typename T>
T FromBytes(const Bytes& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

}  // namespace

ControlServer::ControlServer(Options options)
    : options_(std::move(options)), hub_(options_.process, RandomCommId(), *this, options_.job) {}

Result<SocketAddress> ControlServer::Start(Options options) {
  ONEBIT_ASSIGN_OR_RETURN(Descriptor listener, Listen(options.address));
  ONEBIT_ASSIGN_OR_RETURN(const SocketAddress address, LocalAddress(listener));
  ONEBIT_TRY(StartAt(std::move(listener), std::move(options)));
  return address;
}

Status ControlServer::StartAt(Descriptor listener, Options options) {
  const auto destroy = [](ControlServer* server) { delete server; };
  std::unique_ptr<ControlServer, decltype(destroy)> server(new ControlServer(std::move(options)),
                                                           destroy);
  server->listener_ = std::move(listener);
  ControlLoop& loop = ControlLoop::Get();
  std::lock_guard lock(loop.mutex());
  ONEBIT_TRY(loop.Add(server.get()));
  if (Status status = loop.Watch(server.get(), server->listener_.get(), EPOLLIN); !status.ok()) {
    loop.Remove(server.get());
    return status;
  }
  Live().push_back(server.get());
  server.release();
  return OkStatus();
}

void ControlServer::OnEvent(int fd, uint32_t events) {
  if (fd == listener_.get()) return Accept();
  if (const auto found = stranger_of_fd_.find(fd); found != stranger_of_fd_.end()) {
    return OnStranger(found->second);
  }
  if (const auto found = link_of_fd_.find(fd); found != link_of_fd_.end()) {
    OnLink(found->second, events);
  }
}

Clock::time_point ControlServer::OnTimer(Clock::time_point now) {
  while (!strangers_.empty() && strangers_.front().deadline <= now) {
    DropStranger(strangers_.begin());
  }
  Clock::time_point next = hub_.OnTimer(now);
  if (!strangers_.empty()) next = std::min(next, strangers_.front().deadline);
  if (hub_.is_complete()) CloseListener();
  next = std::min(next, DropIdleNewcomers(now));
  if (paused_until_ && *paused_until_ <= now && listener_.is_open()) {
    paused_until_.reset();
    ControlLoop::Get().Change(listener_.get(), EPOLLIN);
    Accept();
  }
  if (paused_until_ && listener_.is_open()) next = std::min(next, *paused_until_);
  if (hub_.has_failed() && !failed_at_) failed_at_ = now;
  // While a rank is connected, no timer ends the server; the last rank to leave does.
  if (hub_.present() == 0) next = std::min(next, End());
  closed_.clear();
  return next;
}

void ControlServer::OnOutOfMemory() {
  for (const auto& [fd, link] : link_of_fd_) ControlLoop::Get().Unwatch(fd);
  link_of_fd_.clear();
  links_.clear();
  newcomers_.clear();
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

void ControlServer::Accept() {
  bool has_dropped = false;
  for (int i = 0; i < kMostAccepts && listener_.is_open(); ++i) {
    Descriptor socket = AcceptFrom(listener_);
    if (!socket.is_open()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
      // Strangers must not keep ranks out, so they are closed first. As many as there are ranks to
      // come are probably ranks: each that gave way to another would come again.
      if (strangers_.size() <= hub_.awaited()) return Pause(errno == EMFILE);
      DropStranger(strangers_.begin());
      has_dropped = true;
      continue;
    }
    if (!std::exchange(has_dropped, false)) short_since_.reset();
    if (strangers_.size() == kMaxStrangers) DropStranger(strangers_.begin());
    try {
      Welcome(std::move(socket));
    } catch (const std::bad_alloc&) {
      // The connection is dropped; a rank tries again.
    }
  }
}

// Tries again later: others use up the descriptors. Ranks that have joined need not wait in vain
// for those that cannot.
void ControlServer::Pause(bool is_at_limit) {
  const auto now = Clock::now();
  // The port stays readable while a connection waits, so it must not be watched meanwhile.
  paused_until_ = now + kPause;
  ControlLoop::Get().Change(listener_.get(), 0);
  if (!is_at_limit || hub_.present() == 0 || !HasWaiting()) return short_since_.reset();
  if (!short_since_) short_since_ = now;
  if (now - *short_since_ < kShortage) return;
  owes_answers_ = true;
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  hub_.Fail(Error(Code::kSystemError,
                  "process {}, which lets the ranks in, has too few file descriptors left for all "
                  "of them: raise ulimit -n there (now {})",
                  options_.process, limit.rlim_cur));
}

bool ControlServer::HasWaiting() const {
  pollfd port = {listener_.get(), POLLIN, 0};
  return listener_.is_open() && poll(&port, 1, 0) > 0;
}

void ControlServer::AnswerWaiting() {
  const auto end = Clock::now() + kAnswers;
  // Those who were told, or turned away by a full port, come again after a pause.
  for (auto quiet_since = Clock::now();
       Clock::now() < end && Clock::now() < quiet_since + kQuiet;) {
    {
      std::lock_guard lock(ControlLoop::Get().mutex());
      const auto owes = [](const ControlServer* server) { return server->owes_answers_; };
      if (std::ranges::none_of(Live(), owes)) return;
      const bool is_quiet = std::ranges::none_of(Live(), [&](const ControlServer* server) {
        return owes(server) && (server->HasWaiting() || !server->strangers_.empty());
      });
      if (!is_quiet) quiet_since = Clock::now();
    }
    std::this_thread::sleep_for(kPause / 10);
  }
}

void ControlServer::Welcome(Descriptor socket) {
  const int fd = socket.get();
  strangers_.push_back({.socket = std::move(socket),
                        .deadline = Clock::now() + options_.handshake_timeout,
                        .received = {},
                        .answer = {}});
  const auto stranger = std::prev(strangers_.end());
  try {
    stranger_of_fd_[fd] = stranger;
    if (ControlLoop::Get().Watch(this, fd, EPOLLIN).ok()) return;
  } catch (const std::bad_alloc&) {
  }
  DropStranger(stranger);
}

void ControlServer::OnStranger(std::list<Stranger>::iterator stranger) {
  bool is_proved = false;
  Status status;
  try {
    status = Advance(*stranger, &is_proved);
  } catch (const std::bad_alloc&) {
    // A stranger must not end the group by using up memory. A rank tries again.
    return DropStranger(stranger);
  }
  if (!status.ok()) {
    // A client that speaks the protocol is probably a rank with another secret, not a port scan.
    const bool is_rank = stranger->answer.has_value() && !options_.has_visitors;
    Log(is_rank && !has_warned_ ? LogLevel::kWarn : LogLevel::kInfo,
        "control port: turned a connection away: {}{}", status.text(),
        is_rank ? " (a rank whose ONEBIT_SECRET differs from rank 0's?)" : "");
    has_warned_ |= is_rank;
    return DropStranger(stranger);
  }
  if (is_proved) Promote(stranger);
}

Status ControlServer::Advance(Stranger& stranger, bool* is_proved) {
  if (!stranger.answer) {
    ONEBIT_ASSIGN_OR_RETURN(const bool is_there, ReadExactly(stranger, sizeof(ClientHello)));
    if (!is_there) return OkStatus();
    ONEBIT_ASSIGN_OR_RETURN(stranger.answer,
                            AnswerHello(options_.key, FromBytes<ClientHello>(stranger.received)));
    stranger.received.clear();
    const ServerHello& hello = stranger.answer->hello;
    // The socket's buffer is empty, so all of it fits unless the other side is no rank.
    if (send(stranger.socket.get(), &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello)) {
      return Error(Code::kNotAuthenticated, "it does not listen");
    }
  }
  ONEBIT_ASSIGN_OR_RETURN(const bool is_there, ReadExactly(stranger, sizeof(Proof)));
  if (!is_there) return OkStatus();
  *is_proved = IsSameProof(FromBytes<Proof>(stranger.received), stranger.answer->expected_proof);
  if (!*is_proved) return Error(Code::kNotAuthenticated, "it does not know the secret of this job");
  return OkStatus();
}

Result<bool> ControlServer::ReadExactly(Stranger& stranger, size_t size) {
  Bytes& received = stranger.received;
  while (received.size() < size) {
    std::byte bytes[sizeof(ClientHello)];
    const ssize_t count = recv(stranger.socket.get(), bytes, size - received.size(), 0);
    if (count > 0) {
      received.insert(received.end(), bytes, bytes + count);
    } else if (count == 0) {
      return Error(Code::kNotAuthenticated, "it closed the connection");
    } else if (errno == EAGAIN) {
      return false;
    } else if (errno != EINTR) {
      return Error(Code::kNotAuthenticated, "{}", std::strerror(errno));
    }
  }
  return true;
}

void ControlServer::Promote(std::list<Stranger>::iterator stranger) {
  const uint64_t link = next_link_++;
  const int fd = stranger->socket.get();
  const SessionKeys& keys = stranger->answer->keys;
  links_[link] = std::make_unique<SealedChannel>(std::move(stranger->socket), keys.to_client,
                                                 keys.to_server, kMostRankMessageBytes);
  link_of_fd_[fd] = link;
  stranger_of_fd_.erase(fd);
  newcomers_.emplace_back(link, stranger->deadline);
  strangers_.erase(stranger);
  OnLink(link, EPOLLIN);  // its first message may be here already
}

Clock::time_point ControlServer::DropIdleNewcomers(Clock::time_point now) {
  std::erase_if(newcomers_, [&](const auto& newcomer) {
    return !links_.contains(newcomer.first) || hub_.has_joined(newcomer.first);
  });
  while (!newcomers_.empty()) {
    const auto [link, deadline] = newcomers_.front();
    if (deadline > now && newcomers_.size() <= kMaxStrangers) return deadline;
    DropLink(link);
    newcomers_.pop_front();
  }
  return Clock::time_point::max();
}

void ControlServer::DropStranger(std::list<Stranger>::iterator stranger) {
  const int fd = stranger->socket.get();
  ControlLoop::Get().Unwatch(fd);
  stranger_of_fd_.erase(fd);
  strangers_.erase(stranger);
}

void ControlServer::OnLink(uint64_t link, uint32_t events) {
  SealedChannel& channel = *links_[link];
  // Read before sending: messages of the rank count even if nothing can be sent to it any more.
  Status status = channel.Receive([&](const Bytes& bytes) -> Status {
    ONEBIT_ASSIGN_OR_RETURN(const RankMessage message, DecodeRankMessage(bytes));
    hub_.OnMessage(link, message, Clock::now());
    if (!links_.contains(link)) return {Code::kAborted, "the hub has closed it"};
    return OkStatus();
  });
  if (status.ok() && (events & EPOLLOUT) != 0) {
    status = channel.Flush();
    if (status.ok() && !channel.has_unsent()) {
      ControlLoop::Get().Change(channel.socket().get(), EPOLLIN);
    }
  }
  if (status.ok() || !links_.contains(link)) return;
  hub_.OnGone(link, status.text());
  DropLink(link);
}

void ControlServer::Send(uint64_t link, const HubMessage& message) {
  const auto found = links_.find(link);
  if (found == links_.end()) return;
  SealedChannel& channel = *found->second;
  // A broken connection is also an event of the socket, which handles it.
  static_cast<void>(channel.Send(Encode(message)));
  if (channel.has_unsent()) {
    ControlLoop::Get().Change(channel.socket().get(), EPOLLIN | EPOLLOUT);
  }
}

// The system delivers what the socket has taken. The rest is lost, which happens only to a rank
// that does not read.
void ControlServer::Close(uint64_t link) { DropLink(link); }

bool ControlServer::IsLossy(uint64_t link) const {
  const auto found = links_.find(link);
  return found != links_.end() && found->second->IsLossy();
}

void ControlServer::DropLink(uint64_t link) {
  const auto found = links_.find(link);
  if (found == links_.end()) return;
  const int fd = found->second->socket().get();
  ControlLoop::Get().Unwatch(fd);
  link_of_fd_.erase(fd);
  shutdown(fd, SHUT_WR);
  closed_.push_back(std::move(found->second));
  links_.erase(found);
}

// Nobody can connect after this.
void ControlServer::CloseListener() {
  if (!listener_.is_open()) return;
  ControlLoop::Get().Unwatch(listener_.get());
  listener_ = Descriptor();
  while (!strangers_.empty()) DropStranger(strangers_.begin());
  if (options_.on_closed) options_.on_closed();
}

}  // namespace onebit
