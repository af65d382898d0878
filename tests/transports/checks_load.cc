// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Checks with many messages: full rings, random load, counters, and leaks.
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/transports/checks.h"
#include "tests/transports/traffic.h"

namespace onebit::conformance {
namespace {

uint64_t ResidentBytes() {
  uint64_t total = 0;
  uint64_t resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

// A sender that outruns its receiver gets onebitInProgress and is woken when there is room again:
// it sleeps with a time-out longer than the check may take. A transport that buffers more than the
// check sends passes too.
void FullThenRoom(const Subject& subject, OutOfBand& oob) {
  constexpr int kMessages = 400;
  Endpoint endpoint(subject, oob);
  channel::MessageChannel& channel = endpoint.channel();
  if (endpoint.rank() == 0) {
    int sent = 0;
    const auto try_to_send = [&] {
      const std::string header = Text(sent);
      MessageRequest request = nullptr;
      const onebitResult_t result = channel.Send(1, BytesOf(header), {}, &request);
      if (result == onebitInProgress) return false;
      endpoint.Check(result, "Send");
      endpoint.Await(request, TransferState::kDone);
      ++sent;
      return true;
    };
    while (sent < kMessages && try_to_send()) continue;
    oob.Barrier();
    while (sent < kMessages) {
      if (try_to_send()) continue;
      endpoint.Check(channel.Progress(), "Progress");
      endpoint.WaitForEvent(10'000);  // such as room for the next one
    }
  } else {
    oob.Barrier();
    for (int i = 0; endpoint.rank() == 1 && i < kMessages; ++i) {
      Expect(endpoint.Receive(0).header == Text(i), "message ", i, " is out of order");
    }
  }
  oob.Barrier();
}

// The sender fills the ring while the receiver takes the first half of what is sent, and stops.
// These sends must then be reported done although later sends have taken their slots in the ring,
// even if a slot became free in the middle of the call that looked for one.
void FullRingForgetsNoSend(const Subject& subject, OutOfBand& oob) {
  constexpr int kBatches = 1500;
  constexpr size_t kHalf = 8;
  constexpr std::chrono::seconds kEnough{3};  // ranks that poll for a core may need minutes
  Endpoint endpoint(subject, oob);
  const Clock::time_point start = Clock::now();
  const std::vector<char> payload(endpoint.eager_bytes() + 1, 'x');
  for (int batch = 0; batch < kBatches; ++batch) {
    std::vector<MessageRequest> requests;
    // Sends as much of the second half as there is room for.
    for (int tries = 0; endpoint.rank() == 0 && requests.size() < 2 * kHalf;) {
      if (requests.size() >= kHalf && ++tries > 200) break;
      MessageRequest request = nullptr;
      const onebitResult_t result =
          endpoint.channel().Send(1, {}, BytesOf(payload.data(), payload.size()), &request);
      if (result == onebitInProgress) continue;
      endpoint.Check(result, "Send");
      requests.push_back(request);
    }
    if (endpoint.rank() == 0) {
      for (size_t i = 0; i < kHalf; ++i) endpoint.Await(requests[i], TransferState::kDone);
    } else if (endpoint.rank() == 1) {
      for (size_t i = 0; i < kHalf; ++i) static_cast<void>(endpoint.Receive(0));
    }
    const bool is_last =
        oob.Exchange(Clock::now() - start > kEnough ? "last" : "").front() == "last";
    if (endpoint.rank() == 0) {
      while (requests.size() < 2 * kHalf) {
        requests.push_back(endpoint.StartSend(1, "", payload.data(), payload.size()));
      }
      for (size_t i = kHalf; i < 2 * kHalf; ++i) endpoint.Await(requests[i], TransferState::kDone);
    } else if (endpoint.rank() == 1) {
      for (size_t i = 0; i < kHalf; ++i) static_cast<void>(endpoint.Receive(0));
    }
    if (is_last) break;
  }
  oob.Barrier();
}

// Sends that are done arrive without further progress of their rank, however full the queues to
// the receiver were when they started.
void SendsDoneNeedNoProgress(const Subject& subject, OutOfBand& oob) {
  constexpr int kMessages = 30;  // fewer than any window, so none is refused for long
  Endpoint endpoint(subject, oob);
  const std::vector<char> payload(endpoint.eager_bytes(), 'x');
  if (endpoint.rank() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the others run ahead
    for (int i = 0; i < kMessages; ++i) {
      for (int sender = 1; sender < endpoint.nranks(); ++sender) {
        Expect(endpoint.Receive(sender).header == Text(i), "message ", i, " of rank ", sender,
               " is out of order");
      }
    }
  } else {
    std::vector<MessageRequest> requests;
    for (int i = 0; i < kMessages; ++i) {
      requests.push_back(endpoint.StartSend(0, Text(i), payload.data(), payload.size()));
    }
    for (MessageRequest request : requests) endpoint.Await(request, TransferState::kDone);
  }
  oob.Barrier();
}

void StormOfRandomSizes(const Subject& subject, OutOfBand& oob) {
  Endpoint endpoint(subject, oob);
  const size_t messages = 600 / static_cast<size_t>(endpoint.nranks());
  Traffic(&endpoint,
          {.seed = subject.seed, .messages_per_pair = messages, .most_payload_bytes = 65536})
      .Run();
}

void TwoCommunicators(const Subject& subject, OutOfBand& oob) {
  Endpoint first(subject, oob, 1);
  Endpoint second(subject, oob, 2);
  Traffic traffic_of_first(
      &first, {.seed = subject.seed + 1, .messages_per_pair = 60, .most_payload_bytes = 16384});
  Traffic traffic_of_second(
      &second, {.seed = subject.seed + 2, .messages_per_pair = 60, .most_payload_bytes = 16384});
  const Clock::time_point start = Clock::now();
  while (!traffic_of_first.is_over() || !traffic_of_second.is_over()) {
    const bool has_first_changed = traffic_of_first.Step();
    const bool has_second_changed = traffic_of_second.Step();
    if (has_first_changed || has_second_changed) continue;
    Expect(SecondsSince(start) < kTestTimeout.count(), "the messages did not end");
    // The thread drives several endpoints and sleeps at one, so it sleeps briefly.
    first.Check(first.channel().Wait(1), "Wait");
  }
  oob.Barrier();
}

void CountersTellBytes(const Subject& subject, OutOfBand& oob) {
  Endpoint endpoint(subject, oob);
  const channel::MessageChannel& channel = endpoint.channel();
  Expect(channel.bytes_sent() == 0 && channel.messages_sent() == 0, "the counters begin with ",
         channel.bytes_sent(), " and ", channel.messages_sent());
  Traffic traffic(&endpoint, {.seed = subject.seed,
                              .messages_per_pair = 30,
                              .most_payload_bytes = 4 * endpoint.eager_bytes() + 100});
  traffic.Run();
  Expect(channel.bytes_sent() == traffic.bytes(), "counted ", channel.bytes_sent(), " bytes, sent ",
         traffic.bytes());
  Expect(channel.messages_sent() == traffic.messages(), "counted ", channel.messages_sent(),
         " messages, sent ", traffic.messages());
  oob.Barrier();
}

void MessagesAllocateNothing(const Subject& subject, OutOfBand& oob) {
  if (subject.allocations == nullptr) return;
  Endpoint endpoint(subject, oob);
  const TrafficPlan plan{.seed = subject.seed,
                         .messages_per_pair = 40,
                         .most_payload_bytes = 4 * endpoint.eager_bytes() + 100};
  Traffic warm_up(&endpoint, plan);
  warm_up.Run();
  Traffic steady(&endpoint, plan);
  const uint64_t before = subject.allocations();
  steady.Run();
  const uint64_t allocations = subject.allocations() - before;
  Expect(allocations == 0, "rank ", endpoint.rank(), ": ", steady.messages(), " messages made ",
         allocations, " heap allocations");
  oob.Barrier();
}

void OpenAndCloseOften(const Subject& subject, OutOfBand& oob) {
  const int rounds = 1 + subject.open_close_rounds / oob.nranks();
  const int warm_up_rounds = 1 + rounds / 10;
  uint64_t resident_before = 0;
  for (int round = 0; round < rounds; ++round) {
    if (round == warm_up_rounds) {
      oob.Barrier();
      resident_before = ResidentBytes();
    }
    Endpoint endpoint(subject, oob, 100 + static_cast<uint64_t>(round));
    const std::string header = Text(round);
    const auto send = endpoint.StartSend(endpoint.next(), header, nullptr, 0);
    Expect(endpoint.Receive(endpoint.previous()).header == header, "a wrong message");
    endpoint.Await(send, TransferState::kDone);
  }
  oob.Barrier();
  const uint64_t resident = ResidentBytes();
  Expect(subject.most_leaked_bytes == 0 || rounds <= warm_up_rounds ||
             resident <= resident_before + subject.most_leaked_bytes,
         rounds, " rounds left ", resident - resident_before, " bytes behind");
}

}  // namespace onebit::conformance
