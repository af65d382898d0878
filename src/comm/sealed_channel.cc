// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/sealed_channel.h"

#include <array>
#include <cerrno>
#include <cstring>

namespace onebit {

Status SealedChannel::Send(std::span<const std::byte> message) {
  sealer_.Append(message, &unsent_);
  return Flush();
}

Status SealedChannel::Flush() {
  while (has_unsent()) {
    const ssize_t count =
        send(socket_.get(), unsent_.data() + sent_, unsent_.size() - sent_, MSG_NOSIGNAL);
    if (count >= 0) {
      sent_ += static_cast<size_t>(count);
    } else if (errno == EAGAIN) {
      return OkStatus();
    } else if (errno != EINTR) {
      return Error(Code::kPeerLost, "broke its control connection: {}", std::strerror(errno));
    }
  }
  unsent_.clear();
  sent_ = 0;
  return OkStatus();
}

Result<bool> SealedChannel::Read() {
  std::array<std::byte, 16'384> bytes;
  while (true) {
    const ssize_t count = recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (count > 0) {
      opener_.Feed(std::span(bytes).first(static_cast<size_t>(count)));
      return true;
    }
    if (count == 0) {
      return Error(Code::kPeerLost,
                   "closed its control connection without leaving: it ended or was killed");
    }
    if (errno == EAGAIN) return false;
    if (errno != EINTR) {
      return Error(Code::kPeerLost, "broke its control connection: {}", std::strerror(errno));
    }
  }
}

}  // namespace onebit
