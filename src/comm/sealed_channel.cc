// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/sealed_channel.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace onebit {
namespace {

// A queue may hold this much beside two of the largest messages.
constexpr size_t kMostUnsentBytes = 1u << 20;

}  // namespace

Status SealedChannel::Send(std::span<const std::byte> message) {
  ONEBIT_TRY(overflow_);
  largest_message_bytes_ = std::max(largest_message_bytes_, message.size());
  if (unsent_bytes() + message.size() > kMostUnsentBytes + 2 * largest_message_bytes_) {
    overflow_ =
        Error(Code::kPeerLost, "does not read its control connection: {} bytes wait to be sent",
              unsent_bytes());
    shutdown(socket_.get(), SHUT_RDWR);
    return overflow_;
  }
  // Once the network works again, no trace is left of attempts that had no route.
  static_cast<void>(IsLossy());
  sealer_.Append(message, &unsent_);
  return Flush();
}

Status SealedChannel::Flush() {
  if (!overflow_.ok()) return OkStatus();  // Receive reports it
  while (has_unsent()) {
    const ssize_t count =
        send(socket_.get(), unsent_.data() + sent_, unsent_.size() - sent_, MSG_NOSIGNAL);
    if (count >= 0) {
      sent_ += static_cast<size_t>(count);
    } else if (errno == EAGAIN) {
      // On average each byte moves at most once for each byte that is sent.
      if (sent_ >= unsent_.size() / 2) {
        unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<ptrdiff_t>(sent_));
        sent_ = 0;
      }
      return OkStatus();
    } else if (errno != EINTR) {
      return Error(Code::kPeerLost, "broke its control connection: {}", std::strerror(errno));
    }
  }
  unsent_.clear();
  sent_ = 0;
  return OkStatus();
}

bool SealedChannel::IsLossy() {
  const VainAttempts attempts = VainAttemptsOf(socket_);
  is_lossy_ |= attempts.sent_again != sent_again_ || attempts.unacknowledged != 0;
  return is_lossy_;
}

Result<bool> SealedChannel::Read() {
  std::array<std::byte, 16'384> bytes;
  while (true) {
    const ssize_t count = recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (count > 0) {
      is_lossy_ = false;
      sent_again_ = VainAttemptsOf(socket_).sent_again;
      opener_.Feed(std::span(bytes).first(static_cast<size_t>(count)));
      return true;
    }
    if (count == 0) {
      ONEBIT_TRY(overflow_);
      return Error(Code::kPeerLost,
                   "closed its control connection without leaving: it ended or was killed");
    }
    if (errno == EAGAIN) return false;
    if (errno != EINTR) {
      ONEBIT_TRY(overflow_);
      return Error(Code::kPeerLost, "broke its control connection: {}", std::strerror(errno));
    }
  }
}

}  // namespace onebit
