// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sends: the sending half of a message channel.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "channel/controls.h"

namespace onebit::channel {

class Sends {
 public:
  Sends(ChannelState* state, Controls* controls) : state_(*state), controls_(*controls) {
    streaming_.reserve(static_cast<size_t>(state_.nranks));
  }

  onebitResult_t Send(int rank, const void* header, size_t header_bytes, const void* payload,
                      size_t payload_bytes, Request** request);
  bool Pump();
  void End(Request* request, RequestState outcome);

  void HandleRelease(Peer& from, uint64_t released);
  void HandleAnswer(Peer& from, const WireHeader& wire);

  // Both count what was handed over so far, headers and payloads. Any thread may ask.
  uint64_t bytes() const { return bytes_sent_.load(std::memory_order_relaxed); }
  uint64_t messages() const { return messages_sent_.load(std::memory_order_relaxed); }

 private:
  onebitResult_t Start(Peer& to, const WireHeader& wire, const void* header, const void* payload,
                       size_t payload_bytes, Request** request);
  bool PumpStream(Peer& to);
  void StartStreaming(Request* request);
  void StopStreaming(Request* request);

  ChannelState& state_;
  Controls& controls_;
  Request sent_{.state = RequestState::kSent};
  std::vector<int> streaming_;  // peers whose stream is not empty; capacity reserved

  // Atomic so that another thread may read the statistics; only the owner writes them. relaxed:
  // nothing is published through them.
  std::atomic<uint64_t> bytes_sent_{0};
  std::atomic<uint64_t> messages_sent_{0};
};

}  // namespace onebit::channel
