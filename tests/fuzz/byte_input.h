// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A fuzzer's input as a source of choices, and the damage it chooses for messages.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/message_header.h"
#include "tests/support/scripted_transport.h"

namespace onebit::testing {

// Reads a byte at a time; zeros after the end.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  uint8_t Next() { return at_ < size_ ? data_[at_++] : 0; }
  bool empty() const { return at_ >= size_; }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

inline void ChangePayload(Input& input, size_t changes, ScriptedMessage* message) {
  for (; changes > 0 && !message->payload.empty(); --changes) {
    const size_t low = input.Next();
    const size_t at = (low | size_t{input.Next()} << 8) % message->payload.size();
    message->payload[at] = std::byte{input.Next()};
  }
}

inline void DamageHeader(Input& input, ScriptedMessage* message) {
  message->header[input.Next() % kHeaderBytes] ^= std::byte{input.Next()};
  message->header.resize(input.Next() % 4 == 0 ? input.Next() % 80 : kHeaderBytes);
}

}  // namespace onebit::testing
