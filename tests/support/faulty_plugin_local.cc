// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Adds faults to a `local` of the plugin's own.
#include "plugins/transport_local/local_transport.h"
#include "tests/support/faulty_plugin.h"

namespace onebit::testing {

const onebitTransport* InnerTransport() { return onebitTransportLocalGet(); }

}  // namespace onebit::testing
