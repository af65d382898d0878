// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Limits what UCX does to a whole process: signal handlers and log.
#pragma once

#include <onebit/transport.h>

#include <string>

namespace onebit::ucx {

// While an object exists, lines that UCX logs on this thread go to the library's log: errors and
// warnings at INFO, the rest at TRACE, because the library reports what matters itself.
// Lines of other threads, and of other users of UCX in this process, are not redirected.
//
// May be nested. Costs three stores.
class LogScope {
 public:
  explicit LogScope(const onebitTransportHost& host);
  ~LogScope();
  LogScope(const LogScope&) = delete;
  LogScope& operator=(const LogScope&) = delete;

  // The last error or warning in the scopes of this thread, to explain a failure.
  static std::string LastError();

 private:
  const onebitTransportHost* const outer_;
};

// True if the process can open the descriptors that UCX needs for a context or a worker. libucs
// aborts the process when its own thread gets none (UCX 1.13), so this must be checked before.
bool HasDescriptorsForUcx();

// True if the process may lock as much memory as UCX registers with an adapter for an endpoint. UCX
// 1.13 tries again and again for ever if it may not.
bool CanLockMemoryForUcx();

}  // namespace onebit::ucx
