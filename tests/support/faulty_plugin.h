// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What a transport with faults that is a plugin is made around.
#pragma once

#include "onebit/transport.h"

namespace onebit::testing {

// The transport inside; null if there is none.
const onebitTransport* InnerTransport();

}  // namespace onebit::testing
