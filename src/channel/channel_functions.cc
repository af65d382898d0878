// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The table of functions of message channels: checks arguments and keeps exceptions inside.
#include <memory>
#include <new>

#include "channel/channel_context.h"
#include "channel/message_channel.h"

namespace onebit::channel {
namespace {

MessageChannel* AsChannel(void* comm) { return static_cast<MessageChannel*>(comm); }
Request* AsRequest(MessageRequest request) { return reinterpret_cast<Request*>(request); }
MessageRequest AsHandle(Request* request) { return reinterpret_cast<MessageRequest>(request); }

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

onebitResult_t Open(void* context, const MessageInfo* info, void** comm) {
  if (context == nullptr || info == nullptr || comm == nullptr || info->nranks < 1 ||
      info->rank < 0 || info->rank >= info->nranks) {
    return onebitInvalidArgument;
  }
  return WithoutExceptions([&] {
    std::unique_ptr<MessageChannel> created;
    const onebitResult_t result = static_cast<ChannelContext*>(context)->Open(*info, &created);
    if (result == onebitSuccess) *comm = created.release();
    return result;
  });
}

onebitResult_t GetAddress(void* comm, void* address, size_t* bytes) {
  if (comm == nullptr || address == nullptr || bytes == nullptr) return onebitInvalidArgument;
  return WithoutExceptions([&] { return AsChannel(comm)->GetAddress(address, bytes); });
}

onebitResult_t Connect(void* comm, const void* const* addresses, const size_t* address_bytes,
                       uint64_t timeout_ms) {
  if (comm == nullptr || addresses == nullptr || address_bytes == nullptr) {
    return onebitInvalidArgument;
  }
  return WithoutExceptions(
      [&] { return AsChannel(comm)->Connect(addresses, address_bytes, timeout_ms); });
}

onebitResult_t Isend(void* comm, int peer, const void* header, size_t header_bytes,
                     const void* payload, size_t payload_bytes, MessageRequest* request) {
  if (comm == nullptr || request == nullptr) return onebitInvalidArgument;
  Request* sending = nullptr;
  const onebitResult_t result =
      AsChannel(comm)->Send(peer, header, header_bytes, payload, payload_bytes, &sending);
  if (result == onebitSuccess) *request = AsHandle(sending);
  return result;
}

onebitResult_t Irecv(void* comm, int peer, void* header, size_t header_capacity,
                     MessageRequest* request) {
  if (comm == nullptr || request == nullptr || header == nullptr ||
      header_capacity < kMessageHeaderBytes) {
    return onebitInvalidArgument;
  }
  Request* receiving = nullptr;
  const onebitResult_t result = AsChannel(comm)->Receive(peer, header, &receiving);
  if (result == onebitSuccess) *request = AsHandle(receiving);
  return result;
}

onebitResult_t Probe(void* comm, MessageRequest request, size_t* header_bytes,
                     size_t* payload_bytes) {
  if (comm == nullptr || request == nullptr || header_bytes == nullptr ||
      payload_bytes == nullptr) {
    return onebitInvalidArgument;
  }
  return AsChannel(comm)->Probe(*AsRequest(request), header_bytes, payload_bytes);
}

onebitResult_t Accept(void* comm, MessageRequest request, void* payload, size_t payload_bytes) {
  if (comm == nullptr || request == nullptr) return onebitInvalidArgument;
  return AsChannel(comm)->Accept(AsRequest(request), payload, payload_bytes);
}

onebitResult_t Test(void* comm, MessageRequest request, TransferState* state) {
  if (comm == nullptr || request == nullptr || state == nullptr) return onebitInvalidArgument;
  return AsChannel(comm)->Test(AsRequest(request), state);
}

onebitResult_t Cancel(void* comm, MessageRequest request) {
  if (comm == nullptr || request == nullptr) return onebitInvalidArgument;
  return AsChannel(comm)->Cancel(AsRequest(request));
}

onebitResult_t Progress(void* comm) {
  return comm == nullptr ? onebitInvalidArgument : AsChannel(comm)->Progress();
}

onebitResult_t Wait(void* comm, uint64_t timeout_ms) {
  return comm == nullptr ? onebitInvalidArgument : AsChannel(comm)->Wait(timeout_ms);
}

onebitResult_t Abort(void* comm) {
  return comm == nullptr ? onebitInvalidArgument : AsChannel(comm)->Abort();
}

onebitResult_t Close(void* comm) {
  if (comm == nullptr) return onebitInvalidArgument;
  delete AsChannel(comm);
  return onebitSuccess;
}

onebitResult_t GetCounters(void* comm, uint64_t* bytes_sent, uint64_t* messages_sent) {
  if (comm == nullptr || bytes_sent == nullptr || messages_sent == nullptr) {
    return onebitInvalidArgument;
  }
  AsChannel(comm)->GetCounters(bytes_sent, messages_sent);
  return onebitSuccess;
}

onebitResult_t DescribePeer(void* comm, int peer, char* text, size_t capacity) {
  if (comm == nullptr || text == nullptr || capacity == 0) return onebitInvalidArgument;
  return AsChannel(comm)->DescribePeer(peer, text, capacity);
}

onebitResult_t Iallreduce(void* comm, const void* send, void* recv, size_t count,
                          onebitDataType_t type, onebitRedOp_t op, MessageRequest* request) {
  if (comm == nullptr || request == nullptr) return onebitInvalidArgument;
  Request* started = nullptr;
  const onebitResult_t result = AsChannel(comm)->AllReduce(send, recv, count, type, op, &started);
  if (result == onebitSuccess) *request = AsHandle(started);
  return result;
}

constexpr MessageFunctions kFunctions{.open = Open,
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
                                      .iallreduce = Iallreduce};

}  // namespace

const MessageFunctions& ChannelFunctions() { return kFunctions; }

}  // namespace onebit::channel
