// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A table of transport functions that forwards to `local`, but for the message at fault.
#include "tests/support/faulty_transport.h"

#include <array>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include "plugins/transport_local/local_transport.h"

namespace onebit::testing {
namespace {

using Clock = std::chrono::steady_clock;

const onebitTransport& Local() { return *onebitTransportLocalGet(); }

constexpr size_t kVersionOffset = 4;  // FORMAT.md, section 3

}  // namespace

// Used by its rank's thread, but for abort, which only forwards.
class FaultyTransport::Endpoint {
 public:
  Endpoint(FaultyTransport* owner, int rank) : owner(owner), rank(rank) {}

  FaultyTransport* const owner;
  const int rank;
  void* inner = nullptr;
  // What a lost message's request points at; it is done at once.
  std::byte lost_request{};
  // Of the struck message: must live until its request is done, so as long as the endpoint.
  std::vector<std::byte> damaged_payload;
  Clock::time_point delayed_until{};
  bool has_sent_duplicate = false;
};

namespace {

FaultyTransport::Endpoint& AsEndpoint(void* comm) {
  return *static_cast<FaultyTransport::Endpoint*>(comm);
}

onebitTransportRequest LostRequest(FaultyTransport::Endpoint& endpoint) {
  return reinterpret_cast<onebitTransportRequest>(&endpoint.lost_request);
}

// Arguments of isend, to be damaged.
struct Message {
  std::array<std::byte, ONEBIT_TRANSPORT_HEADER_BYTES> header;
  size_t header_bytes;
  const void* payload;
  size_t payload_bytes;
};

onebitResult_t Forward(FaultyTransport::Endpoint& endpoint, int peer, const Message& message,
                       onebitTransportRequest* request) {
  return Local().isend(endpoint.inner, peer, message.header.data(), message.header_bytes,
                       message.payload, message.payload_bytes, request);
}

void FlipBit(std::byte* bytes, size_t bit) { bytes[bit / 8] ^= std::byte{1} << (bit % 8); }

bool NeedsPayload(Fault::Kind kind) {
  return kind == Fault::Kind::kFlipPayload || kind == Fault::Kind::kCutPayload;
}

}  // namespace

// The functions of the table; a struct, so that they may look inside.
struct FaultyFunctions {
  using Endpoint = FaultyTransport::Endpoint;

  // `init` has no argument of the caller's, and a start is over when it returns.
  static inline thread_local FaultyTransport* starting = nullptr;

  static onebitResult_t Init(const onebitTransportHost* host, void** context) {
    *context = starting;
    return Local().init(host, &starting->inner_context_);
  }
  static onebitResult_t GetProperties(void* context, onebitTransportProperties* properties) {
    return Local().getProperties(static_cast<FaultyTransport*>(context)->inner_context_,
                                 properties);
  }
  static onebitResult_t Finalize(void* context) {
    return Local().finalize(static_cast<FaultyTransport*>(context)->inner_context_);
  }
  static onebitResult_t Open(void* context, const onebitTransportCommInfo* info, void** comm) {
    auto* owner = static_cast<FaultyTransport*>(context);
    auto endpoint = std::make_unique<Endpoint>(owner, info->rank);
    const onebitResult_t result = Local().open(owner->inner_context_, info, &endpoint->inner);
    if (result == onebitSuccess) *comm = endpoint.release();
    return result;
  }
  static onebitResult_t GetAddress(void* comm, void* address, size_t* bytes) {
    return Local().getAddress(AsEndpoint(comm).inner, address, bytes);
  }
  static onebitResult_t Connect(void* comm, const void* const* addresses, const size_t* bytes,
                                uint64_t timeout_ms) {
    return Local().connect(AsEndpoint(comm).inner, addresses, bytes, timeout_ms);
  }

  static onebitResult_t Isend(void* comm, int peer, const void* header, size_t header_bytes,
                              const void* payload, size_t payload_bytes,
                              onebitTransportRequest* request) {
    Endpoint& endpoint = AsEndpoint(comm);
    FaultyTransport& owner = *endpoint.owner;
    const Fault& fault = owner.fault_;
    Message message{{}, header_bytes, payload, payload_bytes};
    std::memcpy(message.header.data(), header, header_bytes);
    if (fault.kind == Fault::Kind::kNone || endpoint.rank != fault.rank) {
      return Forward(endpoint, peer, message, request);
    }
    const bool needs_payload = NeedsPayload(fault.kind);
    const bool is_counted = !needs_payload || payload_bytes != 0;
    std::atomic<uint64_t>& count = needs_payload ? owner.counts_.payloads : owner.counts_.messages;
    const bool is_struck = is_counted && count == fault.message;
    const onebitResult_t result = is_struck ? Strike(endpoint, peer, message, request)
                                            : Forward(endpoint, peer, message, request);
    if (result == onebitSuccess && is_counted) ++count;
    if (result == onebitSuccess && is_struck) owner.struck_peer_ = peer;
    return result;
  }

  static onebitResult_t Strike(Endpoint& endpoint, int peer, Message message,
                               onebitTransportRequest* request) {
    const Fault& fault = endpoint.owner->fault_;
    const auto* payload = static_cast<const std::byte*>(message.payload);
    switch (fault.kind) {
      case Fault::Kind::kNone:
        break;
      case Fault::Kind::kFlipHeader:
        FlipBit(message.header.data(), fault.bit % (message.header_bytes * 8));
        break;
      case Fault::Kind::kSetVersion:
        message.header[kVersionOffset] = static_cast<std::byte>(fault.bit);
        break;
      case Fault::Kind::kFlipPayload:
        endpoint.damaged_payload.assign(payload, payload + message.payload_bytes);
        FlipBit(endpoint.damaged_payload.data(), fault.bit % (message.payload_bytes * 8));
        message.payload = endpoint.damaged_payload.data();
        break;
      case Fault::Kind::kCutPayload:
        --message.payload_bytes;
        break;
      case Fault::Kind::kDuplicate:
        return SendTwice(endpoint, peer, message, request);
      case Fault::Kind::kDrop:
        *request = LostRequest(endpoint);
        return onebitSuccess;
      case Fault::Kind::kDelay:
        if (endpoint.delayed_until == Clock::time_point{}) {
          endpoint.delayed_until = Clock::now() + std::chrono::milliseconds(fault.delay_ms);
        }
        if (Clock::now() < endpoint.delayed_until) return onebitInProgress;
        break;
      case Fault::Kind::kRefuse:
        endpoint.owner->struck_peer_ = peer;
        return onebitSystemError;
    }
    return Forward(endpoint, peer, message, request);
  }

  static onebitResult_t SendTwice(Endpoint& endpoint, int peer, const Message& message,
                                  onebitTransportRequest* request) {
    if (!endpoint.has_sent_duplicate) {
      Message copy = message;
      if (message.payload_bytes != 0) {
        const auto* payload = static_cast<const std::byte*>(message.payload);
        endpoint.damaged_payload.assign(payload, payload + message.payload_bytes);
        copy.payload = endpoint.damaged_payload.data();
      }
      onebitTransportRequest unwatched = nullptr;  // ends when the endpoint is closed
      const onebitResult_t result = Forward(endpoint, peer, copy, &unwatched);
      if (result != onebitSuccess) return result;
      endpoint.has_sent_duplicate = true;
    }
    return Forward(endpoint, peer, message, request);
  }

  static onebitResult_t Irecv(void* comm, int peer, void* header, size_t capacity,
                              onebitTransportRequest* request) {
    return Local().irecv(AsEndpoint(comm).inner, peer, header, capacity, request);
  }
  static onebitResult_t Probe(void* comm, onebitTransportRequest request, size_t* header_bytes,
                              size_t* payload_bytes) {
    return Local().probe(AsEndpoint(comm).inner, request, header_bytes, payload_bytes);
  }
  static onebitResult_t Accept(void* comm, onebitTransportRequest request, void* payload,
                               size_t payload_bytes) {
    return Local().accept(AsEndpoint(comm).inner, request, payload, payload_bytes);
  }
  static onebitResult_t Test(void* comm, onebitTransportRequest request,
                             onebitTransportState* state) {
    if (request == LostRequest(AsEndpoint(comm))) {
      *state = onebitTransportDone;
      return onebitSuccess;
    }
    return Local().test(AsEndpoint(comm).inner, request, state);
  }
  static onebitResult_t Cancel(void* comm, onebitTransportRequest request) {
    if (request == LostRequest(AsEndpoint(comm))) return onebitSuccess;
    return Local().cancel(AsEndpoint(comm).inner, request);
  }
  static onebitResult_t Progress(void* comm) { return Local().progress(AsEndpoint(comm).inner); }
  static onebitResult_t Wait(void* comm, uint64_t timeout_ms) {
    return Local().wait(AsEndpoint(comm).inner, timeout_ms);
  }
  static onebitResult_t Abort(void* comm) { return Local().abort(AsEndpoint(comm).inner); }
  static onebitResult_t Close(void* comm) {
    Endpoint* endpoint = &AsEndpoint(comm);
    const onebitResult_t result = Local().close(endpoint->inner);
    delete endpoint;
    return result;
  }
  static onebitResult_t GetCounters(void* comm, uint64_t* bytes_sent, uint64_t* messages_sent) {
    return Local().getCounters(AsEndpoint(comm).inner, bytes_sent, messages_sent);
  }

  static onebitResult_t DescribePeer(void* comm, int peer, char* text, size_t capacity) {
    return Local().describePeer(AsEndpoint(comm).inner, peer, text, capacity);
  }

  static constexpr onebitTransport kTable{
      .structSize = sizeof(onebitTransport),
      .abiVersion = ONEBIT_TRANSPORT_ABI_VERSION,
      .init = Init,
      .getProperties = GetProperties,
      .finalize = Finalize,
      .open = Open,
      .getAddress = GetAddress,
      .connect = Connect,
      .isend = Isend,
      .irecv = Irecv,
      .probe = Probe,
      .accept = Accept,
      .test = Test,
      .cancel = Cancel,
      .progress = Progress,
      .wait = Wait,
      .abort = Abort,
      .close = Close,
      .getCounters = GetCounters,
      .describePeer = DescribePeer,
  };
};

FaultyTransport::FaultyTransport() {
  FaultyFunctions::starting = this;
  auto started = Transport::Start(&FaultyFunctions::kTable);
  if (!started.ok()) throw std::runtime_error(started.status().text());
  transport_ = std::move(started).value();
}

FaultyTransport::~FaultyTransport() {
  EXPECT_EQ(transport_.functions().finalize(transport_.context()), onebitSuccess)
      << "an endpoint was not closed";
}

void FaultyTransport::Arm(const Fault& fault) {
  fault_ = fault;
  counts_.messages = 0;
  counts_.payloads = 0;
  struck_peer_ = -1;
}

std::ostream& operator<<(std::ostream& out, Fault::Kind kind) {
  switch (kind) {
    case Fault::Kind::kNone:
      return out << "none";
    case Fault::Kind::kFlipHeader:
      return out << "flipped header bit";
    case Fault::Kind::kFlipPayload:
      return out << "flipped payload bit";
    case Fault::Kind::kSetVersion:
      return out << "other version";
    case Fault::Kind::kCutPayload:
      return out << "cut payload";
    case Fault::Kind::kDuplicate:
      return out << "duplicate";
    case Fault::Kind::kDrop:
      return out << "lost message";
    case Fault::Kind::kDelay:
      return out << "late message";
    case Fault::Kind::kRefuse:
      return out << "refused message";
  }
  return out;
}

}  // namespace onebit::testing
