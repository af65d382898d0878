// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "exec/group_messages.h"

#include <cstring>

#include "codec/message_header.h"

namespace onebit {
namespace {

uint32_t WordAt(const std::byte* bytes) {
  uint32_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

}  // namespace

void FillTables(const Batch& batch) {
  for (const Step& step : batch.plan->steps) {
    if (step.kind != StepKind::kSend || step.call != kAllCalls) continue;
    std::memcpy(batch.Write(step), batch.digests.data(), batch.digests.size_bytes());
  }
}

void Pack(const Batch& batch, const Step& step, bool is_nonfinite) {
  if (step.region.bytes != 0) {
    std::memcpy(batch.packets + step.sources, batch.Read(step), step.region.bytes);
  }
  if (!is_nonfinite) return;
  std::byte* word = batch.packets + step.own_source;
  const uint32_t flagged = WordAt(word) | kGroupNonfinite;
  std::memcpy(word, &flagged, sizeof(flagged));
}

Result<bool> Unpack(const Batch& batch, const Step& step) {
  const Call& call = batch.calls[step.call];
  const std::byte* piece = batch.packets + step.sources;
  const bool is_nonfinite = (WordAt(batch.packets + step.own_source) & kGroupNonfinite) != 0;
  const bool is_packet = HasPackets(call.descriptor, step.exchange);
  Status status;
  if (is_nonfinite && !(is_packet && call.descriptor.codec.has_verdict())) {
    status = Error(Code::kCorrupt, "{} carry the flag for values that are not finite",
                   is_packet ? "packets without a verdict" : "elements");
  } else if (!is_nonfinite && is_packet) {
    status = CheckForm({piece, step.region.bytes}, step.shape);
  }
  if (!status.ok()) {
    return Error(status.code(),
                 "packet from rank {}, call {} of {} in the group ({}), exchange {}: {}", step.peer,
                 step.call + 1, batch.calls.size(), Describe(call.descriptor), step.exchange,
                 status.text());
  }
  if (step.region.bytes != 0) std::memcpy(batch.Write(step), piece, step.region.bytes);
  return is_nonfinite;
}

Status CheckGroupMessage(const Batch& batch, const Step& receive, kernels::Checksum expected) {
  const std::span payload(batch.Read(receive), receive.region.bytes);
  if (const Status status = CheckChecksum(payload, expected); !status.ok()) {
    return Error(status.code(), "message of the group from rank {}, exchange {}: {}", receive.peer,
                 receive.exchange, status.text());
  }
  return CompareTable(batch, receive.peer, payload);
}

Status CompareTable(const Batch& batch, uint32_t peer, std::span<const std::byte> table) {
  for (size_t call = 0; call < batch.digests.size(); ++call) {
    const uint32_t theirs = WordAt(table.data() + call * sizeof(uint32_t)) & ~kGroupNonfinite;
    if (theirs == batch.digests[call]) continue;
    return Error(Code::kMismatch,
                 "rank {} made a different call {} of {} in the group: here it is {}; make the "
                 "same calls in the same order on all ranks",
                 peer, call + 1, batch.digests.size(), Describe(batch.calls[call].descriptor));
  }
  return OkStatus();
}

}  // namespace onebit
