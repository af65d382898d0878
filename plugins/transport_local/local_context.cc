// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Settings of the transport and the registry of inboxes.
#include "plugins/transport_local/local_context.h"

#include <unistd.h>

#include <cstddef>
#include <iterator>
#include <utility>

#include "plugins/transport_local/local_frame_transport.h"

namespace onebit::local {
namespace {

constexpr uint64_t kMagic = 0x6f6e656269744c31;  // "onebitL1"

constexpr onebitTransportSetting kSettings[] = {
    {.name = "ONEBIT_LOCAL_EAGER_BYTES",
     .kind = onebitSettingInteger,
     .values = "bytes",
     .maximum = 65536,
     .defaultValue = "1024",
     .help = "Payloads up to this size are copied through the receiver's inbox; 36 times this is "
             "reserved per pair of ranks.",
     .offset = offsetof(Options, eager_bytes)},
};

}  // namespace

onebitTransportProperties Context::Properties(const Context* context) {
  return {.structSize = sizeof(onebitTransportProperties),
          .name = "local",
          .hasFrameFace = 1,
          .addressBytes = sizeof(Address),
          .eagerBytes = context == nullptr ? 0 : context->options().eager_bytes,
          .settings = kSettings,
          .settingCount = std::size(kSettings),
          .settingsBytes = sizeof(Options),
          .survivesLoss = 1};
}

Context::Context(const onebitTransportHost& host)
    : BaseContext(host, "local"),
      nonce_(host.nowNs() ^ reinterpret_cast<uintptr_t>(this)),
      options_(*static_cast<const Options*>(host.settings)) {}

onebitResult_t Context::Create(const onebitTransportHost& host, std::unique_ptr<Context>* context) {
  context->reset(new Context(host));
  return onebitSuccess;
}

onebitResult_t Context::Open(const onebitTransportCommInfo& info,
                             std::unique_ptr<LocalFrameTransport>* frames) {
  *frames = std::make_unique<LocalFrameTransport>(this, info);
  return onebitSuccess;
}

Address Context::Register(std::shared_ptr<Inbox> inbox) {
  const std::lock_guard lock(mutex_);
  inboxes_.emplace(next_number_, std::move(inbox));
  AddEndpoint();
  return {.magic = kMagic,
          .process_id = static_cast<uint64_t>(getpid()),
          .context_nonce = nonce_,
          .inbox_number = next_number_++};
}

void Context::Unregister(const Address& address) {
  const std::lock_guard lock(mutex_);
  inboxes_.erase(address.inbox_number);
  RemoveEndpoint();
}

onebitResult_t Context::Find(const Address& address, const Inbox::Identity& expected,
                             std::shared_ptr<Inbox>* inbox) {
  if (address.magic != kMagic) {
    Warn("the address of rank %d is from another transport", expected.rank);
    return onebitInvalidArgument;
  }
  if (address.process_id != static_cast<uint64_t>(getpid()) || address.context_nonce != nonce_) {
    Warn("rank %d is in another process; this transport joins threads of one process only",
         expected.rank);
    return onebitInvalidUsage;
  }
  const std::shared_ptr<Inbox> found = LookUp(address.inbox_number);
  if (found == nullptr) {
    Warn("the endpoint of rank %d was closed before all ranks had connected", expected.rank);
    return onebitRemoteError;
  }
  const Inbox::Identity& actual = found->identity();
  if (actual != expected) {
    Warn("the address of rank %d belongs to rank %d of %d in communicator %llx", expected.rank,
         actual.rank, actual.nranks, static_cast<unsigned long long>(actual.comm_id));
    return onebitInvalidArgument;
  }
  *inbox = found;
  return onebitSuccess;
}

std::shared_ptr<Inbox> Context::LookUp(uint64_t inbox_number) {
  const std::lock_guard lock(mutex_);
  const auto found = inboxes_.find(inbox_number);
  return found == inboxes_.end() ? nullptr : found->second;
}

}  // namespace onebit::local
