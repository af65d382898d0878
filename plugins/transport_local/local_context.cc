// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Settings of the transport and the registry of inboxes.
#include "plugins/transport_local/local_context.h"

#include <sched.h>
#include <unistd.h>

#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <iterator>

#include "plugins/transport_local/local_endpoint.h"

namespace onebit::local {
namespace {

constexpr uint64_t kMagic = 0x6f6e656269744c31;  // "onebitL1"
constexpr uint64_t kSpinNs = 20'000;

uint32_t CountCores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) {
    return static_cast<uint32_t>(CPU_COUNT(&cores));
  }
  const long online = sysconf(_SC_NPROCESSORS_ONLN);  // more cores than cpu_set_t can hold
  return online > 0 ? static_cast<uint32_t>(online) : 1;
}

constexpr onebitTransportSetting kSettings[] = {
    {.name = "ONEBIT_LOCAL_EAGER_BYTES",
     .kind = onebitSettingInteger,
     .values = "bytes",
     .maximum = 65536,
     .defaultValue = "1024",
     .help = "Payloads up to this size are copied through the receiver's inbox; eight times this "
             "is reserved per pair of ranks.",
     .offset = offsetof(Options, eager_bytes)},
};

}  // namespace

onebitTransportProperties Context::Properties(const Context* context) {
  return {.structSize = sizeof(onebitTransportProperties),
          .name = "local",
          .hasHostFace = 1,
          .addressBytes = sizeof(Address),
          .eagerBytes = context == nullptr ? 0 : context->eager_bytes(),
          .settings = kSettings,
          .settingCount = std::size(kSettings),
          .settingsBytes = sizeof(Options),
          .survivesLoss = 1};
}

Context::Context(const onebitTransportHost& host)
    : host_(host),
      nonce_(host.nowNs() ^ reinterpret_cast<uintptr_t>(this)),
      cores_(CountCores()),
      options_(*static_cast<const Options*>(host.settings)) {}

onebitResult_t Context::Create(const onebitTransportHost& host, std::unique_ptr<Context>* context) {
  context->reset(new Context(host));
  return onebitSuccess;
}

onebitResult_t Context::Open(const onebitTransportCommInfo& info,
                             std::unique_ptr<Endpoint>* endpoint) {
  *endpoint = std::make_unique<Endpoint>(this, info);
  return onebitSuccess;
}

uint64_t Context::spin_ns() const {
  return open_endpoints_.load(std::memory_order_relaxed) > cores_ ? 0 : kSpinNs;
}

Address Context::Register(std::shared_ptr<Inbox> inbox) {
  const std::lock_guard lock(mutex_);
  inboxes_.emplace(next_number_, std::move(inbox));
  open_endpoints_.fetch_add(1, std::memory_order_relaxed);
  return {.magic = kMagic,
          .process_id = static_cast<uint64_t>(getpid()),
          .context_nonce = nonce_,
          .inbox_number = next_number_++};
}

void Context::Unregister(const Address& address) {
  const std::lock_guard lock(mutex_);
  inboxes_.erase(address.inbox_number);
  open_endpoints_.fetch_sub(1, std::memory_order_relaxed);
}

onebitResult_t Context::Find(const Address& address, const Inbox::Identity& expected,
                             std::shared_ptr<Inbox>* inbox) {
  if (address.magic != kMagic) {
    Warn("local: the address of rank %d is not one of this transport", expected.rank);
    return onebitInvalidArgument;
  }
  if (address.process_id != static_cast<uint64_t>(getpid()) || address.context_nonce != nonce_) {
    Warn("local: rank %d is in another process; this transport joins threads of one process only",
         expected.rank);
    return onebitInvalidUsage;
  }
  const std::shared_ptr<Inbox> found = LookUp(address.inbox_number);
  if (found == nullptr) {
    Warn("local: the endpoint of rank %d was closed before all ranks had connected", expected.rank);
    return onebitRemoteError;
  }
  const Inbox::Identity& actual = found->identity();
  if (actual != expected) {
    Warn("local: the address of rank %d belongs to rank %d of %d in communicator %llx",
         expected.rank, actual.rank, actual.nranks,
         static_cast<unsigned long long>(actual.comm_id));
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

void Context::Warn(const char* format, ...) const {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  host_.log(onebitLogWarn, text);
}

}  // namespace onebit::local
