// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Network interfaces of this host, and the user's selection of them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "comm/socket.h"

namespace onebit {

// One address of an interface that is up.
struct Interface {
  std::string name;
  SocketAddress address;
  bool is_loopback = false;
};

// Lists IPv4 addresses first and omits link-local IPv6 ones.
Result<std::vector<Interface>> ListInterfaces();

// Returns the interfaces that `pattern` selects, in its order. The grammar is that of
// NCCL_SOCKET_IFNAME: a comma list of name prefixes; "=" before the list asks for whole names, "^"
// (or "^=") for all interfaces but these. Empty: all, loopback last, and last but one what
// containers bring along (docker..., veth...). An error if nothing is selected, or an entry without
// "^" selects nothing; it lists the interfaces.
Result<std::vector<Interface>> SelectInterfaces(std::span<const Interface> interfaces,
                                                std::string_view pattern);

// Returns the interfaces of the best kind that there is: neither of containers nor loopback, then
// without loopback. IPv4 addresses only, if there are any. At least one interface is given.
std::vector<Interface> Likeliest(std::span<const Interface> interfaces);

// "eth0,eth1": each name once.
std::string NamesOf(std::span<const Interface> interfaces);

}  // namespace onebit
