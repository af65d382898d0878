// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The transport's function table.
#include <onebit/transport.h>

#include <memory>

#include "plugins/common/frame_table.h"
#include "plugins/transport_mpi/mpi_context.h"
#include "plugins/transport_mpi/mpi_frame_transport.h"
#include "plugins/transport_mpi/mpi_group.h"

namespace onebit::mpi {
namespace {

using Table = plugin::FrameTable<Context, MpiFrameTransport>;
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

onebitResult_t CheckThread(void* comm) {
  return comm == nullptr ? onebitInvalidArgument : Table::AsEndpoint(comm)->CheckThread();
}

onebitResult_t CanSendFromAnyThread(void* comm, int* can) {
  if (comm == nullptr || can == nullptr) return onebitInvalidArgument;
  *can = Table::AsEndpoint(comm)->CanSendFromAnyThread() ? 1 : 0;
  return onebitSuccess;
}

onebitResult_t Iallreduce(void* comm, const void* send, void* recv, size_t count,
                          onebitDataType_t type, onebitRedOp_t op) {
  if (!Table::IsUsable(comm)) return onebitInvalidArgument;
  return Table::AsEndpoint(comm)->StartAllreduce(send, recv, count, type, op);
}

onebitResult_t TestAllreduce(void* comm, size_t* bytes_done) {
  if (!Table::IsUsable(comm) || bytes_done == nullptr) return onebitInvalidArgument;
  return Table::AsEndpoint(comm)->TestAllreduce(bytes_done);
}

onebitResult_t CancelAllreduce(void* comm) {
  if (comm == nullptr) return onebitInvalidArgument;
  Table::AsEndpoint(comm)->CancelAllreduce();
  return onebitSuccess;
}

constexpr onebitTransport MakeTable() {
  onebitTransport functions = Table::Functions();
  functions.adopt = AdoptComm;
  functions.broadcast = BroadcastInGroup;
  functions.release = ReleaseGroup;
  functions.checkThread = CheckThread;
  functions.canSendFromAnyThread = CanSendFromAnyThread;
  functions.iallreduce = Iallreduce;
  functions.testAllreduce = TestAllreduce;
  functions.cancelAllreduce = CancelAllreduce;
  return functions;
}

constexpr onebitTransport kTransport = MakeTable();

}  // namespace
}  // namespace onebit::mpi

extern "C" [[gnu::visibility("default")]] const onebitTransport* onebitTransportGet(void) {
  return &onebit::mpi::kTransport;
}
