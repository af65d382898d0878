// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Transport `ucx` started for a test.
#pragma once

#include "plugins/transport_ucx/ucx_transport.h"
#include "tests/support/transport_host.h"

// Checkers of leaks do not search UCX's memory, by which parked workers are reached.
extern "C" [[gnu::used, gnu::visibility("default")]] inline const char*
__lsan_default_suppressions() {
  return "leak:libucs.so\nleak:libuct.so\nleak:libucp.so\n";
}

namespace onebit::ucx {

using testing::SettingTexts;

class StartedTransport : public testing::StartedTransport {
 public:
  explicit StartedTransport(const SettingTexts& settings = {}, const char* interfaces = "")
      : testing::StartedTransport(*onebitTransportGet(), settings, interfaces) {}
};

}  // namespace onebit::ucx
