// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Transport `local` started for a test, with a host table that the test can steer.
#pragma once

#include <string>

#include "plugins/transport_local/local_transport.h"

namespace onebit::local {

// One at a time: the host's functions have no argument that could tell two apart.
class StartedTransport {
 public:
  // `eager_bytes` is the value of ONEBIT_LOCAL_EAGER_BYTES; empty: not set.
  explicit StartedTransport(const std::string& eager_bytes = "");
  ~StartedTransport();
  StartedTransport(const StartedTransport&) = delete;
  StartedTransport& operator=(const StartedTransport&) = delete;

  onebitResult_t init_result() const { return init_result_; }
  const onebitTransport& api() const { return *onebitTransportLocalGet(); }
  void* context() const { return context_; }
  // The last line the transport logged.
  std::string log() const;

 private:
  void* context_ = nullptr;
  onebitResult_t init_result_;
};

}  // namespace onebit::local
