// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// ChannelContext: the state that the message channels over one transport share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "base/format.h"
#include "base/status.h"
#include "onebit/transport.h"

namespace onebit::channel {

class MessageChannel;

// Receives a transport's reports about peers, on any thread.
class PeerErrorSink {
 public:
  // Called when `peer` is found to be gone while a message to or from it is pending or begun. A
  // peer from which nothing is expected may end without notice. `text` says what was seen. Must not
  // throw, because a transport calls it, nor take a lock that its caller may hold.
  virtual void OnPeerError(int peer, Code code, const char* text) = 0;

 protected:
  ~PeerErrorSink() = default;
};

// The communicator that a new channel belongs to.
struct ChannelInfo {
  int rank = 0;
  int nranks = 1;
  uint64_t comm_id = 0;           // the same on every rank of the communicator
  PeerErrorSink* sink = nullptr;  // outlives the channel
  void* group = nullptr;          // of the transport's `adopt`, on all ranks or on none
  // The members of onebitTransportCommInfo with these names; valid until Open returns.
  const unsigned char* key = nullptr;
  const void* address = nullptr;
  size_t address_bytes = 0;
  const void* server = nullptr;
  size_t server_bytes = 0;
  bool is_one_host = false;
};

// Thread-safe. Lives as long as the transport that it was made for.
class ChannelContext {
 public:
  // `host` gives the clock, and the log that takes the causes of errors.
  ChannelContext(const onebitTransport& functions, void* context,
                 const onebitTransportProperties& properties, const onebitTransportHost& host);
  ChannelContext(const ChannelContext&) = delete;
  ChannelContext& operator=(const ChannelContext&) = delete;

  // Makes this rank's end of a new communicator. Needs no other rank. Throws std::bad_alloc.
  onebitResult_t Open(const ChannelInfo& info, std::unique_ptr<MessageChannel>* channel);

  const onebitTransport& functions() const { return functions_; }
  void* transport() const { return context_; }
  const onebitTransportProperties& properties() const { return properties_; }
  uint64_t Now() const { return host_.nowNs(); }

  // Nanoseconds to poll before sleeping. 0 when there are more ranks than cores, counting either
  // `ranks_here` (the communicator's ranks on this machine) or this process's channels: a rank that
  // polls would keep the core from the rank it waits for.
  uint64_t spin_ns(uint32_t ranks_here) const;

  // Both maintain the count of open channels.
  void AddChannel() { open_channels_.fetch_add(1, std::memory_order_relaxed); }
  void RemoveChannel() { open_channels_.fetch_sub(1, std::memory_order_relaxed); }

  // Writes one line to the library's log, as a warning.
  template <typename... Args>
  void Warn(fmt::format_string<Args...> format, Args&&... args) const noexcept {
    try {
      std::string text = Format("{}: ", properties_.name);
      AppendFormat(&text, format, std::forward<Args>(args)...);
      host_.log(onebitLogWarn, text.c_str());
    } catch (const std::bad_alloc&) {
      // The line is lost. The caller may be a callback of the transport, which catches nothing.
    }
  }

 private:
  const onebitTransport& functions_;
  void* const context_;
  const onebitTransportProperties properties_;
  const onebitTransportHost host_;
  const uint32_t cores_;
  // relaxed everywhere: the count feeds a rule of thumb and publishes nothing.
  std::atomic<uint32_t> open_channels_{0};
};

}  // namespace onebit::channel
