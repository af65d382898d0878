// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Test double of a frame transport that drops this rank's sends and delivers messages from a
// script, so that tests can feed the executor messages that no honest peer would send.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "onebit/transport.h"

namespace onebit::testing {

struct ScriptedMessage {
  std::vector<std::byte> header;
  std::vector<std::byte> payload;
  // The payload never arrives; it must be larger than kScriptedEagerBytes.
  bool is_withheld = false;
};

// Payloads up to this size arrive with their header, larger ones once they are accepted.
inline constexpr size_t kScriptedEagerBytes = 4096;

// One at a time per process, because a script has no owner.
class ScriptedTransport {
 public:
  // Sets what rank 0 receives from `peer`, in order. After the last message it receives nothing.
  static void SetScript(int peer, std::deque<ScriptedMessage> messages);
  // Headers sent by rank 0 since the script was set.
  static const std::vector<std::vector<std::byte>>& sent();
  // Payloads larger than kScriptedEagerBytes since the script was set: those to rank 0 that it gave
  // up, and its own that it withdrew. Nobody accepts the latter.
  static int given_up();
  static int withdrawn();
  // Says whether the transport reports that what was sent to rank 1 does not arrive.
  static void SetStuck(bool is_stuck);
  static const onebitTransport* functions();
};

}  // namespace onebit::testing
