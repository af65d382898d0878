// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What UCX does to a whole process, kept in bounds: signal handlers and log.
#pragma once

#include <onebit/transport.h>

#include <string>

namespace onebit::ucx {

// While one lives, lines that UCX logs on this thread go to the library's log: errors and warnings
// at INFO, the rest at TRACE, because what matters of them is told by results and peerError. Lines
// of other threads, and of other users of UCX in this process, go where they always did.
//
// May be nested. Costs two stores.
class LogScope {
 public:
  explicit LogScope(const onebitTransportHost& host);
  ~LogScope();
  LogScope(const LogScope&) = delete;
  LogScope& operator=(const LogScope&) = delete;

  // The last error or warning of this thread, to say why something failed.
  static std::string LastError();

 private:
  const onebitTransportHost* const outer_;
};

// Whether the process may open the descriptors that UCX takes for a context or a worker. libucs
// aborts the process when its own thread gets none (UCX 1.13), so this must be known before.
bool HasDescriptorsForUcx();

}  // namespace onebit::ucx
