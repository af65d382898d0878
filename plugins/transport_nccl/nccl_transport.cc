// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The transport's function table.
#include <onebit/transport.h>

#include <memory>

#include "plugins/common/transport_table.h"
#include "plugins/transport_nccl/nccl_context.h"
#include "plugins/transport_nccl/nccl_endpoint.h"
#include "plugins/transport_nccl/nccl_group.h"

namespace onebit::nccl {
namespace {

using Table = plugin::TransportTable<Context, NcclEndpoint>;
using SharedGroup = std::shared_ptr<Group>;  // the caller's handle of a group

onebitResult_t AdoptComm(void* context, const void* native, size_t native_bytes,
                         uint64_t timeout_ms, void** group, int* rank, int* nranks) {
  if (context == nullptr || group == nullptr || rank == nullptr || nranks == nullptr) {
    return onebitInvalidArgument;
  }
  return plugin::WithoutExceptions([&] {
    auto adopted = std::make_unique<SharedGroup>();
    const onebitResult_t result =
        Adopt(static_cast<Context*>(context), native, native_bytes, timeout_ms, adopted.get());
    if (result != onebitSuccess) return result;
    *rank = (*adopted)->communicator->rank();
    *nranks = (*adopted)->communicator->ranks();
    *group = adopted.release();
    return onebitSuccess;
  });
}

onebitResult_t BroadcastInGroup(void* group, void* bytes, size_t count, uint64_t timeout_ms) {
  if (group == nullptr || bytes == nullptr) return onebitInvalidArgument;
  return plugin::WithoutExceptions(
      [&] { return Broadcast(static_cast<SharedGroup*>(group)->get(), bytes, count, timeout_ms); });
}

onebitResult_t ReleaseGroup(void* group) {
  if (group == nullptr) return onebitInvalidArgument;
  delete static_cast<SharedGroup*>(group);
  return onebitSuccess;
}

// Calls the endpoint's function, if there is an endpoint.
template <typename Body>
onebitResult_t With(void* comm, Body body) {
  if (comm == nullptr) return onebitInvalidArgument;
  return plugin::WithoutExceptions([&] { return body(Table::AsEndpoint(comm)); });
}

onebitResult_t GroupBegin(void* comm) {
  return With(comm, [](NcclEndpoint* endpoint) { return endpoint->GroupBegin(); });
}

onebitResult_t SendOnStream(void* comm, int peer, const void* buffer, size_t bytes,
                            onebitStream_t stream) {
  return With(comm,
              [&](NcclEndpoint* endpoint) { return endpoint->Send(peer, buffer, bytes, stream); });
}

onebitResult_t RecvOnStream(void* comm, int peer, void* buffer, size_t bytes,
                            onebitStream_t stream) {
  return With(
      comm, [&](NcclEndpoint* endpoint) { return endpoint->Receive(peer, buffer, bytes, stream); });
}

onebitResult_t GroupEnd(void* comm) {
  return With(comm, [](NcclEndpoint* endpoint) { return endpoint->GroupEnd(); });
}

onebitResult_t CollectiveOnStream(void* comm, const onebitTransportCollectiveCall* call,
                                  onebitStream_t stream) {
  if (call == nullptr) return onebitInvalidArgument;
  return With(comm, [&](NcclEndpoint* endpoint) { return endpoint->Collective(*call, stream); });
}

onebitResult_t AsyncError(void* comm, char* text, size_t capacity) {
  if (text == nullptr || capacity == 0) return onebitInvalidArgument;
  return With(comm, [&](NcclEndpoint* endpoint) { return endpoint->AsyncError(text, capacity); });
}

onebitResult_t GetCounters(void* comm, uint64_t* bytes_sent, uint64_t* messages_sent) {
  if (comm == nullptr || bytes_sent == nullptr || messages_sent == nullptr) {
    return onebitInvalidArgument;
  }
  Table::AsEndpoint(comm)->GetCounters(bytes_sent, messages_sent);
  return onebitSuccess;
}

onebitResult_t DescribePeer(void* comm, int peer, char* text, size_t capacity) {
  if (comm == nullptr || text == nullptr || capacity == 0) return onebitInvalidArgument;
  return Table::AsEndpoint(comm)->DescribePeer(peer, text, capacity);
}

constexpr onebitTransport MakeTable() {
  onebitTransport functions = Table::kFunctions;
  functions.adopt = AdoptComm;
  functions.broadcast = BroadcastInGroup;
  functions.release = ReleaseGroup;
  functions.getCounters = GetCounters;
  functions.describePeer = DescribePeer;
  functions.groupBegin = GroupBegin;
  functions.sendOnStream = SendOnStream;
  functions.recvOnStream = RecvOnStream;
  functions.groupEnd = GroupEnd;
  functions.collectiveOnStream = CollectiveOnStream;
  functions.asyncError = AsyncError;
  return functions;
}

constexpr onebitTransport kTransport = MakeTable();

}  // namespace
}  // namespace onebit::nccl

extern "C" [[gnu::visibility("default")]] const onebitTransport* onebitTransportGet(void) {
  return &onebit::nccl::kTransport;
}
