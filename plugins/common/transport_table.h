// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Makes a transport's table of C functions from its C++ classes: checks arguments and keeps
// exceptions inside.
#pragma once

#include <onebit/transport.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

namespace onebit::plugin {

// Runs code that may throw std::bad_alloc.
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

// Context needs the members
//   static onebitResult_t Create(const onebitTransportHost&, std::unique_ptr<Context>*);
//   static onebitTransportProperties Properties(const Context*);  // null: before init
//   bool is_idle() const;
//   onebitResult_t Open(const onebitTransportCommInfo&, std::unique_ptr<Endpoint>*);
// and Endpoint the members of the table in C++, with a type Request.
template <typename Context, typename Endpoint>
struct TransportTable {
  using Request = typename Endpoint::Request;

  static Endpoint* AsEndpoint(void* comm) { return static_cast<Endpoint*>(comm); }
  static Request* AsRequest(onebitTransportRequest request) {
    return reinterpret_cast<Request*>(request);
  }
  static onebitTransportRequest AsHandle(Request* request) {
    return reinterpret_cast<onebitTransportRequest>(request);
  }

  static onebitResult_t Init(const onebitTransportHost* host, void** context) {
    if (host == nullptr || context == nullptr || host->structSize < sizeof *host ||
        (host->settings == nullptr && Context::Properties(nullptr).settingCount != 0)) {
      return onebitInvalidArgument;
    }
    return WithoutExceptions([&] {
      std::unique_ptr<Context> created;
      const onebitResult_t result = Context::Create(*host, &created);
      if (result == onebitSuccess) *context = created.release();
      return result;
    });
  }

  static onebitResult_t GetProperties(void* context, onebitTransportProperties* properties) {
    if (properties == nullptr ||
        properties->structSize < offsetof(onebitTransportProperties, survivesLoss)) {
      return onebitInvalidArgument;
    }
    const size_t asked = properties->structSize;
    onebitTransportProperties all = Context::Properties(static_cast<const Context*>(context));
    all.structSize = asked;
    std::memcpy(properties, &all, std::min(asked, sizeof all));
    return onebitSuccess;
  }

  static onebitResult_t Finalize(void* context) {
    if (context == nullptr) return onebitInvalidArgument;
    auto* ending = static_cast<Context*>(context);
    if (!ending->is_idle()) return onebitInvalidUsage;
    delete ending;
    return onebitSuccess;
  }

  static onebitResult_t Open(void* context, const onebitTransportCommInfo* info, void** comm) {
    if (context == nullptr || info == nullptr || comm == nullptr ||
        info->structSize < offsetof(onebitTransportCommInfo, group) || info->nranks < 1 ||
        info->rank < 0 || info->rank >= info->nranks) {
      return onebitInvalidArgument;
    }
    return WithoutExceptions([&] {
      onebitTransportCommInfo known{.structSize = sizeof known};
      std::memcpy(&known, info, std::min(info->structSize, sizeof known));
      std::unique_ptr<Endpoint> created;
      const onebitResult_t result = static_cast<Context*>(context)->Open(known, &created);
      if (result == onebitSuccess) *comm = created.release();
      return result;
    });
  }

  static onebitResult_t GetAddress(void* comm, void* address, size_t* bytes) {
    if (comm == nullptr || address == nullptr || bytes == nullptr) return onebitInvalidArgument;
    return WithoutExceptions([&] { return AsEndpoint(comm)->GetAddress(address, bytes); });
  }

  static onebitResult_t Connect(void* comm, const void* const* addresses,
                                const size_t* address_bytes, uint64_t timeout_ms) {
    if (comm == nullptr || addresses == nullptr || address_bytes == nullptr) {
      return onebitInvalidArgument;
    }
    return WithoutExceptions(
        [&] { return AsEndpoint(comm)->Connect(addresses, address_bytes, timeout_ms); });
  }

  static onebitResult_t Isend(void* comm, int peer, const void* header, size_t header_bytes,
                              const void* payload, size_t payload_bytes,
                              onebitTransportRequest* request) {
    if (comm == nullptr || request == nullptr) return onebitInvalidArgument;
    Request* sending = nullptr;
    const onebitResult_t result =
        AsEndpoint(comm)->Send(peer, header, header_bytes, payload, payload_bytes, &sending);
    if (result == onebitSuccess) *request = AsHandle(sending);
    return result;
  }

  static onebitResult_t Irecv(void* comm, int peer, void* header, size_t header_capacity,
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

  static onebitResult_t Probe(void* comm, onebitTransportRequest request, size_t* header_bytes,
                              size_t* payload_bytes) {
    if (comm == nullptr || request == nullptr || header_bytes == nullptr ||
        payload_bytes == nullptr) {
      return onebitInvalidArgument;
    }
    return AsEndpoint(comm)->Probe(*AsRequest(request), header_bytes, payload_bytes);
  }

  static onebitResult_t Accept(void* comm, onebitTransportRequest request, void* payload,
                               size_t payload_bytes) {
    if (comm == nullptr || request == nullptr) return onebitInvalidArgument;
    return AsEndpoint(comm)->Accept(AsRequest(request), payload, payload_bytes);
  }

  static onebitResult_t Test(void* comm, onebitTransportRequest request,
                             onebitTransportState* state) {
    if (comm == nullptr || request == nullptr || state == nullptr) return onebitInvalidArgument;
    return AsEndpoint(comm)->Test(AsRequest(request), state);
  }

  static onebitResult_t Cancel(void* comm, onebitTransportRequest request) {
    if (comm == nullptr || request == nullptr) return onebitInvalidArgument;
    return AsEndpoint(comm)->Cancel(AsRequest(request));
  }

  static onebitResult_t Progress(void* comm) {
    return comm == nullptr ? onebitInvalidArgument : AsEndpoint(comm)->Progress();
  }

  static onebitResult_t Wait(void* comm, uint64_t timeout_ms) {
    return comm == nullptr ? onebitInvalidArgument : AsEndpoint(comm)->Wait(timeout_ms);
  }

  static onebitResult_t Abort(void* comm) {
    return comm == nullptr ? onebitInvalidArgument : AsEndpoint(comm)->Abort();
  }

  static onebitResult_t Close(void* comm) {
    if (comm == nullptr) return onebitInvalidArgument;
    delete AsEndpoint(comm);
    return onebitSuccess;
  }

  static onebitResult_t GetCounters(void* comm, uint64_t* bytes_sent, uint64_t* messages_sent) {
    if (comm == nullptr || bytes_sent == nullptr || messages_sent == nullptr) {
      return onebitInvalidArgument;
    }
    AsEndpoint(comm)->GetCounters(bytes_sent, messages_sent);
    return onebitSuccess;
  }

  static onebitResult_t DescribePeer(void* comm, int peer, char* text, size_t capacity) {
    if (comm == nullptr || text == nullptr || capacity == 0) return onebitInvalidArgument;
    return AsEndpoint(comm)->DescribePeer(peer, text, capacity);
  }

  // Optional members are NULL.
  static constexpr onebitTransport kFunctions{
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

}  // namespace onebit::plugin
