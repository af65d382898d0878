// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The transport's function table.
#include <onebit/transport.h>

#include <memory>

#include "plugins/common/transport_table.h"
#include "plugins/transport_mpi/mpi_context.h"
#include "plugins/transport_mpi/mpi_endpoint.h"
#include "plugins/transport_mpi/mpi_group.h"

namespace onebit::mpi {
namespace {

using Table = plugin::TransportTable<Context, MpiEndpoint>;
using SharedGroup = std::shared_ptr<Group>;  // the caller's handle of a group

onebitResult_t AdoptComm(void* context, const void* native, size_t native_bytes,
                         uint64_t timeout_ms, void** group, int* rank, int* nranks) {
  if (context == nullptr || group == nullptr || rank == nullptr || nranks == nullptr) {
    return onebitInvalidArgument;
  }
  return plugin::WithoutExceptions([&] {
    auto adopted = std::make_unique<SharedGroup>();
    const onebitResult_t result =
        Adopt(*static_cast<Context*>(context), native, native_bytes, timeout_ms, adopted.get());
    if (result != onebitSuccess) return result;
    *rank = (*adopted)->rank;
    *nranks = (*adopted)->ranks;
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

onebitResult_t Iallreduce(void* comm, const void* send, void* recv, size_t count,
                          onebitDataType_t type, onebitRedOp_t op,
                          onebitTransportRequest* request) {
  if (comm == nullptr || request == nullptr) return onebitInvalidArgument;
  plugin::Request* started = nullptr;
  const onebitResult_t result =
      Table::AsEndpoint(comm)->Allreduce(send, recv, count, type, op, &started);
  if (result == onebitSuccess) *request = Table::AsHandle(started);
  return result;
}

constexpr onebitTransport MakeTable() {
  onebitTransport functions = Table::kFunctions;
  functions.adopt = AdoptComm;
  functions.broadcast = BroadcastInGroup;
  functions.release = ReleaseGroup;
  functions.iallreduce = Iallreduce;
  return functions;
}

constexpr onebitTransport kTransport = MakeTable();

}  // namespace
}  // namespace onebit::mpi

extern "C" [[gnu::visibility("default")]] const onebitTransport* onebitTransportGet(void) {
  return &onebit::mpi::kTransport;
}
