// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Abort and close: telling the peers, without waiting for them.
#include "channel/message_channel.h"

namespace onebit::channel {
namespace {

// Time for sent frames to leave, spent only while some have not left and their receiver still
// exists.
constexpr uint64_t kCloseNs = 100 * kNsPerMs;
constexpr uint64_t kAbortNs = 2 * kNsPerMs;

}  // namespace

MessageChannel::~MessageChannel() {
  if (is_connected_) {
    lock_.Lock();
    const bool is_orderly = !lock_.is_aborted();
    SayBye(!is_orderly);
    DriveUntilSent(is_orderly ? kCloseNs : kAbortNs);
  }
  is_discarding_ = true;
  frames_.Close();
  context_->RemoveChannel();
}

onebitResult_t MessageChannel::Abort() {
  if (!lock_.MarkAborted()) return onebitSuccess;
  frames_.Abort();
  // If the lock is taken, its holder finds the mark when it releases; otherwise the owner finds it
  // in its next call.
  if (!frames_.CanSendFromAnyThread() || !lock_.TryLock()) return onebitSuccess;
  ReleaseLock();
  return onebitSuccess;
}

// Called with the lock held. Tells the peers of an abort that has come meanwhile. There may be none
// to tell: before connect, or after one that failed, the frame transport may be unable to send and
// has nothing to drive.
void MessageChannel::ReleaseLock() {
  if (lock_.Unlock()) return;
  if (!has_said_bye_) {
    SayBye(true);
    if (is_connected_) DriveUntilSent(kAbortNs);
  }
  lock_.UnlockAborted();
}

// From here on no memory of the user is read or written. Payloads that were not handed over are
// lost, and so are waiting control messages, which concern requests that end now.
void MessageChannel::SayBye(bool is_abort) {
  if (!has_said_bye_ && is_connected_) {
    for (int rank = 0; rank < nranks_; ++rank) {
      if (rank == rank_) continue;
      peer(rank).controls.Clear();
      SendControl(rank, WireType::kBye, peer(rank).sent, is_abort ? 1 : 0);
    }
  }
  has_said_bye_ = true;
  is_discarding_ = true;
  for (Peer& other : peers_) {
    StopPlacing(other, other.placed);
    for (const Request* offer : other.offers) {
      if (offer != nullptr && IsPulled(other, offer->payload_bytes)) {
        frames_.Recall(RankOf(other), offer->number);
      }
    }
  }
  frames_.CancelAllreduce();
}

bool MessageChannel::HasPendingSends() const {
  for (const Peer& to : peers_) {
    if (!to.is_gone() && (to.in_flight() != 0 || !to.controls.is_empty())) return true;
  }
  return false;
}

void MessageChannel::DriveUntilSent(uint64_t timeout_ns) {
  const uint64_t start = Now();
  bool is_flushing = false;
  while (Now() - start < timeout_ns) {
    const bool has_moved = frames_.Progress();
    FlushAllControls();
    if (!HasPendingSends()) {
      if (is_flushing && frames_.is_flushed()) return;
      if (!is_flushing) frames_.StartFlush();
      is_flushing = true;
    }
    if (!has_moved) frames_.Sleep(timeout_ns < kCloseNs ? 20'000 : 100'000);
  }
}

}  // namespace onebit::channel
