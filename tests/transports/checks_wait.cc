// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Checks of Wait: it ends in time, and no event is missed.
#include <string>
#include <thread>

#include "tests/support/process_figures.h"
#include "tests/transports/checks.h"
#include "tests/transports/traffic.h"

namespace onebit::conformance {

void WaitEndsAtItsTimeout(const Subject& subject, OutOfBand& oob) {
  Endpoint endpoint(subject, oob);
  channel::MessageChannel& channel = endpoint.channel();
  endpoint.Check(channel.Wait(0), "Wait");
  // Wait may return early now and then, but not so often that it amounts to polling.
  const Clock::time_point start = Clock::now();
  int waits = 0;
  while (SecondsSince(start) < 0.1) {
    endpoint.Check(channel.Wait(50), "Wait");
    endpoint.Check(channel.Progress(), "Progress");
    ++waits;
  }
  Expect(IsWithin(start, 2000), "waits of 50 ms took ", SecondsSince(start), " s");
  Expect(waits < 20, waits, " waits of 50 ms ended within 0.1 s");
  oob.Barrier();
}

// A message goes round; all other ranks sleep, and none may sleep until the time-out. Odd rounds
// test before they make progress, so that an event found by progress must end the wait as well.
void WaitSeesEveryMessage(const Subject& subject, OutOfBand& oob) {
  constexpr uint64_t kLongMs = 15'000;
  Endpoint endpoint(subject, oob);
  channel::MessageChannel& channel = endpoint.channel();
  const int rounds = 2000 / endpoint.nranks();
  const auto receive = [&](int round) {
    char header[kMessageHeaderBytes];
    const auto request = endpoint.StartReceive(endpoint.previous(), header);
    while (true) {
      if (round % 2 == 0) endpoint.Check(channel.Progress(), "Progress");
      if (endpoint.Test(request) == TransferState::kHeader) break;
      if (round % 2 == 1) endpoint.Check(channel.Progress(), "Progress");
      endpoint.WaitForEvent(kLongMs);
    }
    endpoint.Check(channel.Accept(request, {}), "Accept");
    while (endpoint.Test(request) != TransferState::kDone) {
      endpoint.Check(channel.Progress(), "Progress");
    }
  };
  for (int round = 0; round < rounds; ++round) {
    if (endpoint.rank() != 0) receive(round);
    const auto send = endpoint.StartSend(endpoint.next(), "token", nullptr, 0);
    endpoint.Await(send, TransferState::kDone);
    if (endpoint.rank() == 0) receive(round);
  }
  oob.Barrier();
}

// An event between the last look and Wait must end the wait. Even ranks look, odd ranks cause it.
void WaitSeesEarlierNews(const Subject& subject, OutOfBand& oob) {
  constexpr std::chrono::milliseconds kTimeForNews{20};
  Endpoint endpoint(subject, oob);
  channel::MessageChannel& channel = endpoint.channel();
  const int rank = endpoint.rank();
  const bool is_looking = rank % 2 == 0 && rank + 1 < endpoint.nranks();
  const auto look_until = [&](MessageRequest request, TransferState state) {
    while (true) {
      endpoint.Check(channel.Progress(), "Progress");
      endpoint.WaitForEvent(10'000);
      endpoint.Check(channel.Progress(), "Progress");
      if (endpoint.Test(request) == state) break;
    }
  };

  // A message arrives.
  char header[kMessageHeaderBytes];
  MessageRequest receive = nullptr;
  if (is_looking) {
    receive = endpoint.StartReceive(rank + 1, header);
    endpoint.Check(channel.Wait(1), "Wait");
    Expect(endpoint.Test(receive) == TransferState::kPending, "a message before it was sent");
  }
  oob.Barrier();
  if (rank % 2 == 1) endpoint.Send(rank - 1, "h", "");
  std::this_thread::sleep_for(kTimeForNews);
  if (is_looking) {
    look_until(receive, TransferState::kHeader);
    endpoint.Take(receive, header);
  }
  oob.Barrier();

  // A payload is taken.
  const std::string payload(endpoint.eager_bytes() + 100'000, 's');
  MessageRequest send = nullptr;
  if (is_looking) {
    send = endpoint.StartSend(rank + 1, "h", payload.data(), payload.size());
    endpoint.Check(channel.Wait(1), "Wait");
  }
  oob.Barrier();
  if (rank % 2 == 1) {
    Expect(endpoint.Receive(rank - 1).payload == payload, "a wrong payload");
  }
  std::this_thread::sleep_for(kTimeForNews);
  if (is_looking) look_until(send, TransferState::kDone);
  oob.Barrier();
}

// Like WaitSeesEveryMessage, for the other kind of event: a payload was accepted.
void WaitSeesEverySend(const Subject& subject, OutOfBand& oob) {
  Endpoint endpoint(subject, oob);
  channel::MessageChannel& channel = endpoint.channel();
  const std::string payload(endpoint.eager_bytes() + 10'000, 's');
  const int rounds = 300;
  for (int round = 0; round < rounds; ++round) {
    if (endpoint.rank() == 0) {
      const auto send = endpoint.StartSend(1, Text(round), payload.data(), payload.size());
      while (endpoint.Test(send) != TransferState::kDone) {
        endpoint.WaitForEvent(15'000);
        endpoint.Check(channel.Progress(), "Progress");
      }
    } else if (endpoint.rank() == 1) {
      Expect(endpoint.Receive(0).payload == payload, "a wrong payload");
    }
  }
  oob.Barrier();
}

void WaitEndsOnAbort(const Subject& subject, OutOfBand& oob) {
  Endpoint endpoint(subject, oob);
  char header[kMessageHeaderBytes];
  endpoint.StartReceive(endpoint.next(), header);
  Clock::time_point aborted_at;
  {
    const std::jthread watchdog([&endpoint, &aborted_at] {
      Expect(onebit::testing::AwaitOtherThreadsAsleep(), "Wait does not wait");
      aborted_at = Clock::now();
      endpoint.channel().Abort();
    });
    onebitResult_t result = onebitSuccess;
    const Clock::time_point start = Clock::now();
    // The abort of a peer may end a wait, too, but is no abort of this rank.
    while (result == onebitSuccess && SecondsSince(start) < kTestTimeout.count()) {
      result = endpoint.channel().Wait(kTestTimeout.count() * 1000);
    }
    Expect(result == onebitAborted, "Wait returned ", result);
  }
  Expect(IsWithin(aborted_at, 1000), "Wait ended ", SecondsSince(aborted_at), " s after the abort");
  oob.Barrier();
}

}  // namespace onebit::conformance
