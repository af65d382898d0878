// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The scripted transport, for fuzzers that call what one of several ranks would.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <thread>
#include <utility>

#include "tests/support/scripted_transport.h"
#include "transport/transport.h"

namespace onebit::testing {

// Once in a process, which it outlives.
inline const Transport* StartForFuzzer() {
  // A call for one of several ranks is refused in a process of a single thread.
  std::thread([] {
    for (;;) pause();
  }).detach();
  auto started = Transport::Start(ScriptedTransport::functions());
  if (!started.ok()) std::abort();
  return new Transport(std::move(started).value());
}

}  // namespace onebit::testing
