// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// MessageChannel: messages of any size between the ranks of a communicator, over any transport of
// frames.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "channel/channel_context.h"
#include "channel/controls.h"
#include "channel/receives.h"
#include "channel/sends.h"
#include "wait/spin_lock.h"

namespace onebit::channel {

// wire.h describes the protocol. The frame transport copies a frame that it cannot send at once,
// and an arriving frame is copied in a callback, so between calls it has memory of the user in two
// cases only: a piece that is arriving was placed there, which stopPlacing ends, or the payload was
// offered, which recall ends. So a cancel takes bounded time, whatever the peer does.
//
// A peer announces that it closes or aborts its end. Messages that it had sent before can
// still be received, except payloads it had not handed over; every other request that needs it
// fails with onebitRemoteError. If the frame transport finds the peer lost, the error is
// onebitPeerLost. The first such failure per peer goes to the sink, from inside Test, Progress,
// Receive, Send or Wait. A peer that ends while nothing is expected of it is not reported, because
// communicators end one rank after the other.
//
// One thread at a time, except Abort. Only Wait and Connect block, up to their time-outs. Messages
// from one rank to another arrive in the order of their sends. After Connect no function allocates
// memory or takes a lock that others hold for long on the path of a message that succeeds. The
// public functions take the lock; the private ones expect it to be held.
class MessageChannel {
 public:
  MessageChannel(ChannelContext* context, const ChannelInfo& info);
  // Tells the peers, and gives frames already sent at most 100 ms to leave. Pending requests are
  // cancelled.
  ~MessageChannel();
  MessageChannel(const MessageChannel&) = delete;
  MessageChannel& operator=(const MessageChannel&) = delete;

  // Opens the transport's endpoint. Called once, before everything else.
  onebitResult_t Open(const ChannelInfo& info);
  // Writes this end's address, at most `addressBytes` of the transport's properties.
  onebitResult_t GetAddress(void* address, size_t* bytes) const {
    return state_.frames.GetAddress(address, bytes);
  }
  // Connects to all ranks, this one included. All ranks call it at about the same time; it may wait
  // for the others' calls. Every rank's end stays open until Connect has returned on all ranks.
  // Throws std::bad_alloc.
  onebitResult_t Connect(std::span<const std::vector<std::byte>> addresses, uint64_t timeout_ms);

  // Starts to send a message. The header is copied; the payload stays untouched until the request
  // is done. Sends that are done at once share one request.
  // onebitInProgress: there is no room now. Make progress, test what is pending, and try again.
  // onebitRemoteError, onebitPeerLost: the peer is gone, and the sink knows. Any other error is the
  // frame transport's.
  onebitResult_t Send(int peer, std::span<const std::byte> header,
                      std::span<const std::byte> payload, Request** request);
  // Starts to receive the next message from `peer`. `header` has kMessageHeaderBytes or more and
  // stays valid until the request is dead. At most one receive per peer may wait for its header;
  // post the next one once that header was reported.
  // onebitInProgress: too many requests are unfinished. Test them and try again.
  onebitResult_t Receive(int peer, std::span<std::byte> header, Request** request);
  // Reads the sizes of a message whose header has arrived; for the allreduce, how much is done.
  onebitResult_t Probe(const Request& request, size_t* header_bytes, size_t* payload_bytes);
  // Starts to receive the payload of a message whose header has arrived. The size must be that of
  // Probe. Before this call the payload touches none of the caller's memory. If the payload cannot
  // arrive, because its sender cancelled or is gone, Test reports it.
  onebitResult_t Accept(Request* request, std::span<std::byte> payload);
  // Makes no progress. An error means that this request failed and is dead. Only onebitAborted
  // concerns the channel instead: the buffers then stay lent until Cancel or the destructor. Once
  // all requests of a rank are done, its peers can finish theirs without any progress by that rank,
  // however long it stays away.
  onebitResult_t Test(Request* request, TransferState* state);
  // Ends a request in any state: from then on its buffers are not touched. The message may or may
  // not have reached the peer, so this is for communicators that are being given up.
  onebitResult_t Cancel(Request* request);
  // Moves messages on, without blocking.
  onebitResult_t Progress();
  // Blocks until there may be something new, the time is over, or Abort was called. Returns
  // onebitSuccess when the time is over, too: the caller looks at its clock.
  onebitResult_t Wait(uint64_t timeout_ms);
  // Stops this end at once: Wait and Connect return, and every later call but Cancel, counters and
  // DescribePeer returns onebitAborted. From any thread, any number of times.
  onebitResult_t Abort();
  // Count what Send has handed to the wire so far: headers and payloads, without what lower layers
  // add.
  uint64_t bytes_sent() const { return sends_.bytes(); }
  uint64_t messages_sent() const { return sends_.messages(); }
  // Writes in a few words how a peer is reached, for error texts: "shared memory", "tcp over eth0".
  // onebitTimeout: what was sent does not arrive, and the text says what is known.
  onebitResult_t DescribePeer(int peer, char* text, size_t capacity) const;
  // The allreduce of the layer below, one at a time. The request is for Test, Cancel and Probe. No
  // counter includes what it sends.
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
    const onebitResult_t result = lock_.is_aborted() ? onebitAborted : state_.frames.CheckThread();
    return result == onebitSuccess ? body() : result;
  }
  void ReleaseLock();
  onebitResult_t CheckPeer(int peer) const;

  // message_channel_connect.cc
  onebitResult_t MakePeers();
  onebitResult_t AllocatePeers();
  onebitResult_t ExchangeHellos(uint64_t start, uint64_t timeout_ns);
  void SayBye(bool is_abort);
  bool HasPendingSends() const;
  void DriveUntilSent(uint64_t timeout_ns);

  // message_channel.cc
  void OnFrame(int peer, const void* header, size_t header_bytes, const void* payload,
               size_t payload_bytes);
  // Both return null, or what is wrong with the frame.
  const char* Handle(const WireHeader& wire, const std::byte* header, size_t header_bytes,
                     const std::byte* payload, size_t payload_bytes);
  const char* HandleByType(Peer& from, const WireHeader& wire, const std::byte* header,
                           const std::byte* payload, size_t payload_bytes);
  void HandleDepartures();
  void Watch(Peer& to, uint64_t frame);
  void CheckWatchedFrames();
  bool Drive();

  uint64_t Now() const { return context_->Now(); }

  ChannelContext* const context_;
  SpinLock lock_;

  // Guarded by the lock.
  ChannelState state_;
  Controls controls_;
  Sends sends_;
  Receives receives_;
  bool has_begun_ = false;  // connect was called correctly
  bool is_connected_ = false;
  uint64_t spin_ns_ = 0;
  Request native_{.state = RequestState::kNative};  // the allreduce, of `payload_bytes`
  bool has_watches_ = false;  // for frames that the frame transport still holds
  bool has_said_bye_ = false;
  bool has_warned_ = false;  // about a frame that is not ours

  // The number of events when Wait last returned. Counting from the last return, not from the last
  // look, makes Wait return once too often rather than miss news when the caller tests before it
  // makes progress.
  uint64_t seen_events_ = 0;
};

}  // namespace onebit::channel
