// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The transport's function table.
#include "plugins/transport_local/local_transport.h"

#include "plugins/common/transport_table.h"
#include "plugins/transport_local/local_context.h"
#include "plugins/transport_local/local_endpoint.h"

namespace onebit::local {
namespace {

using Table = plugin::TransportTable<Context, Endpoint>;

}  // namespace
}  // namespace onebit::local

extern "C" const onebitTransport* onebitTransportLocalGet(void) {
  return &onebit::local::Table::kFunctions;
}
