// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The scripted transport, for fuzzers that play one of several ranks.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <thread>
#include <utility>

#include "tests/support/scripted_transport.h"
#include "transport/transport.h"

namespace onebit::testing {

// Started once, and kept until the process ends.
inline const Transport* StartForFuzzer() {
  // In a process with a single thread, calls of one of several ranks are refused.
  std::thread([] {
    for (;;) pause();
  }).detach();
  auto started = Transport::Start(ScriptedTransport::functions());
  if (!started.ok()) std::abort();
  return new Transport(std::move(started).value());
}

}  // namespace onebit::testing
