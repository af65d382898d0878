// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Damages messages as a fuzzer's input chooses.
#pragma once

#include <cstddef>
#include <cstdint>

#include "channel/message_request.h"
#include "codec/message_header.h"
#include "tests/fuzz/input.h"
#include "tests/support/scripted_transport.h"

namespace onebit::testing {

inline void ChangePayload(Input& input, size_t changes, ScriptedMessage* message) {
  for (; changes > 0 && !message->payload.empty(); --changes) {
    const size_t low = input.Next();
    const size_t at = (low | size_t{input.Next()} << 8) % message->payload.size();
    message->payload[at] = std::byte{input.Next()};
  }
}

inline void DamageHeader(Input& input, ScriptedMessage* message) {
  message->header[input.Next() % kHeaderBytes] ^= std::byte{input.Next()};
  message->header.resize(input.Next() % 4 == 0 ? input.Next() % (kMessageHeaderBytes + 1)
                                               : kHeaderBytes);
}

}  // namespace onebit::testing
