// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The address of an endpoint that a rank gives to the others.
#pragma once

#include <onebit/transport.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "comm/socket.h"
#include "plugins/common/address_head.h"

namespace onebit::sockets {

using LocalName = std::array<char, 32>;  // hexadecimal digits; random, so that nobody can take it

struct Address {
  plugin::AddressHead head;
  uint64_t network;  // its network name space
  uint32_t shares_memory;
  uint32_t seals;    // nonzero: TCP connections are encrypted
  uint32_t ciphers;  // a mask of Cipher
  uint32_t family;   // AF_INET or AF_INET6, as Linux numbers them
  std::array<unsigned char, 16> ip;
  uint32_t scope;  // IPv6
  uint32_t port;
  LocalName local;  // of the abstract socket
};

void WriteAddress(const Address& address, void* bytes);
// Returns null, or what is wrong with the address.
const char* ReadAddress(const void* bytes, size_t byte_count, Address* address);

SocketAddress SocketAddressOf(const Address& address);
void SetSocketAddress(const SocketAddress& from, Address* address);

// Identifies the network name space of this process; 0 if the system does not tell.
uint64_t IdentityOfThisNetwork();

}  // namespace onebit::sockets
