// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// MessageChannel: messages of any size between the ranks of a communicator, over any transport of
// frames.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/spin_lock.h"
#include "channel/channel_context.h"
#include "channel/frames.h"
#include "channel/message_functions.h"
#include "channel/message_request.h"
#include "channel/peer.h"
#include "channel/wire.h"

namespace onebit::channel {

// wire.h describes the protocol. The frame transport never refers to memory of the user after a
// call returns: it copies a frame that it cannot send at once, and an arriving frame is copied in a
// callback. So a cancel only changes our own records, and takes bounded time whatever the peer
// does.
//
// A peer announces that it closes or aborts its end. Messages that it had sent before can
// still be received, except payloads it had not handed over; every other request that needs it
// fails with onebitRemoteError. If the frame transport finds the peer lost, the error is
// onebitPeerLost. The first such failure per peer calls peer_error, from inside Test, Progress,
// Receive, Send or Wait. A peer that ends while nothing is expected of it is not reported, because
// communicators end one rank after the other.
//
// One thread at a time, except Abort. The public functions take the lock; the private ones expect
// it to be held.
class MessageChannel {
 public:
  MessageChannel(ChannelContext* context, const MessageInfo& info);
  // Tells the peers, and gives frames already sent at most 100 ms to leave.
  ~MessageChannel();
  MessageChannel(const MessageChannel&) = delete;
  MessageChannel& operator=(const MessageChannel&) = delete;

  // Opens the transport's endpoint. Called once, before everything else.
  onebitResult_t Open(const MessageInfo& info);
  onebitResult_t GetAddress(void* address, size_t* bytes) const {
    return frames_.GetAddress(address, bytes);
  }
  // Throws std::bad_alloc.
  onebitResult_t Connect(const void* const* addresses, const size_t* address_bytes,
                         uint64_t timeout_ms);

  onebitResult_t Send(int peer, const void* header, size_t header_bytes, const void* payload,
                      size_t payload_bytes, Request** request);
  onebitResult_t Receive(int peer, void* header, Request** request);
  onebitResult_t Probe(const Request& request, size_t* header_bytes, size_t* payload_bytes);
  onebitResult_t Accept(Request* request, void* payload, size_t payload_bytes);
  onebitResult_t Test(Request* request, TransferState* state);
  onebitResult_t Cancel(Request* request);
  onebitResult_t Progress();
  onebitResult_t Wait(uint64_t timeout_ms);
  onebitResult_t Abort();
  void GetCounters(uint64_t* bytes_sent, uint64_t* messages_sent) const;
  onebitResult_t DescribePeer(int peer, char* text, size_t capacity) const;
  // The allreduce of the layer below, one at a time. The request is for Test, Cancel and Probe.
  onebitResult_t AllReduce(const void* send, void* recv, size_t count, onebitDataType_t type,
                           onebitRedOp_t op, Request** request);

 private:
  // Releases the lock whatever happens; otherwise the next thread would wait for ever.
  class LockHolder {
   public:
    explicit LockHolder(MessageChannel* channel) : channel_(channel) { channel_->lock_.Lock(); }
    ~LockHolder() { channel_->ReleaseLock(); }
    LockHolder(const LockHolder&) = delete;
    LockHolder& operator=(const LockHolder&) = delete;

   private:
    MessageChannel* const channel_;
  };

  // Runs `body` with the lock held, unless the channel was aborted.
  template <typename Body>
  onebitResult_t WithLock(Body body) {
    const LockHolder holder(this);
    const onebitResult_t result = lock_.is_aborted() ? onebitAborted : frames_.CheckThread();
    return result == onebitSuccess ? body() : result;
  }
  void ReleaseLock();
  onebitResult_t CheckPeer(int peer) const;
  Peer& peer(int rank) { return peers_[static_cast<size_t>(rank)]; }
  int RankOf(const Peer& peer) const { return static_cast<int>(&peer - peers_.data()); }

  // Payloads up to this size start before the receiver asks for them.
  size_t early_bytes(const Peer& other) const {
    return other.link->isPaced != 0 ? early_bytes_ : std::min(early_bytes_, kMostEarlyOverMemory);
  }
  // True if the receiver copies a payload of this size out of the sender's memory.
  bool IsPulled(const Peer& other, size_t payload_bytes) const {
    return other.link->canPull != 0 && payload_bytes > std::max(eager_bytes_, early_bytes(other));
  }

  // message_channel_connect.cc
  onebitResult_t MakePeers();
  onebitResult_t ExchangeHellos(uint64_t start, uint64_t timeout_ns);

  // message_channel_send.cc
  onebitResult_t StartSend(Peer& to, const WireHeader& wire, const void* header,
                           const void* payload, size_t payload_bytes, Request** request);
  bool PumpStreams();
  bool PumpStream(Peer& to);
  void StartStreaming(Request* request);
  void StopStreaming(Request* request);
  void EndOffer(Request* request, RequestState outcome);

  // message_channel_receive.cc
  void MatchPosted(int source);
  void SkipWithdrawn(Peer& from);
  void ReleaseSlot(Peer& from, Slot& slot);
  void EndReceive(Request* request, RequestState outcome);

  // message_channel_arrival.cc
  std::byte* Place(const void* header, size_t header_bytes, size_t payload_bytes);
  // Takes memory back that the transport is writing into for a message.
  void StopPlacing(Peer& from, uint64_t number);
  void OnFrame(const void* header, size_t header_bytes, const void* payload, size_t payload_bytes);
  // Returns null, or what is wrong with the frame.
  const char* Handle(const WireHeader& wire, const std::byte* header, size_t header_bytes,
                     const std::byte* payload, size_t payload_bytes);
  const char* HandleMessage(int source, const WireHeader& wire, const std::byte* header,
                            const std::byte* payload, size_t payload_bytes);
  const char* HandleData(Peer& from, const WireHeader& wire, const std::byte* payload,
                         size_t payload_bytes);
  const char* HandleByType(Peer& from, const WireHeader& wire, const std::byte* header,
                           const std::byte* payload, size_t payload_bytes);
  void HandleRelease(Peer& from, uint64_t released);
  void HandleAnswer(Peer& from, const WireHeader& wire);
  void HandleWithdrawal(Peer& from, const WireHeader& wire);

  // message_channel_control.cc
  WireHeader Wire(Peer& to, WireType type, uint64_t number, uint64_t value) const;
  void SendControl(int rank, WireType type, uint64_t number, uint64_t value = 0);
  void FlushControls(int rank);
  void FlushAllControls();
  void AnnounceReleased(int rank);
  bool NeedsAnnouncement(const Peer& to) const;
  void AnnounceReleasedNow(int rank);
  void AnnounceReleasedWhenIdle();
  void HandleDepartures();
  void ReportDeparture(int rank);

  // message_channel_wait.cc
  void Watch(Peer& to, uint64_t frame);
  void CheckWatchedFrames();
  bool Drive();

  // message_channel_close.cc
  void SayBye(bool is_abort);
  bool HasPendingSends() const;
  void DriveUntilSent(uint64_t timeout_ns);

  uint64_t Now() const { return context_->Now(); }

  ChannelContext* const context_;
  const int rank_;
  const int nranks_;
  const uint64_t comm_id_;
  void (*const peer_error_)(void*, int, onebitResult_t, const char*);
  void* const peer_error_argument_;

  SpinLock lock_;

  // Guarded by the lock.
  Frames frames_;
  std::vector<Peer> peers_;  // empty until connect begins, then fixed
  bool has_begun_ = false;   // connect was called correctly
  bool is_connected_ = false;
  uint64_t spin_ns_ = 0;
  const size_t eager_bytes_;
  const size_t early_bytes_;  // the most for any peer
  size_t slot_bytes_ = 0;     // memory of a slot, for an eager or early payload
  std::unique_ptr<MessageRequests> requests_;
  Request sent_{.state = RequestState::kSent};
  Request native_{.state = RequestState::kNative};  // the allreduce, of `payload_bytes`
  std::vector<int> streaming_;    // peers whose stream is not empty; capacity reserved
  std::vector<int> flushing_;     // peers with waiting controls; capacity reserved
  bool has_losses_ = false;       // some link was lost or some peer has ended
  bool has_unannounced_ = false;  // slots were released, and the peer may need to know
  bool lacks_room_ = false;       // isend returned onebitInProgress
  bool has_watches_ = false;      // for frames that the frame transport still holds
  bool is_discarding_ = false;    // arriving frames are dropped: the endpoint ends
  bool has_said_bye_ = false;
  bool has_warned_ = false;  // about a frame that is not ours

  // `events_` counts events; `seen_events_` is its value when Wait last returned. Counting from the
  // last return, not from the last look, makes Wait return once too often rather than miss news
  // when the caller tests before it makes progress.
  uint64_t events_ = 0;
  uint64_t seen_events_ = 0;

  // Atomic so that another thread may read the statistics; only the owner writes them. relaxed:
  // nothing is published through them.
  std::atomic<uint64_t> bytes_sent_{0};
  std::atomic<uint64_t> messages_sent_{0};
};

}  // namespace onebit::channel
