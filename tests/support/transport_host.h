// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Starts a transport as the library does, for tests of the transport alone.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "channel/channel_context.h"
#include "onebit/transport.h"

namespace onebit::testing {

using SettingTexts =
    std::map<std::string, std::string>;  // by name of the variable; absent if it is not set

// Only one may exist at a time, because a host's log function cannot tell two apart.
class StartedTransport {
 public:
  // A setting that does not parse is logged and returns onebitInvalidUsage without a call of
  // `init`.
  explicit StartedTransport(const onebitTransport& transport, const SettingTexts& settings = {},
                            const char* interfaces = "");
  // Finalizes the transport, and aborts the program if that fails because an endpoint was left
  // open.
  ~StartedTransport();
  StartedTransport(const StartedTransport&) = delete;
  StartedTransport& operator=(const StartedTransport&) = delete;

  const onebitTransport& transport() const { return transport_; }
  void* transport_context() const { return context_; }
  onebitTransportProperties properties() const;
  // Makes message channels. Only if the start has succeeded.
  channel::ChannelContext& channels() const { return *channels_; }
  onebitResult_t start_result() const { return start_result_; }
  // Warnings since the start, separated by newlines.
  static std::string warnings();
  static std::string lines();

 private:
  const onebitTransport& transport_;
  std::vector<std::string> environment_;  // holds the texts of the settings
  void* context_ = nullptr;
  std::unique_ptr<channel::ChannelContext> channels_;
  onebitResult_t start_result_ = onebitInvalidUsage;
};

}  // namespace onebit::testing
