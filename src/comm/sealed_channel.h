// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A control connection after the handshake: sealed messages over a non-blocking socket.
#pragma once

#include <string>
#include <vector>

#include "comm/secret.h"
#include "comm/socket.h"

namespace onebit {

// Used by one thread at a time.
class SealedChannel {
 public:
  SealedChannel(Descriptor socket, const JobKey& send_key, const JobKey& receive_key,
                size_t most_receive_bytes)
      : socket_(std::move(socket)), sealer_(send_key), opener_(receive_key, most_receive_bytes) {}

  const Descriptor& socket() const { return socket_; }

  // Queues the message and sends as much as the socket takes. kPeerLost: the connection is broken,
  // or too much waits for the other side to read; Receive then reports the same after what has
  // arrived, and the socket has an event.
  Status Send(std::span<const std::byte> message);
  Status Flush();
  // Call Receive first: what the other side sent before the connection broke still counts.
  bool has_unsent() const { return unsent_bytes() != 0; }
  // True if something was sent in vain since the other side was last heard. Send looks as well.
  bool IsLossy();

  // Reads what has arrived and passes one message after the other to `take`. Stops at an error,
  // including one of `take`; returns kPeerLost if the other side has closed the connection.
  template <typename Take>
  Status Receive(Take&& take);

 private:
  // False if nothing has arrived.
  Result<bool> Read();
  size_t unsent_bytes() const { return unsent_.size() - sent_; }

  Descriptor socket_;
  FrameSealer sealer_;
  FrameOpener opener_;
  Bytes unsent_;     // begins with bytes already sent
  size_t sent_ = 0;  // how many these are
  size_t largest_message_bytes_ = 0;
  Status overflow_;          // the error of a queue that grew too long
  bool is_lossy_ = false;    // since the other side was last heard
  uint32_t sent_again_ = 0;  // until then
};

template <typename Take>
Status SealedChannel::Receive(Take&& take) {
  // Bounded, so that one busy connection does not starve the others.
  for (int rounds = 0; rounds < 16; ++rounds) {
    // Messages that arrived together with the end of the connection count.
    const Result<bool> has_read = Read();
    if (has_read.ok() && !has_read.value()) return OkStatus();
    ONEBIT_TRY(has_read.status());
    while (true) {
      ONEBIT_ASSIGN_OR_RETURN(auto message, opener_.Next());
      if (!message.has_value()) break;
      ONEBIT_TRY(take(*message));
    }
  }
  return OkStatus();
}

}  // namespace onebit
