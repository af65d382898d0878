// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The transport that a faulty plugin wraps.
#pragma once

#include "onebit/transport.h"

namespace onebit::testing {

// Returns the transport inside, or null if there is none.
const onebitTransport* InnerTransport();

}  // namespace onebit::testing
