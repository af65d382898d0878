// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// One rank's endpoint in a conformance check: opens, connects, drives with a deadline, closes.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string_view>
#include <vector>

#include "tests/support/bytes_of.h"
#include "tests/transports/conformance.h"

namespace onebit::conformance {

using testing::BytesOf;
using testing::WritableBytesOf;
using Clock = std::chrono::steady_clock;

// No check waits longer than this for something that must happen.
inline constexpr std::chrono::seconds kTestTimeout{60};

double SecondsSince(Clock::time_point start);
// True if at most `idle_ms` have passed since `start`, or as much more as this machine is busy.
bool IsWithin(Clock::time_point start, uint64_t idle_ms);

// The thread of its rank uses it; any thread may abort its channel.
class Endpoint final : private channel::PeerErrorSink {
 public:
  // Collective: all ranks of `oob` make theirs. `comm_id` tells communicators apart.
  Endpoint(const Subject& subject, OutOfBand& oob, uint64_t comm_id = 1);
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  int rank() const { return rank_; }
  int nranks() const { return nranks_; }
  int next() const { return (rank_ + 1) % nranks_; }
  int previous() const { return (rank_ + nranks_ - 1) % nranks_; }
  size_t eager_bytes() const { return eager_bytes_; }
  channel::MessageChannel& channel() { return *channel_; }  // until Close
  // The error that the channel reported for a peer; onebitSuccess if it reported none.
  onebitResult_t peer_error(int peer) const { return peer_errors_[static_cast<size_t>(peer)]; }

  // Not collective. The second call does nothing.
  void Close();

  // Starts to send, trying again while there is no room.
  MessageRequest StartSend(int peer, std::string_view header, const void* payload,
                           size_t payload_bytes);
  // Posts a receive; `header` has room for kMessageHeaderBytes.
  MessageRequest StartReceive(int peer, void* header);
  TransferState Test(MessageRequest request);
  void Await(MessageRequest request, TransferState state);
  // The error of a request that must fail.
  onebitResult_t AwaitError(MessageRequest request);
  void Cancel(MessageRequest request);
  // Waits for an event that is certain to come; a wait that lasts until its time-out has missed it.
  void WaitForEvent(uint64_t timeout_ms);

  // Transfer whole messages. Send returns when the payload may be changed.
  void Send(int peer, std::string_view header, std::string_view payload);
  struct Message {
    std::string header;
    std::string payload;
  };
  Message Receive(int peer);
  // Accepts a message whose header has arrived.
  Message Take(MessageRequest request, const void* header);

  // Makes progress until `is_over()`, sleeping in Wait between looks.
  template <typename Condition>
  void Until(const char* what, Condition is_over) {
    const Clock::time_point start = Clock::now();
    while (true) {
      Check(channel_->Progress(), "Progress");
      if (is_over()) return;
      Expect(Clock::now() - start < kTestTimeout, "waited too long for ", what);
      Check(channel_->Wait(1000), "Wait");
    }
  }

  // Throws unless `result` is onebitSuccess.
  void Check(onebitResult_t result, const char* call) const;

 private:
  void OnPeerError(int peer, Code code, const char* text) override;

  const int rank_;
  const int nranks_;
  size_t eager_bytes_;
  std::vector<std::atomic<onebitResult_t>> peer_errors_;  // any thread may report
  std::unique_ptr<channel::MessageChannel> channel_;      // ends first, and may report until then
};

}  // namespace onebit::conformance
