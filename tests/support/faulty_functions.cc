// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/faulty_functions.h"

#include <memory>

#include "tests/support/faulty_endpoint.h"

namespace onebit::testing {
namespace {

FaultyContext& AsContext(void* context) { return *static_cast<FaultyContext*>(context); }
FaultyEndpoint& AsEndpoint(void* comm) { return *static_cast<FaultyEndpoint*>(comm); }

onebitResult_t Open(void* context, const MessageInfo* info, void** comm) {
  FaultyContext& owner = AsContext(context);
  const int comm_number = owner.comms++;
  const bool is_spared = owner.only_comm && *owner.only_comm != comm_number;
  const MessageFunctions* const inner = owner.inner.messages();
  auto endpoint =
      std::make_unique<FaultyEndpoint>(is_spared ? &owner.no_faults : &owner.faults, inner, *info);
  const onebitResult_t result = inner->open(owner.inner.message_context(), info, &endpoint->inner);
  if (result == onebitSuccess) *comm = endpoint.release();
  return result;
}

onebitResult_t GetAddress(void* comm, void* address, size_t* bytes) {
  return AsEndpoint(comm).functions().getAddress(AsEndpoint(comm).inner, address, bytes);
}

onebitResult_t Connect(void* comm, const void* const* addresses, const size_t* bytes,
                       uint64_t timeout_ms) {
  FaultyEndpoint& endpoint = AsEndpoint(comm);
  return endpoint.functions().connect(endpoint.inner, addresses, bytes, timeout_ms);
}

onebitResult_t Isend(void* comm, int peer, const void* header, size_t header_bytes,
                     const void* payload, size_t payload_bytes, MessageRequest* request) {
  return AsEndpoint(comm).Send(peer, header, header_bytes, payload, payload_bytes, request);
}

onebitResult_t Irecv(void* comm, int peer, void* header, size_t capacity, MessageRequest* request) {
  return AsEndpoint(comm).Receive(peer, header, capacity, request);
}

onebitResult_t Probe(void* comm, MessageRequest request, size_t* header_bytes,
                     size_t* payload_bytes) {
  FaultyEndpoint& endpoint = AsEndpoint(comm);
  return endpoint.functions().probe(endpoint.inner, request, header_bytes, payload_bytes);
}

onebitResult_t Accept(void* comm, MessageRequest request, void* payload, size_t payload_bytes) {
  FaultyEndpoint& endpoint = AsEndpoint(comm);
  return endpoint.functions().accept(endpoint.inner, request, payload, payload_bytes);
}

onebitResult_t Test(void* comm, MessageRequest request, TransferState* state) {
  return AsEndpoint(comm).Test(request, state);
}

onebitResult_t Cancel(void* comm, MessageRequest request) {
  return AsEndpoint(comm).Cancel(request);
}

onebitResult_t Progress(void* comm) { return AsEndpoint(comm).Progress(); }

onebitResult_t Wait(void* comm, uint64_t timeout_ms) { return AsEndpoint(comm).Wait(timeout_ms); }

onebitResult_t Abort(void* comm) {
  return AsEndpoint(comm).functions().abort(AsEndpoint(comm).inner);
}

onebitResult_t Close(void* comm) {
  const std::unique_ptr<FaultyEndpoint> ending(&AsEndpoint(comm));
  return ending->functions().close(ending->inner);
}

onebitResult_t GetCounters(void* comm, uint64_t* bytes_sent, uint64_t* messages_sent) {
  FaultyEndpoint& endpoint = AsEndpoint(comm);
  return endpoint.functions().getCounters(endpoint.inner, bytes_sent, messages_sent);
}

onebitResult_t DescribePeer(void* comm, int peer, char* text, size_t capacity) {
  FaultyEndpoint& endpoint = AsEndpoint(comm);
  return endpoint.functions().describePeer(endpoint.inner, peer, text, capacity);
}

}  // namespace

constinit const MessageFunctions kFaultyFunctions{
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
    .iallreduce = nullptr,
};

}  // namespace onebit::testing
