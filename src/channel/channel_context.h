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
#include "channel/message_functions.h"
#include "onebit/transport.h"

namespace onebit::channel {

class MessageChannel;

// Thread-safe. Lives as long as the transport that it was made for.
class ChannelContext {
 public:
  // `host` gives the clock, and the log that takes the causes of errors.
  ChannelContext(const onebitTransport& functions, void* context,
                 const onebitTransportProperties& properties, const onebitTransportHost& host);
  ChannelContext(const ChannelContext&) = delete;
  ChannelContext& operator=(const ChannelContext&) = delete;

  // Throws std::bad_alloc.
  onebitResult_t Open(const MessageInfo& info, std::unique_ptr<MessageChannel>* channel);

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

// The message functions of channels, whose context is a ChannelContext.
const MessageFunctions& ChannelFunctions();

}  // namespace onebit::channel
