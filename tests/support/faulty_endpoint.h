// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// One rank's endpoint of a faulty transport: decides what happens to each of its messages.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

#include "channel/message_functions.h"
#include "tests/support/fault_switch.h"

namespace onebit::testing {

// Used by its rank's thread. Unaffected messages go to the endpoint inside.
class FaultyEndpoint {
 public:
  FaultyEndpoint(FaultSwitch* faults, const MessageFunctions* inner, const MessageInfo& info)
      : faults_(*faults),
        functions_(*inner),
        info_(info),
        posted_(static_cast<size_t>(info.nranks), nullptr) {}

  const MessageFunctions& functions() const { return functions_; }
  void* inner = nullptr;

  onebitResult_t Send(int peer, const void* header, size_t header_bytes, const void* payload,
                      size_t payload_bytes, MessageRequest* request);
  onebitResult_t Receive(int peer, void* header, size_t capacity, MessageRequest* request);
  onebitResult_t Test(MessageRequest request, TransferState* state);
  onebitResult_t Cancel(MessageRequest request);
  onebitResult_t Progress();
  onebitResult_t Wait(uint64_t timeout_ms);

 private:
  // Arguments of isend that a fault may damage.
  struct Message {
    std::array<std::byte, kMessageHeaderBytes> header;
    size_t header_bytes;
    const void* payload;
    size_t payload_bytes;
  };
  // A message that is overtaken by the next one to the same peer.
  struct Held {
    int peer;
    Message message;
    bool is_overtaken = false;
  };

  onebitResult_t Forward(int peer, const Message& message, MessageRequest* request);
  onebitResult_t Strike(int peer, Message message, MessageRequest* request);
  onebitResult_t SendTwice(int peer, const Message& message, MessageRequest* request);
  onebitResult_t ReleaseHeld();
  // Copies the payload of the struck message, which belongs to the caller, into copy_.
  void CopyPayload(Message* message);
  void TellLoss();
  bool is_silent() const { return faults_.silent_rank() == info_.rank; }
  // The request of a message that is not sent; done at once.
  MessageRequest LostRequest() { return reinterpret_cast<MessageRequest>(&lost_request_); }

  FaultSwitch& faults_;
  const MessageFunctions& functions_;
  const MessageInfo info_;
  std::byte lost_request_{};
  std::vector<std::byte> copy_;  // must outlive its request, so it lives as long as the endpoint
  std::optional<Held> held_;
  FaultSwitch::Clock::time_point delayed_until_{};
  bool has_sent_duplicate_ = false;
  std::vector<MessageRequest> posted_;  // by peer: the receive whose header has not arrived
  bool has_told_loss_ = false;
};

}  // namespace onebit::testing
