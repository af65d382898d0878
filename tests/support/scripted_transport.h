// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Test double of a transport: this rank's sends vanish, and what it receives is a script. For
// feeding the executor messages that no honest peer would send.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "onebit/transport.h"

namespace onebit::testing {

struct ScriptedMessage {
  std::vector<std::byte> header;
  std::vector<std::byte> payload;
};

// One at a time per process, because the C function table has no room for an owner.
class ScriptedTransport {
 public:
  // What rank 0 will receive from `peer`, in order. After the last message it hears nothing more.
  static void SetScript(int peer, std::deque<ScriptedMessage> messages);
  static const onebitTransport* functions();
};

}  // namespace onebit::testing
