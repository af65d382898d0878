// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The connecting side of a LinkServer, without ever waiting: connects, proves that it knows the
// key, and carries messages.
#pragma once

#include <functional>
#include <memory>

#include "comm/control_loop.h"
#include "comm/sealed_channel.h"
#include "comm/secret.h"
#include "comm/unique_id.h"

namespace onebit {

// Part of a LoopItem, which passes its events on. Every function needs the loop's mutex.
class LinkClient {
 public:
  // `first` is sent once the server has proved that it knows the key, too.
  LinkClient(const UniqueId& id, Bytes first, size_t most_message_bytes)
      : id_(id), first_(std::move(first)), most_message_bytes_(most_message_bytes) {}
  ~LinkClient();
  LinkClient(const LinkClient&) = delete;
  LinkClient& operator=(const LinkClient&) = delete;

  // Begins to connect. Errors, here and below, end the link; kSystemError is this process's own.
  Status Start(LoopItem* item);
  Status OnEvent(uint32_t events, const std::function<Status(const Bytes&)>& take);
  void Send(std::span<const std::byte> message);

  int fd() const { return fd_; }
  // The other side's system has answered.
  bool is_connected() const { return is_connected_; }
  // Nobody listens at the address.
  bool is_refused() const { return is_refused_; }

 private:
  Status Greet();
  Status ReadHello();
  Status Explain(const char* what, int error);

  const UniqueId id_;
  const Bytes first_;
  const size_t most_message_bytes_;
  Descriptor socket_;  // until there is a channel
  int fd_ = -1;
  bool is_connected_ = false;
  bool is_refused_ = false;
  ClientHello hello_{};
  Bytes received_;  // of the server's hello
  std::unique_ptr<SealedChannel> channel_;
};

}  // namespace onebit
