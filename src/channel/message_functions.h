// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// MessageFunctions: how the library moves messages of any size between the ranks of a communicator.
//
// MessageChannel makes messages of a transport's frames; the tests' doubles have messages of their
// own.
#pragma once

#include <cstddef>
#include <cstdint>

#include "onebit/onebit.h"

namespace onebit {

// Largest header of a message, in bytes.
inline constexpr size_t kMessageHeaderBytes = 64;

// The communicator that a new end belongs to.
struct MessageInfo {
  int rank = 0;
  int nranks = 1;
  uint64_t comm_id = 0;  // the same on every rank of the communicator
  // Called, from any thread, when `peer` is found to be gone while a message to or from it is
  // pending or begun. A peer from which nothing is expected may end without notice. `text` says
  // what was seen and is copied. The callback takes no lock that its caller may hold.
  void (*peer_error)(void* argument, int peer, onebitResult_t result, const char* text) = nullptr;
  void* peer_error_argument = nullptr;
  void* group = nullptr;  // of the transport's `adopt`, on all ranks or on none
  // As in onebitTransportCommInfo; valid until `open` returns.
  const unsigned char* key = nullptr;
  const void* address = nullptr;
  size_t address_bytes = 0;
  const void* server = nullptr;
  size_t server_bytes = 0;
  bool is_one_host = false;
};

// A pending send or receive. Owned by whoever moves messages. Dead, and not to be used any more,
// once `test` reported kDone or an error, or `cancel` returned.
using MessageRequest = struct MessageRequest_s*;

enum class TransferState : int {
  kPending = 0,  // nothing new
  kHeader = 1,   // receive only: the header is in place; call accept or cancel
  kDone = 2,     // finished; the buffers are the caller's again
};

// Rules that hold for every member:
//   - Functions return onebitSuccess or an error; they never exit, abort or throw.
//   - One thread at a time uses `comm`. Only `abort` may be called by any thread, at any time from
//     the return of `open` until the call of `close`.
//   - Only `wait` and `connect` block, up to their time-outs.
//   - Messages from one rank to another arrive in the order of their isend calls.
//   - After `connect` no member allocates heap memory or takes a lock on the path of a message that
//     succeeds.
struct MessageFunctions {
  // Makes this rank's end of a new communicator. Needs no other rank.
  onebitResult_t (*open)(void* context, const MessageInfo* info, void** comm);
  // Writes the end's address, at most `addressBytes` of the transport's properties; sets *bytes.
  onebitResult_t (*getAddress)(void* comm, void* address, size_t* bytes);
  // Connects to all ranks. addresses[r] holds address_bytes[r] bytes, for the own rank as well. All
  // ranks call it at about the same time; it may wait for the others' calls, up to its time-out.
  // Every rank's end stays open until connect has returned on all ranks.
  onebitResult_t (*connect)(void* comm, const void* const* addresses, const size_t* address_bytes,
                            uint64_t timeout_ms);

  // Starts to send a message. The header is copied; the caller leaves the payload untouched until
  // the request is done. payload may be null if payload_bytes is 0. Sends that are done at once may
  // share one request.
  // onebitInProgress: there is no room now and *request is not set. Make progress, test what is
  // pending, and try again.
  // onebitRemoteError, onebitPeerLost: the peer is gone, and peer_error was called.
  onebitResult_t (*isend)(void* comm, int peer, const void* header, size_t header_bytes,
                          const void* payload, size_t payload_bytes, MessageRequest* request);
  // Starts to receive the next message from `peer`. `header` has room for header_capacity >=
  // kMessageHeaderBytes bytes and stays valid until the request is dead. At most one receive per
  // peer may wait for its header; post the next one once that header was reported.
  // onebitInProgress: too many requests are unfinished and *request is not set. Test them and try
  // again.
  onebitResult_t (*irecv)(void* comm, int peer, void* header, size_t header_capacity,
                          MessageRequest* request);
  // Reads the sizes of a message whose header has arrived.
  onebitResult_t (*probe)(void* comm, MessageRequest request, size_t* header_bytes,
                          size_t* payload_bytes);
  // Starts to receive the payload of a message whose header has arrived into `payload`, whose size
  // must be exactly that reported by probe. Before this call the payload touches none of the
  // caller's memory. If the payload cannot arrive, because its sender cancelled or is gone, test
  // reports it.
  onebitResult_t (*accept)(void* comm, MessageRequest request, void* payload, size_t payload_bytes);
  // Reports the state of a request. Makes no progress. An error means that this request failed and
  // is dead. Only onebitAborted concerns the end instead: the buffers then stay lent until cancel
  // or close. Once all requests of a rank are done, its peers can finish theirs without any
  // progress by that rank, however long it stays away.
  onebitResult_t (*test)(void* comm, MessageRequest request, TransferState* state);
  // Ends a request in any state: when cancel returns, the buffers of this request are not touched
  // again. A cancelled message may or may not have reached the peer, so cancel is for communicators
  // that are being given up. Takes bounded time, whatever the peer does.
  onebitResult_t (*cancel)(void* comm, MessageRequest request);
  // Moves messages on, without blocking.
  onebitResult_t (*progress)(void* comm);
  // Blocks until there may be something new, the time is over, or `abort` was called. Returns
  // onebitSuccess when the time is over, too: the caller looks at its clock.
  onebitResult_t (*wait)(void* comm, uint64_t timeout_ms);

  // Stops this end at once: wait and connect return, and every later call but cancel, getCounters,
  // describePeer and close returns onebitAborted. Callable from any thread, any number of times.
  onebitResult_t (*abort)(void* comm);
  // Frees this end. Pending requests are cancelled. Never waits for a peer.
  onebitResult_t (*close)(void* comm);

  // Reads how many bytes and messages isend has handed to the wire so far: headers and payloads,
  // without what lower layers add.
  onebitResult_t (*getCounters)(void* comm, uint64_t* bytes_sent, uint64_t* messages_sent);
  // Writes in a few words how a peer is reached, for error texts: "shared memory", "tcp over eth0".
  // At most `capacity` bytes, including the terminating 0. For the thread that uses this end, from
  // the return of `connect` on, even after errors and abort.
  onebitResult_t (*describePeer)(void* comm, int peer, char* text, size_t capacity);

  // Null unless the transport has an allreduce of its own. Starts it: `count` elements of
  // `datatype`, sum or average, from `send` to `recv`, which may be the same. Every rank starts the
  // same ones in the same order. The request is for test and cancel. While it is pending, probe
  // reports in payload_bytes how much of `recv` is done. No counter includes what it sends.
  onebitResult_t (*iallreduce)(void* comm, const void* send, void* recv, size_t count,
                               onebitDataType_t datatype, onebitRedOp_t op,
                               MessageRequest* request);
};

}  // namespace onebit
