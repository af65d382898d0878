// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "channel/channel_context.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "channel/message_channel.h"

namespace onebit::channel {
namespace {

constexpr uint64_t kSpinNs = 20'000;

uint32_t CountCores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) {
    return static_cast<uint32_t>(CPU_COUNT(&cores));
  }
  const long online = sysconf(_SC_NPROCESSORS_ONLN);  // more cores than cpu_set_t can hold
  return online > 0 ? static_cast<uint32_t>(online) : 1;
}

}  // namespace

ChannelContext::ChannelContext(const onebitTransport& functions, void* context,
                               const onebitTransportProperties& properties,
                               const onebitTransportHost& host)
    : functions_(functions),
      context_(context),
      properties_(properties),
      host_(host),
      cores_(CountCores()) {}

onebitResult_t ChannelContext::Open(const ChannelInfo& info,
                                    std::unique_ptr<MessageChannel>* channel) {
  auto created = std::make_unique<MessageChannel>(this, info);
  const onebitResult_t result = created->Open(info);
  if (result == onebitSuccess) *channel = std::move(created);
  return result;
}

uint64_t ChannelContext::spin_ns(uint32_t ranks_here) const {
  const uint32_t channels = open_channels_.load(std::memory_order_relaxed);
  return std::max(channels, ranks_here) > cores_ ? 0 : kSpinNs;
}

}  // namespace onebit::channel
