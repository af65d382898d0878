// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/link_server.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/log.h"

namespace onebit {
namespace {

using Clock = std::chrono::steady_clock;

// The pause after the process ran out of descriptors.
constexpr std::chrono::milliseconds kPause{50};
// The time for which clients wait for descriptors before their owner learns of it.
constexpr std::chrono::milliseconds kShortage{2000};
// Connections accepted at a time, so that a flood of them keeps nobody else waiting.
constexpr int kMostAccepts = 64;

template <typename T>
T FromBytes(const Bytes& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

}  // namespace

Status LinkServer::Open(Descriptor listener) {
  listener_ = std::move(listener);
  return ControlLoop::Get().Watch(&item_, listener_.get(), EPOLLIN);
}

void LinkServer::Close() {
  if (!listener_.is_open()) return;
  ControlLoop::Get().Unwatch(listener_.get());
  listener_ = Descriptor();
  while (!strangers_.empty()) DropStranger(strangers_.begin());
}

void LinkServer::DropAll() {
  for (const auto& [fd, link] : link_of_fd_) ControlLoop::Get().Unwatch(fd);
  link_of_fd_.clear();
  links_.clear();
  newcomers_.clear();
}

bool LinkServer::OnEvent(int fd, uint32_t events) {
  if (fd == listener_.get()) {
    Accept();
  } else if (const auto stranger = stranger_of_fd_.find(fd); stranger != stranger_of_fd_.end()) {
    OnStranger(stranger->second);
  } else if (const auto link = link_of_fd_.find(fd); link != link_of_fd_.end()) {
    OnLink(link->second, events);
  } else {
    return false;
  }
  return true;
}

LinkServer::TimePoint LinkServer::OnTimer(TimePoint now) {
  TimePoint next = DropIdleNewcomers(now);
  while (!strangers_.empty() && strangers_.front().deadline <= now) {
    DropStranger(strangers_.begin());
  }
  if (!strangers_.empty()) next = std::min(next, strangers_.front().deadline);
  if (paused_until_ && *paused_until_ <= now && listener_.is_open()) {
    paused_until_.reset();
    ControlLoop::Get().Change(listener_.get(), EPOLLIN);
    Accept();
  }
  if (paused_until_ && listener_.is_open()) next = std::min(next, *paused_until_);
  closed_.clear();
  return next;
}

void LinkServer::Accept() {
  bool has_dropped = false;
  for (int i = 0; i < kMostAccepts && listener_.is_open(); ++i) {
    Descriptor socket = AcceptFrom(listener_);
    if (!socket.is_open()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
      // Strangers must not keep ranks out, so they are closed first. As many as there are ranks to
      // come are probably ranks: each that gave way to another would come again.
      if (strangers_.size() <= owner_.AwaitedClients()) return Pause(errno == EMFILE);
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

// Tries again later: others use up the descriptors.
void LinkServer::Pause(bool is_at_limit) {
  const auto now = Clock::now();
  // The port stays readable while a connection waits, so it must not be watched meanwhile.
  paused_until_ = now + kPause;
  ControlLoop::Get().Change(listener_.get(), 0);
  if (!is_at_limit || !HasWaiting()) return short_since_.reset();
  if (!short_since_) short_since_ = now;
  if (now - *short_since_ >= kShortage) owner_.OnShortage();
}

bool LinkServer::HasWaiting() const {
  pollfd port = {listener_.get(), POLLIN, 0};
  return listener_.is_open() && poll(&port, 1, 0) > 0;
}

void LinkServer::Welcome(Descriptor socket) {
  const int fd = socket.get();
  strangers_.push_back({.socket = std::move(socket),
                        .deadline = Clock::now() + options_.handshake_timeout,
                        .received = {},
                        .answer = {}});
  const auto stranger = std::prev(strangers_.end());
  try {
    stranger_of_fd_[fd] = stranger;
    if (ControlLoop::Get().Watch(&item_, fd, EPOLLIN).ok()) return;
  } catch (const std::bad_alloc&) {
  }
  DropStranger(stranger);
}

void LinkServer::OnStranger(std::list<Stranger>::iterator stranger) {
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
    const bool is_rank = stranger->answer.has_value() && !options_.is_wrong_key_expected;
    Log(is_rank && !has_warned_ ? LogLevel::kWarn : LogLevel::kInfo,
        "control port: refused a connection: {}{}", status.text(),
        is_rank ? " (a rank whose ONEBIT_SECRET differs from rank 0's?)" : "");
    has_warned_ |= is_rank;
    return DropStranger(stranger);
  }
  if (is_proved) Promote(stranger);
}

Status LinkServer::Advance(Stranger& stranger, bool* is_proved) {
  if (!stranger.answer) {
    ONEBIT_ASSIGN_OR_RETURN(const bool is_there, ReadExactly(stranger, sizeof(ClientHello)));
    if (!is_there) return OkStatus();
    ONEBIT_ASSIGN_OR_RETURN(stranger.answer,
                            AnswerHello(options_.key, FromBytes<ClientHello>(stranger.received)));
    stranger.received.clear();
    const ServerHello& hello = stranger.answer->hello;
    // The socket's buffer is empty, so all of it fits unless the other side is no rank.
    if (send(stranger.socket.get(), &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello)) {
      return Error(Code::kNotAuthenticated, "it is not listening");
    }
  }
  ONEBIT_ASSIGN_OR_RETURN(const bool is_there, ReadExactly(stranger, sizeof(Proof)));
  if (!is_there) return OkStatus();
  *is_proved = IsSameProof(FromBytes<Proof>(stranger.received), stranger.answer->expected_proof);
  if (!*is_proved) return Error(Code::kNotAuthenticated, "it does not know the secret of this job");
  return OkStatus();
}

Result<bool> LinkServer::ReadExactly(Stranger& stranger, size_t size) {
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

void LinkServer::Promote(std::list<Stranger>::iterator stranger) {
  const uint64_t link = next_link_++;
  const int fd = stranger->socket.get();
  const SessionKeys& keys = stranger->answer->keys;
  links_[link] = std::make_unique<SealedChannel>(std::move(stranger->socket), keys.to_client,
                                                 keys.to_server, options_.most_message_bytes);
  link_of_fd_[fd] = link;
  stranger_of_fd_.erase(fd);
  newcomers_.emplace_back(link, stranger->deadline);
  strangers_.erase(stranger);
  OnLink(link, EPOLLIN);  // its first message may be here already
}

LinkServer::TimePoint LinkServer::DropIdleNewcomers(LinkServer::TimePoint now) {
  std::erase_if(newcomers_, [&](const auto& newcomer) {
    return !links_.contains(newcomer.first) || owner_.IsLinkKnown(newcomer.first);
  });
  while (!newcomers_.empty()) {
    const auto [link, deadline] = newcomers_.front();
    if (deadline > now && newcomers_.size() <= kMaxStrangers) return deadline;
    CloseLink(link);
    newcomers_.pop_front();
  }
  return LinkServer::TimePoint::max();
}

void LinkServer::DropStranger(std::list<Stranger>::iterator stranger) {
  const int fd = stranger->socket.get();
  ControlLoop::Get().Unwatch(fd);
  stranger_of_fd_.erase(fd);
  strangers_.erase(stranger);
}

void LinkServer::OnLink(uint64_t link, uint32_t events) {
  SealedChannel& channel = *links_[link];
  // Read before sending: messages of the rank count even if nothing can be sent to it any more.
  Status status = channel.Receive([&](const Bytes& bytes) -> Status {
    ONEBIT_TRY(owner_.OnLinkMessage(link, bytes));
    if (!links_.contains(link)) return {Code::kAborted, "its owner has closed it"};
    return OkStatus();
  });
  if (status.ok() && (events & EPOLLOUT) != 0) {
    status = channel.Flush();
    if (status.ok() && !channel.has_unsent()) {
      ControlLoop::Get().Change(channel.socket().get(), EPOLLIN);
    }
  }
  if (status.ok() || !links_.contains(link)) return;
  owner_.OnLinkGone(link, status.text());
  CloseLink(link);
}

void LinkServer::Send(uint64_t link, std::span<const std::byte> message) {
  const auto found = links_.find(link);
  if (found == links_.end()) return;
  SealedChannel& channel = *found->second;
  // A broken connection is also an event of the socket, which handles it.
  static_cast<void>(channel.Send(message));
  if (channel.has_unsent()) {
    ControlLoop::Get().Change(channel.socket().get(), EPOLLIN | EPOLLOUT);
  }
}

// The system delivers what the socket has taken. The rest is lost, which happens only to a rank
// that does not read.
bool LinkServer::IsLossy(uint64_t link) const {
  const auto found = links_.find(link);
  return found != links_.end() && found->second->IsLossy();
}

void LinkServer::CloseLink(uint64_t link) {
  const auto found = links_.find(link);
  if (found == links_.end()) return;
  const int fd = found->second->socket().get();
  ControlLoop::Get().Unwatch(fd);
  link_of_fd_.erase(fd);
  shutdown(fd, SHUT_WR);
  closed_.push_back(std::move(found->second));
  links_.erase(found);
}

}  // namespace onebit
