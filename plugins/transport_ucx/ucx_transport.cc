// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The transport's table of C functions: checks arguments, keeps exceptions inside.
#include "plugins/transport_ucx/ucx_transport.h"

#include <memory>
#include <new>

#include "plugins/transport_ucx/context.h"
#include "plugins/transport_ucx/endpoint.h"

namespace onebit::ucx {
namespace {

Endpoint* AsEndpoint(void* comm) { return static_cast<Endpoint*>(comm); }
Request* AsRequest(onebitTransportRequest request) { return reinterpret_cast<Request*>(request); }
onebitTransportRequest AsHandle(Request* request) {
  return reinterpret_cast<onebitTransportRequest>(request);
}

// Runs code that may run out of memory.
template <typename Body>
onebitResult_t WithoutExceptions(Body body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return onebitOutOfMemory;
  } catch (...) {
    return onebitInternalError;
  }
}

onebitResult_t Init(const onebitTransportHost* host, void** context) {
  if (host == nullptr || context == nullptr || host->structSize < sizeof *host) {
    return onebitInvalidArgument;
  }
  return WithoutExceptions([&] {
    std::unique_ptr<Context> created;
    const onebitResult_t result = Context::Create(*host, &created);
    if (result == onebitSuccess) *context = created.release();
    return result;
  });
}

onebitResult_t GetProperties(void* context, onebitTransportProperties* properties) {
  if (properties == nullptr || properties->structSize < sizeof *properties) {
    return onebitInvalidArgument;
  }
  *properties = DefaultProperties();
  if (context != nullptr) {
    properties->eagerBytes = static_cast<Context*>(context)->options().eager_bytes;
  }
  return onebitSuccess;
}

onebitResult_t Finalize(void* context) {
  if (context == nullptr) return onebitInvalidArgument;
  auto* ending = static_cast<Context*>(context);
  if (!ending->is_idle()) return onebitInvalidUsage;
  delete ending;
  return onebitSuccess;
}

onebitResult_t Open(void* context, const onebitTransportCommInfo* info, void** comm) {
  if (context == nullptr || info == nullptr || comm == nullptr || info->structSize < sizeof *info ||
      info->nranks < 1 || info->rank < 0 || info->rank >= info->nranks) {
    return onebitInvalidArgument;
  }
  return WithoutExceptions([&] {
    std::unique_ptr<Endpoint> created;
    const onebitResult_t result = Endpoint::Create(static_cast<Context*>(context), *info, &created);
    if (result == onebitSuccess) *comm = created.release();
    return result;
  });
}

onebitResult_t GetAddress(void* comm, void* address, size_t* bytes) {
  if (comm == nullptr || address == nullptr || bytes == nullptr) return onebitInvalidArgument;
  return WithoutExceptions([&] { return AsEndpoint(comm)->GetAddress(address, bytes); });
}

onebitResult_t Connect(void* comm, const void* const* addresses, const size_t* address_bytes,
                       uint64_t timeout_ms) {
  if (comm == nullptr || addresses == nullptr || address_bytes == nullptr) {
    return onebitInvalidArgument;
  }
  return WithoutExceptions(
      [&] { return AsEndpoint(comm)->Connect(addresses, address_bytes, timeout_ms); });
}

onebitResult_t Isend(void* comm, int peer, const void* header, size_t header_bytes,
                     const void* payload, size_t payload_bytes, onebitTransportRequest* request) {
  if (comm == nullptr || request == nullptr) return onebitInvalidArgument;
  Request* sending = nullptr;
  const onebitResult_t result =
      AsEndpoint(comm)->Send(peer, header, header_bytes, payload, payload_bytes, &sending);
  if (result == onebitSuccess) *request = AsHandle(sending);
  return result;
}

onebitResult_t Irecv(void* comm, int peer, void* header, size_t header_capacity,
                     onebitTransportRequest* request) {
  if (comm == nullptr || request == nullptr || header == nullptr ||
      header_capacity < ONEBIT_TRANSPORT_HEADER_BYTES) {
    return onebitInvalidArgument;
  }
  Request* receiving = nullptr;
  const onebitResult_t result = AsEndpoint(comm)->Receive(peer, header, &receiving);
  if (result == onebitSuccess) *request = AsHandle(receiving);
  return result;
}

onebitResult_t Probe(void* comm, onebitTransportRequest request, size_t* header_bytes,
                     size_t* payload_bytes) {
  if (comm == nullptr || request == nullptr || header_bytes == nullptr ||
      payload_bytes == nullptr) {
    return onebitInvalidArgument;
  }
  return AsEndpoint(comm)->Probe(*AsRequest(request), header_bytes, payload_bytes);
}

onebitResult_t Accept(void* comm, onebitTransportRequest request, void* payload,
                      size_t payload_bytes) {
  if (comm == nullptr || request == nullptr) return onebitInvalidArgument;
  return AsEndpoint(comm)->Accept(AsRequest(request), payload, payload_bytes);
}

onebitResult_t Test(void* comm, onebitTransportRequest request, onebitTransportState* state) {
  if (comm == nullptr || request == nullptr || state == nullptr) return onebitInvalidArgument;
  return AsEndpoint(comm)->Test(AsRequest(request), state);
}

onebitResult_t Cancel(void* comm, onebitTransportRequest request) {
  if (comm == nullptr || request == nullptr) return onebitInvalidArgument;
  return AsEndpoint(comm)->Cancel(AsRequest(request));
}

onebitResult_t Progress(void* comm) {
  return comm == nullptr ? onebitInvalidArgument : AsEndpoint(comm)->Progress();
}

onebitResult_t Wait(void* comm, uint64_t timeout_ms) {
  return comm == nullptr ? onebitInvalidArgument : AsEndpoint(comm)->Wait(timeout_ms);
}

onebitResult_t Abort(void* comm) {
  return comm == nullptr ? onebitInvalidArgument : AsEndpoint(comm)->Abort();
}

onebitResult_t Close(void* comm) {
  if (comm == nullptr) return onebitInvalidArgument;
  delete AsEndpoint(comm);
  return onebitSuccess;
}

onebitResult_t GetCounters(void* comm, uint64_t* bytes_sent, uint64_t* messages_sent) {
  if (comm == nullptr || bytes_sent == nullptr || messages_sent == nullptr) {
    return onebitInvalidArgument;
  }
  AsEndpoint(comm)->GetCounters(bytes_sent, messages_sent);
  return onebitSuccess;
}

onebitResult_t DescribePeer(void* comm, int peer, char* text, size_t capacity) {
  if (comm == nullptr || text == nullptr || capacity == 0) return onebitInvalidArgument;
  return AsEndpoint(comm)->DescribePeer(peer, text, capacity);
}

constexpr onebitTransport kTransport{
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

}  // namespace
}  // namespace onebit::ucx

extern "C" const onebitTransport* onebitTransportGet(void) { return &onebit::ucx::kTransport; }
