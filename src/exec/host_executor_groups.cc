// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Messages of groups: packs pieces of calls into them, unpacks them, and finds the call in which
// ranks differ.
#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "exec/host_executor.h"
#include "wait/backoff.h"

namespace onebit {
namespace {

using Clock = std::chrono::steady_clock;

// Limits the wait for the table of a peer whose calls differ, which only improves the error text.
constexpr auto kTableWait = std::chrono::seconds(1);
constexpr size_t kMostTablePayload = size_t{256} << 20;

uint32_t WordAt(const std::byte* bytes) {
  uint32_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

}  // namespace

// Clears the flags, which the pieces of each call set later.
void HostExecutor::FillTables() {
  for (const Step& step : plan_->steps) {
    if (step.kind != StepKind::kSend || step.call != kAllCalls) continue;
    std::memcpy(batch_.Write(step), batch_.digests.data(), batch_.digests.size_bytes());
  }
}

// Runs when all pieces are packed.
void HostExecutor::Seal(const Step& send) {
  checksums_[send.packet] = kernels::cpu::ChecksumOf(batch_.Read(send), send.region.bytes);
}

Result<bool> HostExecutor::CopyAll() {
  if (copies_.empty()) return false;
  const auto begin = Clock::now();
  while (!copies_.empty()) {
    const uint32_t step = copies_.Pop();
    if (plan_->steps[step].kind == StepKind::kPack) {
      Pack(step);
    } else {
      ONEBIT_TRY(Unpack(step));
    }
  }
  const auto end = Clock::now();
  codec_ns_ += static_cast<uint64_t>(std::chrono::nanoseconds(end - begin).count());
  if (trace_ != nullptr) trace_->AddCopies(begin, end);
  return true;
}

// The flag of a call goes into its word of the table. The message's own flag stays clear.
void HostExecutor::Pack(uint32_t index) {
  const Step& step = plan_->steps[index];
  if (step.region.bytes != 0) {
    std::memcpy(batch_.packets + step.sources, batch_.Read(step), step.region.bytes);
  }
  if (std::exchange(nonfinite_[index], uint8_t{0}) != 0) {
    std::byte* word = batch_.packets + step.own_source;
    const uint32_t flagged = WordAt(word) | kGroupNonfinite;
    std::memcpy(word, &flagged, sizeof(flagged));
  }
  Finish(index, false);
}

Status HostExecutor::Unpack(uint32_t index) {
  const Step& step = plan_->steps[index];
  const Call& call = batch_.calls[step.call];
  const std::byte* piece = batch_.packets + step.sources;
  const bool is_nonfinite = (WordAt(batch_.packets + step.own_source) & kGroupNonfinite) != 0;
  const bool is_packet = HasPackets(call.descriptor, step.exchange);
  Status status;
  if (is_nonfinite && !(is_packet && call.descriptor.codec.has_verdict())) {
    status = Error(Code::kCorrupt, "{} have the flag of values that are not finite",
                   is_packet ? "packets without a verdict" : "elements");
  } else if (!is_nonfinite && is_packet) {
    status = CheckForm({piece, step.region.bytes}, step.shape);
  }
  if (!status.ok()) {
    return Error(status.code(),
                 "packet from rank {}, call {} of {} in the group ({}), exchange {}: {}", step.peer,
                 step.call + 1, batch_.calls.size(), Describe(call.descriptor), step.exchange,
                 status.text());
  }
  if (step.region.bytes != 0) std::memcpy(batch_.Write(step), piece, step.region.bytes);
  Finish(index, is_nonfinite);
  return OkStatus();
}

Status HostExecutor::CheckGroupMessage(const Step& receive, kernels::Checksum expected) const {
  const std::span payload(batch_.Read(receive), receive.region.bytes);
  if (const Status status = CheckChecksum(payload, expected); !status.ok()) {
    return Error(status.code(), "message of the group from rank {}, exchange {}: {}", receive.peer,
                 receive.exchange, status.text());
  }
  return CompareTable(receive.peer, payload);
}

Status HostExecutor::CompareTable(uint32_t peer, std::span<const std::byte> table) const {
  for (size_t call = 0; call < batch_.digests.size(); ++call) {
    const uint32_t theirs = WordAt(table.data() + call * sizeof(uint32_t)) & ~kGroupNonfinite;
    if (theirs == batch_.digests[call]) continue;
    return Error(Code::kMismatch,
                 "rank {} made a different call as number {} of {} in the group; here it is {}; "
                 "make the same calls in the same order on all ranks",
                 peer, call + 1, batch_.digests.size(), Describe(batch_.calls[call].descriptor));
  }
  return OkStatus();
}

Status HostExecutor::CompareCalls(uint32_t peer, size_t payload_bytes) {
  Inbound& inbound = inbound_[peer];
  const CallDescriptor& theirs = inbound.decoded.call;
  CallDescriptor alike = theirs;
  alike.mask_digest = batch_.descriptor.mask_digest;
  if (alike != batch_.descriptor || payload_bytes < batch_.digests.size_bytes() ||
      payload_bytes > kMostTablePayload) {
    return OkStatus();
  }
  std::vector<std::byte> payload(payload_bytes);
  ONEBIT_TRY(endpoint_.Accept(inbound.request, payload));
  bool has_come = false;
  bool is_dead = false;
  const auto is_over = [&] {
    const auto state = endpoint_.Test(inbound.request);
    has_come = state.ok() && state.value() == TransferState::kDone;
    is_dead = has_come || (!state.ok() && IsDead(state.status()));
    return has_come || !state.ok();
  };
  PollUntil(Clock::now() + kTableWait, is_over,
            [&] { return comm_.is_stopped() || !endpoint_.Progress().ok(); });
  if (!is_dead) endpoint_.Cancel(inbound.request);  // it still references the payload
  inbound.request = nullptr;
  return has_come ? CompareTable(peer, payload) : OkStatus();
}

}  // namespace onebit
