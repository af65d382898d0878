// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/link_client.h"

#include <sys/epoll.h>

#include <cerrno>
#include <cstring>

namespace onebit {

LinkClient::~LinkClient() {
  if (fd_ >= 0) ControlLoop::Get().Unwatch(fd_);
}

Status LinkClient::Explain(const char* what, int error) {
  is_refused_ = error == ECONNREFUSED;
  return Error(Code::kRemoteError, "{} {}: {} (errno {})", what, id_.address.Text(),
               std::strerror(error), error);
}

Status LinkClient::Start(LoopItem* item) {
  socket_ = NewSocket(id_.address.family());
  if (!socket_.is_open()) {
    return Error(Code::kSystemError, "no socket for {}: {} (errno {}){}", id_.address.Text(),
                 std::strerror(errno), errno, errno == EMFILE ? ": raise ulimit -n" : "");
  }
  if (connect(socket_.get(), id_.address.get(), id_.address.size()) != 0 && errno != EINPROGRESS) {
    return Explain("cannot connect to", errno);
  }
  ONEBIT_TRY(ControlLoop::Get().Watch(item, socket_.get(), EPOLLOUT));
  fd_ = socket_.get();
  return OkStatus();
}

Status LinkClient::OnEvent(uint32_t events, const std::function<Status(const Bytes&)>& take) {
  if (!is_connected_) return Greet();
  if (channel_ == nullptr) {
    ONEBIT_TRY(ReadHello());
    if (channel_ == nullptr) return OkStatus();
  }
  // Read before sending: what the other side said counts even if it listens no more.
  ONEBIT_TRY(channel_->Receive(take));
  if ((events & EPOLLOUT) == 0) return OkStatus();
  ONEBIT_TRY(channel_->Flush());
  if (!channel_->has_unsent()) ControlLoop::Get().Change(fd_, EPOLLIN);
  return OkStatus();
}

Status LinkClient::Greet() {
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return Explain("cannot connect to", error);
  is_connected_ = true;
  hello_ = MakeClientHello();
  // The socket's buffer is empty, so all of it fits.
  if (send(fd_, &hello_, sizeof(hello_), MSG_NOSIGNAL) != sizeof(hello_)) {
    return Explain("cannot greet", errno);
  }
  ControlLoop::Get().Change(fd_, EPOLLIN);
  return OkStatus();
}

Status LinkClient::ReadHello() {
  while (received_.size() < sizeof(ServerHello)) {
    std::byte bytes[sizeof(ServerHello)];
    const ssize_t count = recv(fd_, bytes, sizeof(ServerHello) - received_.size(), 0);
    if (count > 0) {
      received_.insert(received_.end(), bytes, bytes + count);
    } else if (count == 0) {
      return Error(Code::kRemoteError, "{} closed the connection", id_.address.Text());
    } else if (errno == EAGAIN) {
      return OkStatus();
    } else if (errno != EINTR) {
      return Explain("no answer from", errno);
    }
  }
  ServerHello answer;
  std::memcpy(&answer, received_.data(), sizeof(answer));
  ONEBIT_ASSIGN_OR_RETURN(const ClientAnswer client, CheckServer(id_.key, hello_, answer));
  const ssize_t proof_bytes = static_cast<ssize_t>(client.proof.size());
  if (send(fd_, client.proof.data(), client.proof.size(), MSG_NOSIGNAL) != proof_bytes) {
    return Explain("cannot answer", errno);
  }
  channel_ = std::make_unique<SealedChannel>(std::move(socket_), client.keys.to_server,
                                             client.keys.to_client, most_message_bytes_);
  Send(first_);
  return OkStatus();
}

void LinkClient::Send(std::span<const std::byte> message) {
  if (channel_ == nullptr) return;
  // A broken connection is also an event of the socket.
  static_cast<void>(channel_->Send(message));
  if (channel_->has_unsent()) ControlLoop::Get().Change(fd_, EPOLLIN | EPOLLOUT);
}

}  // namespace onebit
