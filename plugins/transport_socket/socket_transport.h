// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Transport `socket`: the ranks are processes, joined by shared memory and TCP, and nothing else is
// needed.
#pragma once

#include <onebit/transport.h>

namespace onebit::sockets {

const onebitTransport* Functions();  // linked in

}  // namespace onebit::sockets
