// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Makes a table of message functions from C++ classes: checks arguments and keeps exceptions
// inside.
#pragma once

#include <memory>
#include <new>

#include "channel/message_functions.h"

namespace onebit {

// Context needs the member
//   onebitResult_t Open(const MessageInfo&, std::unique_ptr<End>*);
// and End the members of the table in C++, with a type Request.
template <typename Context, typename End>
struct MessageTable {
  using Request = typename End::Request;

  static End* AsEnd(void* comm) { return static_cast<End*>(comm); }
  static Request* AsRequest(MessageRequest request) { return reinterpret_cast<Request*>(request); }
  static MessageRequest AsHandle(Request* request) {
    return reinterpret_cast<MessageRequest>(request);
  }

  // Runs code that may throw std::bad_alloc.
  template <typename Body>
  static onebitResult_t WithoutExceptions(Body body) noexcept {
    try {
      return body();
    } catch (const std::bad_alloc&) {
      return onebitOutOfMemory;
    } catch (...) {
      return onebitInternalError;
    }
  }

  static onebitResult_t Open(void* context, const MessageInfo* info, void** comm) {
    if (context == nullptr || info == nullptr || comm == nullptr || info->nranks < 1 ||
        info->rank < 0 || info->rank >= info->nranks) {
      return onebitInvalidArgument;
    }
    return WithoutExceptions([&] {
      std::unique_ptr<End> created;
      const onebitResult_t result = static_cast<Context*>(context)->Open(*info, &created);
      if (result == onebitSuccess) *comm = created.release();
      return result;
    });
  }

  static onebitResult_t GetAddress(void* comm, void* address, size_t* bytes) {
    if (comm == nullptr || address == nullptr || bytes == nullptr) return onebitInvalidArgument;
    return WithoutExceptions([&] { return AsEnd(comm)->GetAddress(address, bytes); });
  }

  static onebitResult_t Connect(void* comm, const void* const* addresses,
                                const size_t* address_bytes, uint64_t timeout_ms) {
    if (comm == nullptr || addresses == nullptr || address_bytes == nullptr) {
      return onebitInvalidArgument;
    }
    return WithoutExceptions(
        [&] { return AsEnd(comm)->Connect(addresses, address_bytes, timeout_ms); });
  }

  static onebitResult_t Isend(void* comm, int peer, const void* header, size_t header_bytes,
                              const void* payload, size_t payload_bytes, MessageRequest* request) {
    if (comm == nullptr || request == nullptr) return onebitInvalidArgument;
    Request* sending = nullptr;
    const onebitResult_t result =
        AsEnd(comm)->Send(peer, header, header_bytes, payload, payload_bytes, &sending);
    if (result == onebitSuccess) *request = AsHandle(sending);
    return result;
  }

  static onebitResult_t Irecv(void* comm, int peer, void* header, size_t header_capacity,
                              MessageRequest* request) {
    if (comm == nullptr || request == nullptr || header == nullptr ||
        header_capacity < kMessageHeaderBytes) {
      return onebitInvalidArgument;
    }
    Request* receiving = nullptr;
    const onebitResult_t result = AsEnd(comm)->Receive(peer, header, &receiving);
    if (result == onebitSuccess) *request = AsHandle(receiving);
    return result;
  }

  static onebitResult_t Probe(void* comm, MessageRequest request, size_t* header_bytes,
                              size_t* payload_bytes) {
    if (comm == nullptr || request == nullptr || header_bytes == nullptr ||
        payload_bytes == nullptr) {
      return onebitInvalidArgument;
    }
    return AsEnd(comm)->Probe(*AsRequest(request), header_bytes, payload_bytes);
  }

  static onebitResult_t Accept(void* comm, MessageRequest request, void* payload,
                               size_t payload_bytes) {
    if (comm == nullptr || request == nullptr) return onebitInvalidArgument;
    return AsEnd(comm)->Accept(AsRequest(request), payload, payload_bytes);
  }

  static onebitResult_t Test(void* comm, MessageRequest request, TransferState* state) {
    if (comm == nullptr || request == nullptr || state == nullptr) return onebitInvalidArgument;
    return AsEnd(comm)->Test(AsRequest(request), state);
  }

  static onebitResult_t Cancel(void* comm, MessageRequest request) {
    if (comm == nullptr || request == nullptr) return onebitInvalidArgument;
    return AsEnd(comm)->Cancel(AsRequest(request));
  }

  static onebitResult_t Progress(void* comm) {
    return comm == nullptr ? onebitInvalidArgument : AsEnd(comm)->Progress();
  }

  static onebitResult_t Wait(void* comm, uint64_t timeout_ms) {
    return comm == nullptr ? onebitInvalidArgument : AsEnd(comm)->Wait(timeout_ms);
  }

  static onebitResult_t Abort(void* comm) {
    return comm == nullptr ? onebitInvalidArgument : AsEnd(comm)->Abort();
  }

  static onebitResult_t Close(void* comm) {
    if (comm == nullptr) return onebitInvalidArgument;
    delete AsEnd(comm);
    return onebitSuccess;
  }

  static onebitResult_t GetCounters(void* comm, uint64_t* bytes_sent, uint64_t* messages_sent) {
    if (comm == nullptr || bytes_sent == nullptr || messages_sent == nullptr) {
      return onebitInvalidArgument;
    }
    AsEnd(comm)->GetCounters(bytes_sent, messages_sent);
    return onebitSuccess;
  }

  static onebitResult_t DescribePeer(void* comm, int peer, char* text, size_t capacity) {
    if (comm == nullptr || text == nullptr || capacity == 0) return onebitInvalidArgument;
    return AsEnd(comm)->DescribePeer(peer, text, capacity);
  }

  static constexpr MessageFunctions kFunctions{.open = Open,
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
                                               .iallreduce = nullptr};
};

}  // namespace onebit
