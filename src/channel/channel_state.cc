// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "channel/channel_state.h"

#include <cstdio>

namespace onebit::channel {

ChannelState::ChannelState(const ChannelContext& its_context, const ChannelInfo& info)
    : context(its_context),
      rank(info.rank),
      nranks(info.nranks),
      comm_id(info.comm_id),
      eager_bytes(context.properties().eagerBytes),
      most_early_bytes(
          EarlyBytes(context.properties().earlyBytes, static_cast<size_t>(info.nranks))),
      frames(context.functions(), context.transport()),
      sink_(info.sink) {}

void ChannelState::ReportDeparture(int of) {
  Peer& gone = peer(of);
  if (gone.is_reported || sink_ == nullptr) return;
  gone.is_reported = true;
  char text[192];
  if (gone.has_bye) {
    std::snprintf(text, sizeof text,
                  gone.was_aborted
                      ? "rank %d has aborted its endpoint"
                      : "rank %d has left (its program ended, or destroyed the communicator) while "
                        "others wait",
                  of);
  } else {
    std::snprintf(text, sizeof text, "rank %d, reached by %s, is lost: %s", of, gone.link->route,
                  gone.loss());
  }
  sink_->OnPeerError(of, gone.has_bye ? Code::kRemoteError : Code::kPeerLost, text);
}

}  // namespace onebit::channel
