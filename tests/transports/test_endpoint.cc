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
    : api_(*subject.messages),
      rank_(oob.rank()),
      nranks_(oob.nranks()),
      peer_errors_(static_cast<size_t>(nranks_)) {
  const onebitTransportProperties& properties = subject.properties;
  eager_bytes_ = properties.eagerBytes;
  const MessageInfo info{.rank = rank_,
                         .nranks = nranks_,
                         .comm_id = comm_id,
                         .peer_error = OnPeerError,
                         .peer_error_argument = this};
  Check(api_.open(subject.context, &info, &comm_), "open");
  try {
    std::string address(properties.addressBytes, '\0');
    size_t address_bytes = 0;
    Check(api_.getAddress(comm_, address.data(), &address_bytes), "getAddress");
    Expect(address_bytes <= properties.addressBytes, "the address is longer than announced");
    address.resize(address_bytes);
    const std::vector<std::string> all = oob.Exchange(address);
    std::vector<const void*> addresses;
    std::vector<size_t> bytes;
    for (const std::string& one : all) {
      addresses.push_back(one.data());
      bytes.push_back(one.size());
    }
    Check(api_.connect(comm_, addresses.data(), bytes.data(), 10'000), "connect");
    oob.Barrier();
  } catch (...) {
    Close();
    throw;
  }
}

void Endpoint::Close() {
  if (comm_ == nullptr) return;
  api_.close(comm_);
  comm_ = nullptr;
}

MessageRequest Endpoint::Isend(int peer, std::string_view header, const void* payload,
                               size_t payload_bytes) {
  MessageRequest request = nullptr;
  Until("room to send", [&] {
    const onebitResult_t result =
        api_.isend(comm_, peer, header.data(), header.size(), payload, payload_bytes, &request);
    if (result == onebitInProgress) return false;
    Check(result, "isend");
    return true;
  });
  return request;
}

MessageRequest Endpoint::Irecv(int peer, void* header) {
  MessageRequest request = nullptr;
  Check(api_.irecv(comm_, peer, header, kMessageHeaderBytes, &request), "irecv");
  return request;
}

TransferState Endpoint::Test(MessageRequest request) {
  TransferState state = TransferState::kPending;
  Check(api_.test(comm_, request, &state), "test");
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
    result = api_.test(comm_, request, &state);
    Expect(result != onebitSuccess || state == TransferState::kPending, "rank ", rank_,
           ": a request that must fail is in state ", static_cast<int>(state));
    return result != onebitSuccess;
  });
  return result;
}

void Endpoint::Cancel(MessageRequest request) {
  const Clock::time_point start = Clock::now();
  Check(api_.cancel(comm_, request), "cancel");
  Expect(IsWithin(start, 1000), "rank ", rank_, ": cancel took ", SecondsSince(start), " s");
}

void Endpoint::WaitForEvent(uint64_t timeout_ms) {
  const Clock::time_point start = Clock::now();
  Check(api_.wait(comm_, timeout_ms), "wait");
  Expect(SecondsSince(start) < 1e-3 * static_cast<double>(timeout_ms), "rank ", rank_,
         ": wait slept through an event");
}

void Endpoint::Send(int peer, std::string_view header, std::string_view payload) {
  Await(Isend(peer, header, payload.data(), payload.size()), TransferState::kDone);
}

Endpoint::Message Endpoint::Receive(int peer) {
  char header[kMessageHeaderBytes];
  const MessageRequest request = Irecv(peer, header);
  Await(request, TransferState::kHeader);
  return Take(request, header);
}

Endpoint::Message Endpoint::Take(MessageRequest request, const void* header) {
  size_t header_bytes = 0;
  size_t payload_bytes = 0;
  Check(api_.probe(comm_, request, &header_bytes, &payload_bytes), "probe");
  Message message{.header = std::string(static_cast<const char*>(header), header_bytes),
                  .payload = std::string(payload_bytes, '\0')};
  Check(api_.accept(comm_, request, message.payload.data(), payload_bytes), "accept");
  Await(request, TransferState::kDone);
  return message;
}

void Endpoint::Check(onebitResult_t result, const char* call) const {
  Expect(result == onebitSuccess, "rank ", rank_, ": ", call, " returned ", result);
}

void Endpoint::OnPeerError(void* argument, int peer, onebitResult_t result, const char* text) {
  auto* endpoint = static_cast<Endpoint*>(argument);
  if (peer < 0 || peer >= endpoint->nranks_ || text == nullptr) return;
  endpoint->peer_errors_[static_cast<size_t>(peer)] = result;
}

}  // namespace onebit::conformance
