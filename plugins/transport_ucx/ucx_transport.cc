// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The transport's function table.
#include "plugins/transport_ucx/ucx_transport.h"

#include "plugins/common/frame_table.h"
#include "plugins/transport_ucx/ucx_context.h"
#include "plugins/transport_ucx/ucx_frame_transport.h"

namespace onebit::ucx {
namespace {

using Table = plugin::FrameTable<Context, UcxFrameTransport>;

onebitResult_t StartFlush(void* comm) {
  if (!Table::IsUsable(comm)) return onebitInvalidArgument;
  Table::AsEndpoint(comm)->StartFlush();
  return onebitSuccess;
}

onebitResult_t IsFlushed(void* comm, int* flushed) {
  if (!Table::IsUsable(comm) || flushed == nullptr) return onebitInvalidArgument;
  *flushed = Table::AsEndpoint(comm)->is_flushed() ? 1 : 0;
  return onebitSuccess;
}

constexpr onebitTransport MakeTable() {
  onebitTransport functions = Table::Functions();
  functions.startFlush = StartFlush;
  functions.isFlushed = IsFlushed;
  return functions;
}

constexpr onebitTransport kTransport = MakeTable();

}  // namespace
}  // namespace onebit::ucx

extern "C" const onebitTransport* onebitTransportGet(void) { return &onebit::ucx::kTransport; }
