// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The transport's function table.
#include "plugins/transport_ucx/ucx_transport.h"

#include "plugins/common/endpoint.h"
#include "plugins/common/transport_table.h"
#include "plugins/transport_ucx/ucx_context.h"

extern "C" const onebitTransport* onebitTransportGet(void) {
  return &onebit::plugin::TransportTable<onebit::ucx::Context,
                                         onebit::plugin::Endpoint>::kFunctions;
}
