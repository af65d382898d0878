// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Checks of cancel: it ends in bounded time, and afterwards the buffers are the caller's.
#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/transports/checks.h"
#include "tests/transports/traffic.h"

namespace onebit::conformance {
namespace {

constexpr std::byte kContent{0x11};
constexpr std::byte kScribble{0xee};
constexpr size_t kLongBytes = 12 << 20;  // long enough that two threads meet in the middle of it

// Time that a copy of kLongBytes takes on this machine now.
double SecondsOfLongCopy() {
  const std::vector<std::byte> from(kLongBytes, kScribble);
  std::vector<std::byte> to(kLongBytes);
  const Clock::time_point start = Clock::now();
  std::copy(from.begin(), from.end(), to.begin());
  return SecondsSince(start);
}

// True if every byte is kContent. One comparison of the memory with itself is fast even under a
// sanitizer.
bool IsContent(const std::vector<std::byte>& payload) {
  return payload.empty() ||
         (payload[0] == kContent &&
          std::memcmp(payload.data(), payload.data() + 1, payload.size() - 1) == 0);
}

// Puts a cancellation at some moment of a transfer, of which no event tells.
void BusyWait(double seconds) {
  const Clock::time_point start = Clock::now();
  while (SecondsSince(start) < seconds) continue;
}

// Receives from `peer` for a while; calls `before_accept` once, when the payload is about to be
// taken or does not come. A message that comes in full must have the content sent; an error or
// no message is right too, because one side gives up meanwhile.
void TakeWhatComes(
    Endpoint* endpoint, int peer, const std::function<void()>& before_accept = [] {}) {
  constexpr double kSeconds = 0.02;
  channel::MessageChannel& channel = endpoint->channel();
  char header[kMessageHeaderBytes];
  const auto request = endpoint->StartReceive(peer, header);
  std::vector<std::byte> payload;
  bool is_accepted = false;
  const Clock::time_point start = Clock::now();
  while (is_accepted || SecondsSince(start) < kSeconds) {
    Expect(Clock::now() - start < kTestTimeout, "an accepted payload neither came nor failed");
    TransferState state = TransferState::kPending;
    onebitResult_t result = channel.Progress();
    if (result == onebitSuccess) result = channel.Test(request, &state);
    if (result != onebitSuccess && result != onebitAborted) {  // the request is dead
      if (!is_accepted) before_accept();
      return;
    }
    if (result == onebitSuccess && state == TransferState::kHeader && !is_accepted) {
      size_t header_bytes = 0;
      size_t payload_bytes = 0;
      endpoint->Check(channel.Probe(*request, &header_bytes, &payload_bytes), "Probe");
      payload.assign(payload_bytes, kScribble);
      before_accept();
      result = channel.Accept(request, payload);
      Expect(result == onebitSuccess || result == onebitAborted, "Accept returned ", result);
      is_accepted = true;
    }
    if (result == onebitAborted) {
      endpoint->Cancel(request);
      return;
    }
    if (state == TransferState::kDone) {
      Expect(IsContent(payload), "a payload was read after its sender had it back");
      return;
    }
  }
  before_accept();
  endpoint->Cancel(request);
}

// Tests a send until it is taken or fails. It does not call Wait, which might synchronize what the
// end of the request alone must synchronize.
void TestUntilOver(Endpoint* endpoint, MessageRequest send) {
  channel::MessageChannel& channel = endpoint->channel();
  TransferState state = TransferState::kPending;
  const Clock::time_point start = Clock::now();
  while (channel.Test(send, &state) == onebitSuccess && state != TransferState::kDone) {
    endpoint->Check(channel.Progress(), "Progress");
    std::this_thread::yield();
    Expect(Clock::now() - start < kTestTimeout, "waited too long for the end of a send");
  }
}

}  // namespace

// Nobody receives; the send is cancelled, the buffer scribbled over, and only then does the
// receiver look.
void CancelOfUnreceivedSend(const Subject& subject, OutOfBand& oob) {
  for (const size_t bytes : {size_t{64}, size_t{300'000}}) {
    Endpoint endpoint(subject, oob, bytes);
    std::vector<std::byte> payload(bytes, kContent);
    const auto send = endpoint.StartSend(endpoint.next(), "h", payload.data(), bytes);
    endpoint.Cancel(send);
    std::fill(payload.begin(), payload.end(), kScribble);
    payload = {};  // and freed
    oob.Barrier();
    TakeWhatComes(&endpoint, endpoint.previous());
    oob.Barrier();
  }
}

// The sender cancels at a random moment while the payload is on its way.
void CancelWhilePeerReceives(const Subject& subject, OutOfBand& oob) {
  Random random(subject.seed);
  const double most_seconds = oob.rank() <= 1 ? 1.5 * SecondsOfLongCopy() : 0;
  const int rounds = oob.nranks() <= 3 ? 4 : 2;  // two ranks are busy, the others idle
  for (int round = 0; round < rounds; ++round) {
    const double share = static_cast<double>(random.Next() % 1000) / 1000;
    // A transport may send payloads of medium size in another way.
    const size_t bytes = round % 2 == 0 ? kLongBytes : kLongBytes / 32;
    std::vector<std::byte> payload(oob.rank() == 0 ? bytes : 0, kContent);
    Endpoint endpoint(subject, oob, 100 + static_cast<uint64_t>(round));
    if (endpoint.rank() == 0) {
      const auto send = endpoint.StartSend(1, "h", payload.data(), payload.size());
      oob.Barrier();
      BusyWait(share * most_seconds * static_cast<double>(bytes) / kLongBytes);
      endpoint.Cancel(send);
      std::fill(payload.begin(), payload.end(), kScribble);
    } else if (endpoint.rank() == 1) {
      TakeWhatComes(&endpoint, 0, [&oob] { oob.Barrier(); });
    } else {
      oob.Barrier();
    }
    oob.Barrier();
  }
}

// Close cancels pending requests: the same check, with close of the sender's endpoint instead of
// cancel.
void CloseTakesSendsBack(const Subject& subject, OutOfBand& oob) {
  constexpr size_t kBytes = 300'000;
  Endpoint endpoint(subject, oob);
  std::vector<std::byte> payload(kBytes, kContent);
  if (endpoint.rank() == 0) {
    endpoint.StartSend(1, "h", payload.data(), kBytes);
    endpoint.Close();
    std::fill(payload.begin(), payload.end(), kScribble);
  }
  oob.Barrier();
  if (endpoint.rank() == 1) TakeWhatComes(&endpoint, 0);
  oob.Barrier();
}

// The receiver is aborted by another thread at a random moment while it takes the payload. The
// sender's request ends, and then its buffer is read no more.
void AbortWhileReceiving(const Subject& subject, OutOfBand& oob) {
  Random random(subject.seed);
  const double most_seconds = oob.rank() <= 1 ? 1.5 * SecondsOfLongCopy() : 0;
  const int rounds = oob.nranks() <= 3 ? 4 : 2;  // two ranks are busy, the others idle
  for (int round = 0; round < rounds; ++round) {
    const double share = static_cast<double>(random.Next() % 1000) / 1000;
    std::vector<std::byte> payload(oob.rank() == 0 ? kLongBytes : 0, kContent);
    Endpoint endpoint(subject, oob, 100 + static_cast<uint64_t>(round));
    if (endpoint.rank() == 0) {
      const auto send = endpoint.StartSend(1, "h", payload.data(), payload.size());
      oob.Barrier();
      TestUntilOver(&endpoint, send);
      std::fill(payload.begin(), payload.end(), kScribble);
    } else if (endpoint.rank() == 1) {
      std::jthread watchdog;
      TakeWhatComes(&endpoint, 0, [&] {
        oob.Barrier();
        watchdog = std::jthread([&endpoint, seconds = share * most_seconds] {
          BusyWait(seconds);
          endpoint.channel().Abort();
        });
      });
    } else {
      oob.Barrier();
    }
    oob.Barrier();
  }
}

// After the cancel of a receive, posted or with its header there, nothing is written.
void CancelOfReceive(const Subject& subject, OutOfBand& oob) {
  uint64_t comm_id = 1;
  for (const bool has_header : {false, true}) {
    for (const size_t bytes : {size_t{64}, size_t{300'000}}) {
      Endpoint endpoint(subject, oob, comm_id++);
      std::string header(kMessageHeaderBytes, 'b');
      const std::string payload(bytes, 's');
      if (endpoint.rank() == 1) {
        const auto receive = endpoint.StartReceive(0, header.data());
        if (has_header) {
          oob.Barrier();
          endpoint.Await(receive, TransferState::kHeader);
        }
        endpoint.Cancel(receive);
        header.assign(header.size(), 'x');
        if (!has_header) oob.Barrier();
        for (int i = 0; i < 50; ++i) {
          endpoint.Check(endpoint.channel().Progress(), "Progress");
          endpoint.Check(endpoint.channel().Wait(1), "Wait");
        }
        Expect(header == std::string(header.size(), 'x'), "a header was written after cancel");
      } else {
        oob.Barrier();
        if (endpoint.rank() == 0) endpoint.StartSend(1, "h", payload.data(), payload.size());
      }
      oob.Barrier();
    }
  }
}

}  // namespace onebit::conformance
