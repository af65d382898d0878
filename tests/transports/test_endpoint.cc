// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// One rank's endpoint in a conformance check.
#include "tests/transports/test_endpoint.h"

#include "tests/support/deadlines.h"

namespace onebit::conformance {

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The probe of PacedMs takes a while, so it runs only where it matters.
bool IsWithin(Clock::time_point start, uint64_t idle_ms) {
  const double seconds = SecondsSince(start);
  return seconds <= 1e-3 * static_cast<double>(idle_ms) ||
         seconds <= 1e-3 * static_cast<double>(testing::PacedMs(idle_ms));
}

Endpoint::Endpoint(const Subject& subject, OutOfBand& oob, uint64_t comm_id)
    : rank_(oob.rank()), nranks_(oob.nranks()), peer_errors_(static_cast<size_t>(nranks_)) {
  const onebitTransportProperties& properties = subject.properties;
  eager_bytes_ = properties.eagerBytes;
  const channel::ChannelInfo info{
      .rank = rank_, .nranks = nranks_, .comm_id = comm_id, .sink = this};
  Check(subject.channels->Open(info, &channel_), "Open");
  std::string address(properties.addressBytes, '\0');
  size_t address_bytes = 0;
  Check(channel_->GetAddress(address.data(), &address_bytes), "GetAddress");
  Expect(address_bytes <= properties.addressBytes, "the address is longer than announced");
  address.resize(address_bytes);
  std::vector<std::vector<std::byte>> addresses;
  for (const std::string& one : oob.Exchange(address)) {
    addresses.push_back(testing::CopyOf(BytesOf(one)));
  }
  Check(channel_->Connect(addresses, 10'000), "Connect");
  oob.Barrier();
}

void Endpoint::Close() { channel_.reset(); }

MessageRequest Endpoint::StartSend(int peer, std::string_view header, const void* payload,
                                   size_t payload_bytes) {
  MessageRequest request = nullptr;
  Until("room to send", [&] {
    const onebitResult_t result =
        channel_->Send(peer, BytesOf(header), BytesOf(payload, payload_bytes), &request);
    if (result == onebitInProgress) return false;
    Check(result, "Send");
    return true;
  });
  return request;
}

MessageRequest Endpoint::StartReceive(int peer, void* header) {
  MessageRequest request = nullptr;
  Check(channel_->Receive(peer, WritableBytesOf(header, kMessageHeaderBytes), &request), "Receive");
  return request;
}

TransferState Endpoint::Test(MessageRequest request) {
  TransferState state = TransferState::kPending;
  Check(channel_->Test(request, &state), "Test");
  return state;
}

void Endpoint::Await(MessageRequest request, TransferState state) {
  Until("a request", [&] {
    const TransferState now = Test(request);
    Expect(now == state || now == TransferState::kPending, "rank ", rank_,
           ": a request is in state ", static_cast<int>(now), ", not ", static_cast<int>(state));
    return now == state;
  });
}

onebitResult_t Endpoint::AwaitError(MessageRequest request) {
  onebitResult_t result = onebitSuccess;
  Until("an error", [&] {
    TransferState state = TransferState::kPending;
    result = channel_->Test(request, &state);
    Expect(result != onebitSuccess || state == TransferState::kPending, "rank ", rank_,
           ": a request that must fail is in state ", static_cast<int>(state));
    return result != onebitSuccess;
  });
  return result;
}

void Endpoint::Cancel(MessageRequest request) {
  const Clock::time_point start = Clock::now();
  Check(channel_->Cancel(request), "Cancel");
  Expect(IsWithin(start, 1000), "rank ", rank_, ": Cancel took ", SecondsSince(start), " s");
}

void Endpoint::WaitForEvent(uint64_t timeout_ms) {
  const Clock::time_point start = Clock::now();
  Check(channel_->Wait(timeout_ms), "Wait");
  Expect(SecondsSince(start) < 1e-3 * static_cast<double>(timeout_ms), "rank ", rank_,
         ": Wait slept through an event");
}

void Endpoint::Send(int peer, std::string_view header, std::string_view payload) {
  Await(StartSend(peer, header, payload.data(), payload.size()), TransferState::kDone);
}

Endpoint::Message Endpoint::Receive(int peer) {
  char header[kMessageHeaderBytes];
  const MessageRequest request = StartReceive(peer, header);
  Await(request, TransferState::kHeader);
  return Take(request, header);
}

Endpoint::Message Endpoint::Take(MessageRequest request, const void* header) {
  size_t header_bytes = 0;
  size_t payload_bytes = 0;
  Check(channel_->Probe(*request, &header_bytes, &payload_bytes), "Probe");
  Message message{.header = std::string(static_cast<const char*>(header), header_bytes),
                  .payload = std::string(payload_bytes, '\0')};
  Check(channel_->Accept(request, WritableBytesOf(message.payload.data(), payload_bytes)),
        "Accept");
  Await(request, TransferState::kDone);
  return message;
}

void Endpoint::Check(onebitResult_t result, const char* call) const {
  Expect(result == onebitSuccess, "rank ", rank_, ": ", call, " returned ", result);
}

void Endpoint::OnPeerError(int peer, Code code, const char* text) {
  if (peer < 0 || peer >= nranks_ || text == nullptr) return;
  peer_errors_[static_cast<size_t>(peer)] = static_cast<onebitResult_t>(code);
}

}  // namespace onebit::conformance
