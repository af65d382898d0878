// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "exec/batch_progress.h"

#include <algorithm>
#include <vector>

#include "base/format.h"

namespace onebit {
namespace {

constexpr size_t kNamedPeers = 8;

struct Amount {
  size_t bytes = 0;
  size_t all_bytes = 0;

  void Add(const Step& step, bool is_done) {
    all_bytes += step.region.bytes;
    if (is_done) bytes += step.region.bytes;
  }
};

struct Tally {
  Amount received;
  Amount sent;
  uint8_t exchange = UINT8_MAX;  // the first that has not ended
  uint8_t exchanges = 0;
  std::vector<uint32_t> missing;   // messages of that exchange, by peer
  std::vector<uint32_t> expected;  // all messages of that exchange
  uint32_t untaken_peer = UINT32_MAX;
};

bool IsMessage(const Step& step) {
  return step.kind == StepKind::kReceive || step.kind == StepKind::kSend;
}

Tally TallyOf(const BatchProgress& progress) {
  const Plan& plan = progress.plan;
  Tally tally;
  tally.missing.resize(plan.ranks);
  tally.expected.resize(plan.ranks);
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    if (!IsMessage(step)) continue;
    const bool is_done = progress.states[i] == MessageState::kDone;
    (step.kind == StepKind::kReceive ? tally.received : tally.sent).Add(step, is_done);
    tally.exchanges = std::max(tally.exchanges, step.exchange);
    if (!is_done) tally.exchange = std::min(tally.exchange, step.exchange);
  }
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    if (!IsMessage(step) || step.exchange != tally.exchange) continue;
    const bool is_done = progress.states[i] == MessageState::kDone;
    if (step.kind == StepKind::kReceive) {
      ++tally.expected[step.peer];
      if (!is_done) ++tally.missing[step.peer];
    } else if (!is_done) {
      tally.untaken_peer = std::min(tally.untaken_peer, step.peer);
    }
  }
  return tally;
}

// Names the peers that the call waits for. Only the first unfinished exchange counts, because
// whoever is late there holds up the later ones. A peer that does not receive our message is named
// only if none is missing: usually it waits for a missing message itself.
std::string LateText(const Tally& tally, const std::function<std::string(uint32_t)>& path_of) {
  std::string late;
  size_t named = 0;
  for (uint32_t peer = 0; peer < tally.missing.size(); ++peer) {
    if (tally.missing[peer] == 0) continue;
    if (++named > kNamedPeers) return late + ", ...";
    AppendFormat(&late, "{}rank {} ({} of {} messages missing, {})", late.empty() ? "" : ", ", peer,
                 tally.missing[peer], tally.expected[peer], path_of(peer));
  }
  if (late.empty() && tally.untaken_peer != UINT32_MAX) {
    late = Format("rank {} (does not take its message, {})", tally.untaken_peer,
                  path_of(tally.untaken_peer));
  }
  return late.empty() ? "nobody" : late;
}

}  // namespace

std::string Describe(const BatchProgress& progress,
                     const std::function<std::string(uint32_t peer)>& path_of) {
  const Tally tally = TallyOf(progress);
  return Format(
      "{:.1f} s into the call, in exchange {} of {}, {} of {} bytes received, {} of {} "
      "sent; waiting for {}",
      progress.seconds, std::min(tally.exchange, tally.exchanges), tally.exchanges,
      tally.received.bytes, tally.received.all_bytes, tally.sent.bytes, tally.sent.all_bytes,
      LateText(tally, path_of));
}

}  // namespace onebit
