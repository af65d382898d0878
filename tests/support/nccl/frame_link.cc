// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/nccl/frame_link.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace onebit::testing::nccl {
namespace {

struct Head {
  FrameKind kind;
  uint64_t number;
  uint64_t bytes;
};

// An abstract name begins with a zero byte, and its length is that of the address.
std::pair<sockaddr_un, socklen_t> AddressOf(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), length);
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length)};
}

int MakeSocket() { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); }

}  // namespace

FrameLink::~FrameLink() {
  if (socket_ >= 0) close(socket_);
}

bool FrameLink::Listen(const std::string& name) {
  socket_ = MakeSocket();
  const auto [address, bytes] = AddressOf(name);
  return socket_ >= 0 && bind(socket_, reinterpret_cast<const sockaddr*>(&address), bytes) == 0 &&
         listen(socket_, SOMAXCONN) == 0;
}

bool FrameLink::Accept(const FrameLink& listener) {
  do {
    socket_ = accept4(listener.socket_, nullptr, nullptr, SOCK_CLOEXEC);
  } while (socket_ < 0 && errno == EINTR);
  return socket_ >= 0;
}

bool FrameLink::Connect(const std::string& name) {
  socket_ = MakeSocket();
  const auto [address, bytes] = AddressOf(name);
  return socket_ >= 0 && connect(socket_, reinterpret_cast<const sockaddr*>(&address), bytes) == 0;
}

bool FrameLink::Send(FrameKind kind, uint64_t number, const Parts& parts) {
  Head head{.kind = kind, .number = number, .bytes = 0};
  for (const auto& part : parts) head.bytes += part.size();
  const std::lock_guard lock(send_mutex_);
  if (!SendAll(std::as_bytes(std::span(&head, 1)))) return false;
  for (const auto& part : parts) {
    if (!SendAll(part)) return false;
  }
  return true;
}

bool FrameLink::Receive(Frame* frame) {
  Head head{};
  if (!ReceiveAll(std::as_writable_bytes(std::span(&head, 1)))) return false;
  *frame = {.kind = head.kind,
            .number = head.number,
            .content = std::make_unique_for_overwrite<std::byte[]>(head.bytes),
            .bytes = head.bytes};
  return ReceiveAll({frame->content.get(), frame->bytes});
}

void FrameLink::ShutDown() {
  if (socket_ >= 0) shutdown(socket_, SHUT_RDWR);
}

bool FrameLink::SendAll(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
  return true;
}

bool FrameLink::ReceiveAll(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t received = recv(socket_, bytes.data(), bytes.size(), MSG_WAITALL);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(received));
  }
  return true;
}

}  // namespace onebit::testing::nccl
