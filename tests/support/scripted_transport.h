// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Test double of a transport that drops this rank's sends and receives messages from a script, so
// that tests can feed the executor messages that no honest peer would send.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "channel/message_functions.h"
#include "onebit/transport.h"

namespace onebit::testing {

struct ScriptedMessage {
  std::vector<std::byte> header;
  std::vector<std::byte> payload;
};

// One at a time per process, because the C function table has no context for an owner.
class ScriptedTransport {
 public:
  // Sets what rank 0 receives from `peer`, in order. After the last message it receives nothing.
  static void SetScript(int peer, std::deque<ScriptedMessage> messages);
  // Headers sent by rank 0 since the script was set.
  static const std::vector<std::vector<std::byte>>& sent();
  // Requests that are neither complete nor cancelled.
  static int open_requests();
  // Whether the transport says that what was sent to rank 1 does not arrive.
  static void SetStuck(bool is_stuck);
  static const onebitTransport* functions();
  static const MessageFunctions* messages();
};

}  // namespace onebit::testing
