// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Checks of the end of endpoints: abort, close, and what peers see of them.
#include <string>
#include <vector>

#include "tests/transports/checks.h"
#include "tests/transports/test_endpoint.h"

namespace onebit::conformance {
namespace {

constexpr size_t kLargeBytes = 300'000;

bool IsPeerFailure(onebitResult_t result) {
  return result == onebitRemoteError || result == onebitPeerLost;
}

// All ranks but 0 wait for rank 0, and rank 1 also sends it a payload. Then `end_rank_0` runs, and
// all of them must get errors.
template <typename End>
void ExpectPeersNotice(Endpoint* endpoint, OutOfBand& oob, End end_rank_0) {
  if (endpoint->rank() == 0) {
    oob.Barrier();
    end_rank_0();
    oob.Barrier();
    return;
  }
  char header[kMessageHeaderBytes];
  const std::string payload(kLargeBytes, 's');
  const auto receive = endpoint->StartReceive(0, header);
  MessageRequest send = nullptr;
  if (endpoint->rank() == 1) send = endpoint->StartSend(0, "h", payload.data(), payload.size());
  oob.Barrier();
  const Clock::time_point start = Clock::now();
  const onebitResult_t result = endpoint->AwaitError(receive);
  Expect(IsPeerFailure(result), "a receive from a peer that ended failed with ", result);
  Expect(IsPeerFailure(endpoint->peer_error(0)), "the sink was not told, or of error ",
         endpoint->peer_error(0));
  if (send != nullptr) {
    const onebitResult_t send_result = endpoint->AwaitError(send);
    Expect(IsPeerFailure(send_result), "a send to a peer that ended failed with ", send_result);
  }
  Expect(IsWithin(start, 5000), "rank ", endpoint->rank(), " noticed after ", SecondsSince(start),
         " s");
  oob.Barrier();
}

}  // namespace

void AbortedCallsFail(const Subject& subject, OutOfBand& oob) {
  Endpoint endpoint(subject, oob);
  channel::MessageChannel& channel = endpoint.channel();
  char first_header[kMessageHeaderBytes];
  char second_header[kMessageHeaderBytes];
  std::string payload(kLargeBytes, 's');
  std::string taken(kLargeBytes, 'b');
  const auto send = endpoint.StartSend(endpoint.next(), "h", payload.data(), payload.size());
  const auto receive = endpoint.StartReceive(endpoint.previous(), first_header);
  endpoint.Await(receive, TransferState::kHeader);
  oob.Barrier();

  endpoint.Check(channel.Abort(), "Abort");
  endpoint.Check(channel.Abort(), "a second abort");
  MessageRequest request = nullptr;
  TransferState state;
  size_t header_bytes = 0;
  size_t payload_bytes = 0;
  const auto expect_aborted = [](onebitResult_t result, const char* call) {
    Expect(result == onebitAborted, call, " returned ", result, " after an abort");
  };
  expect_aborted(channel.Send(endpoint.next(), BytesOf("h"), {}, &request), "Send");
  expect_aborted(channel.Receive(endpoint.previous(),
                                 WritableBytesOf(second_header, sizeof second_header), &request),
                 "Receive");
  expect_aborted(channel.Probe(*receive, &header_bytes, &payload_bytes), "Probe");
  expect_aborted(channel.Accept(receive, WritableBytesOf(taken.data(), taken.size())), "Accept");
  expect_aborted(channel.Test(receive, &state), "Test");
  expect_aborted(channel.Progress(), "Progress");
  expect_aborted(channel.Wait(10'000), "Wait");
  endpoint.Cancel(send);
  endpoint.Cancel(receive);
  payload.assign(payload.size(), 'x');
  Expect(taken == std::string(taken.size(), 'b'), "an aborted accept wrote the payload");
  const uint64_t messages = channel.messages_sent();
  Expect(messages == 1, "counted ", messages, " messages after an abort");
  oob.Barrier();
}

void PeersNoticeAbort(const Subject& subject, OutOfBand& oob) {
  Endpoint endpoint(subject, oob);
  ExpectPeersNotice(&endpoint, oob,
                    [&endpoint] { endpoint.Check(endpoint.channel().Abort(), "Abort"); });
}

void PeersNoticeClose(const Subject& subject, OutOfBand& oob) {
  Endpoint endpoint(subject, oob);
  ExpectPeersNotice(&endpoint, oob, [&endpoint] { endpoint.Close(); });
}

// Ranks close one after the other. While no message to or from a closed peer is pending, no rank
// gets an error, and the others go on.
void OrderlyCloseIsSilent(const Subject& subject, OutOfBand& oob) {
  Endpoint endpoint(subject, oob);
  for (int closing = 0; closing < endpoint.nranks(); ++closing) {
    if (endpoint.rank() == closing) endpoint.Close();
    oob.Barrier();
    if (endpoint.rank() <= closing) continue;
    endpoint.Check(endpoint.channel().Progress(), "Progress");
    endpoint.Check(endpoint.channel().Wait(1), "Wait");
    // A ring of the remaining ranks; the last one sends to itself.
    const int peer = endpoint.rank() + 1 < endpoint.nranks() ? endpoint.rank() + 1 : closing + 1;
    const int source = endpoint.rank() > closing + 1 ? endpoint.rank() - 1 : endpoint.nranks() - 1;
    const auto send = endpoint.StartSend(peer, Text(closing), nullptr, 0);
    Expect(endpoint.Receive(source).header == Text(closing), "a wrong message");
    endpoint.Await(send, TransferState::kDone);
    for (int gone = 0; gone <= closing; ++gone) {
      Expect(endpoint.peer_error(gone) == onebitSuccess, "rank ", endpoint.rank(),
             " was told of the orderly close of rank ", gone);
    }
  }
  oob.Barrier();
}

void SentBeforeCloseArrives(const Subject& subject, OutOfBand& oob) {
  if (!subject.delivers_after_close) return;
  constexpr int kMessages = 5;
  Endpoint endpoint(subject, oob);
  if (endpoint.rank() == 0) {
    for (int i = 0; i < kMessages; ++i) endpoint.Send(1, Text(i), "");
    endpoint.Close();
  }
  oob.Barrier();
  if (endpoint.rank() == 1) {
    for (int i = 0; i < kMessages; ++i) {
      Expect(endpoint.Receive(0).header == Text(i), "message ", i, " is wrong");
    }
    char header[kMessageHeaderBytes];
    const onebitResult_t result = endpoint.AwaitError(endpoint.StartReceive(0, header));
    Expect(IsPeerFailure(result), "a receive after the last message failed with ", result);
  }
  oob.Barrier();
}

}  // namespace onebit::conformance
