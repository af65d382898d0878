// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/transport_socket/socket_context.h"

#include <arpa/inet.h>

#include <cstddef>
#include <cstring>
#include <iterator>

#include "plugins/common/host_identity.h"
#include "plugins/common/interface_name.h"
#include "plugins/transport_socket/rdma_ports.h"
#include "plugins/transport_socket/socket_frame_transport.h"

namespace onebit::sockets {
namespace {

constexpr onebitTransportSetting kSettings[] = {
    // The send of a larger payload ends only when the receiver has taken it, which is one more
    // exchange. (Dense allreduce of 16 KiB, 4 processes on 2 cores: 53 us, and 62 us if 1 KiB is
    // the limit.)
    plugin::EagerBytesSetting("ONEBIT_SOCKET_EAGER_BYTES", "8192", 32'768,
                              offsetof(Options, eager_bytes)),
    plugin::EarlyBytesSetting("ONEBIT_SOCKET_EARLY_BYTES", offsetof(Options, early_bytes)),
    {.name = "ONEBIT_SOCKET_SHARED_MEMORY",
     .kind = onebitSettingBoolean,
     .values = "",
     .defaultValue = "1",
     .help = "1: ranks of one host share memory where they can; 0: they use TCP.",
     .offset = offsetof(Options, shares_memory)},
    {.name = "ONEBIT_SOCKET_SEAL",
     .kind = onebitSettingBoolean,
     .values = "",
     .defaultValue = "0",
     .help = "1: traffic over TCP is encrypted and authenticated, with AES-256-GCM where both "
             "processors have it, else ChaCha20-Poly1305; 0: connections prove the job's key when "
             "they are made, and nothing after that; equal on all ranks.",
     .offset = offsetof(Options, seals)},
};

}  // namespace

Context::Context(const onebitTransportHost& host)
    : BaseContext(host, "socket"),
      machine_(plugin::IdentityOfThisMachine()),
      options_(*static_cast<const Options*>(host.settings)) {}

onebitResult_t Context::Create(const onebitTransportHost& host, std::unique_ptr<Context>* context) {
  context->reset(new Context(host));
  return onebitSuccess;
}

onebitTransportProperties Context::Properties(const Context* context) {
  const Options options = context == nullptr ? Options{} : context->options_;
  return {.structSize = sizeof(onebitTransportProperties),
          .name = "socket",
          .hasFrameFace = 1,
          .addressBytes = sizeof(Address),
          .eagerBytes = options.eager_bytes,
          .earlyBytes = options.early_bytes,
          .settings = kSettings,
          .settingCount = std::size(kSettings),
          .settingsBytes = sizeof(Options),
          .survivesLoss = 1};
}

onebitResult_t Context::Open(const onebitTransportCommInfo& info,
                             std::unique_ptr<SocketFrameTransport>* frames) {
  return SocketFrameTransport::Create(this, info, frames);
}

onebitResult_t Context::ReadSocketAddress(const void* bytes, size_t count, SocketAddress* address) {
  sockaddr_storage storage{};
  if (bytes == nullptr) {
    auto& four = reinterpret_cast<sockaddr_in&>(storage);
    four.sin_family = AF_INET;
    four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  } else {
    if (count > sizeof storage) return onebitInvalidArgument;
    std::memcpy(&storage, bytes, count);
    if (storage.ss_family != AF_INET && storage.ss_family != AF_INET6) {
      return onebitInvalidArgument;
    }
  }
  *address = SocketAddress(reinterpret_cast<const sockaddr*>(&storage));
  return onebitSuccess;
}

std::string Context::RouteOver(int socket) {
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size) != 0) return "tcp";
  const std::string interface = plugin::InterfaceOf(reinterpret_cast<const sockaddr*>(&own));
  return interface.empty() ? "tcp" : "tcp over " + interface;
}

void Context::MentionRdma() {
  // relaxed: it decides only who logs.
  if (has_mentioned_rdma_.exchange(true, std::memory_order_relaxed)) return;
  const std::string port = ActiveRdmaPort();
  if (port.empty()) return;
  Warn("%s is active: ONEBIT_TRANSPORT=ucx would use it between hosts, this transport uses TCP",
       port.c_str());
}

}  // namespace onebit::sockets
