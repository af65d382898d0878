// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Rank 0 of two ranks; a script supplies the messages of rank 1.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "exec/run_calls.h"
#include "tests/support/scripted_transport.h"

namespace onebit::testing {

class ScriptedRank {
 public:
  explicit ScriptedRank(CommOptions options);

  Comm& comm() { return *comms_[0]; }
  PlannedCompressor NewCompressor(const Compressor::Config& config);

  // Makes the calls, as a group if there are several, while rank 1 sends `messages`.
  Status Run(std::span<const CallRequest> requests, std::deque<ScriptedMessage> messages);

 private:
  std::vector<std::unique_ptr<Comm>> comms_;
  std::unique_ptr<Engine> engine_;
};

// Encodes a message. If the header announces a checksum, that of the payload is added to its `sum`:
// a nonzero `sum` makes the payload appear damaged.
ScriptedMessage MessageOf(MessageHeader header, std::span<const std::byte> payload);

}  // namespace onebit::testing
