// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Transport `ucx` started for a test, with a host table that the test can steer.
#pragma once

#include <map>
#include <string>

#include "plugins/transport_ucx/ucx_transport.h"

namespace onebit::ucx {

using SettingTexts = std::map<std::string, std::string>;  // by name; absent: not set

// One at a time: the host's functions have no argument that could tell two apart.
class StartedTransport {
 public:
  explicit StartedTransport(const SettingTexts& settings = {}, const char* interfaces = "");
  ~StartedTransport();
  StartedTransport(const StartedTransport&) = delete;
  StartedTransport& operator=(const StartedTransport&) = delete;

  onebitResult_t init_result() const { return init_result_; }
  const onebitTransport& api() const { return *onebitTransportGet(); }
  void* context() const { return context_; }
  // What the transport logged as warnings, a line each.
  std::string log() const;

 private:
  void* context_ = nullptr;
  onebitResult_t init_result_;
};

}  // namespace onebit::ucx
