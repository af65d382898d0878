// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Finds the network interface of an address.
#pragma once

#include <sys/socket.h>

#include <string>

namespace onebit::plugin {

// The interface of this host that has an address, whatever the port: "eth0". Empty if none has it.
std::string InterfaceOf(const sockaddr* address);

}  // namespace onebit::plugin
