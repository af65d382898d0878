/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Transport plugin ABI, version 1: how bytes get from one rank to another.
 *
 * A transport moves messages between the ranks of one communicator. A message is a small header and
 * a payload. The transport looks into neither: it knows no collective and no data type. Everything
 * above it (what is sent when, checks, deadlines, error texts) is the library's business.
 *
 * A plugin includes only this header and the results in onebit.h, fills one onebitTransport and
 * exports it by a function named ONEBIT_TRANSPORT_SYMBOL. plugins/README.md tells the story of a
 * plugin from start to end, and what can be done with one today; tests/transports holds the
 * conformance program it must pass.
 *
 * Version 1 is not frozen until two transports have used it. `structSize` tells which members
 * exist.
 */
#ifndef ONEBIT_TRANSPORT_H_
#define ONEBIT_TRANSPORT_H_

#include <stddef.h>
#include <stdint.h>

#include "onebit/onebit.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ONEBIT_TRANSPORT_ABI_VERSION 1
#define ONEBIT_TRANSPORT_SYMBOL "onebitTransportGet"

/* Largest header of a message. */
#define ONEBIT_TRANSPORT_HEADER_BYTES 64

/* Services that the library offers to a plugin; valid from `init` until `finalize` returns. All are
 * callable from any thread. */
typedef struct {
  size_t structSize;
  /* Writes one line to the library's log. `level` is that of onebitLogLevel_t; `text` is one line
   * without the newline, copied. */
  void (*log)(int level, const char* text);
  /* Text of a setting that this transport declared in its properties, as the environment gives it;
   * NULL when it is not set there (the default holds) or not declared. The text has passed
   * `accepts` and stays valid until `finalize` returns. */
  const char* (*setting)(const char* name);
  /* Monotonic clock in nanoseconds. */
  uint64_t (*nowNs)(void);
  /* Names of the network interfaces that the library was told to use, with commas between them; ""
   * means any. Never NULL. */
  const char* interfaces;
} onebitTransportHost;

/* One setting (environment variable) a transport understands; all texts have static storage. Its
 * name must begin with ONEBIT_<TRANSPORT NAME IN CAPITALS>_. */
typedef struct {
  const char* name;
  const char* type; /* what its value may be, e.g. "bytes, 0 to 65536" */
  const char* defaultValue;
  const char* help; /* one sentence */
  /* Nonzero if `text` is a value of this setting; the library refuses the others. NULL: every text
   * is one. Callable before `init`, from any thread. */
  int (*accepts)(const char* text);
} onebitTransportSetting;

typedef struct {
  size_t structSize;   /* set by the caller; what lies beyond it is left alone */
  const char* name;    /* lower case, e.g. "ucx" */
  int hasHostFace;     /* the host members below are filled */
  size_t addressBytes; /* upper bound of what getAddress writes */
  size_t eagerBytes;   /* payloads up to this travel with their header; agreed between ranks */
  const onebitTransportSetting* settings;
  size_t settingCount;
  /* Nonzero: after a rank was lost the others can make a new communicator. 0: a process that has
   * lost a peer can make none that lives, because the layer below cannot do without the dead one.
   */
  int survivesLoss;
  /* Nonzero: dense allreduces of fp32 are to be done by `iallreduce`, or with a stream face by
   * `allReduceOnStream`; agreed between ranks. */
  int nativeDense;
  /* The stream members below are filled: messages go from device memory to device memory, in the
   * order of a CUDA stream. A transport that has this face and no host face serves device memory
   * alone. */
  int hasStreamFace;
} onebitTransportProperties;

/* What a new endpoint is part of. */
typedef struct {
  size_t structSize;
  int rank;
  int nranks;
  uint64_t commId; /* the same on every rank of the communicator */
  /* Called by the transport, from whatever thread runs it, when it learns that `peer` is gone while
   * a message to or from it is pending or begun; a peer of which nothing is expected may end
   * without a word. `text` says what was seen; it is copied. The callback takes no lock that a
   * caller may hold. */
  void (*peerError)(void* argument, int peer, onebitResult_t result, const char* text);
  void* peerErrorArgument;
  /* Of `adopt`, on every rank, with the same ranks; NULL on every rank: none. The endpoint shares
   * it and need not outlive its release. */
  void* group;
} onebitTransportCommInfo;

/* A pending send or receive. Owned by the transport; dead once `test` reported onebitTransportDone
 * or an error, or `cancel` returned. */
typedef struct onebitTransportRequest_s* onebitTransportRequest;

typedef enum {
  onebitTransportPending = 0, /* nothing new */
  onebitTransportHeader = 1,  /* receive only: the header is in place; call accept or cancel */
  onebitTransportDone = 2     /* finished: the buffers are the caller's again */
} onebitTransportState;

/*
 * Rules that hold for every member:
 *   - Functions return onebitSuccess or an error; they never exit, abort or throw.
 *   - `comm` is used by one thread at a time, except `abort`, which any thread may call at any time
 *     between the return of `open` and the call of `close`.
 *   - Nothing blocks except `wait` (up to its timeout) and `connect` (up to its timeout).
 *   - Messages from one rank to another arrive in the order of their isend calls.
 *   - After `connect` no member allocates heap memory or takes a lock on the path of a message that
 *     succeeds.
 */
typedef struct onebitTransport {
  size_t structSize;
  int abiVersion; /* ONEBIT_TRANSPORT_ABI_VERSION the plugin was built with */

  /* Starts the transport, once per process, before anything else. Sets *context. */
  onebitResult_t (*init)(const onebitTransportHost* host, void** context);
  /* `context` may be NULL, also before init: then eagerBytes is that of the default settings. */
  onebitResult_t (*getProperties)(void* context, onebitTransportProperties* properties);
  /* Ends the transport. Every endpoint has been closed. */
  onebitResult_t (*finalize)(void* context);

  /* Makes this rank's endpoint of a new communicator. Needs no other rank. */
  onebitResult_t (*open)(void* context, const onebitTransportCommInfo* info, void** comm);
  /* Writes the endpoint's address, at most `addressBytes` of the properties; sets *bytes. */
  onebitResult_t (*getAddress)(void* comm, void* address, size_t* bytes);
  /* Connects to all ranks. addresses[r] holds addressBytes[r] bytes, own rank included. All ranks
   * call it at about the same time, and it may wait for the others' calls, up to its timeout. Every
   * rank's endpoint stays open until connect has returned on all ranks. */
  onebitResult_t (*connect)(void* comm, const void* const* addresses, const size_t* addressBytes,
                            uint64_t timeoutMs);

  /* Starts to send a message. The header is copied; the payload stays untouched by the caller until
   * the request is done. payload may be NULL when payloadBytes is 0. Sends that are done at once
   * may share one request. onebitInProgress: no room now; make progress, test what is pending and
   * try again. *request is then not set. onebitRemoteError, onebitPeerLost: the peer is gone, and
   * peerError was called. */
  onebitResult_t (*isend)(void* comm, int peer, const void* header, size_t headerBytes,
                          const void* payload, size_t payloadBytes,
                          onebitTransportRequest* request);
  /* Starts to receive the next message from `peer`. `header` has room for headerCapacity >=
   * ONEBIT_TRANSPORT_HEADER_BYTES bytes and stays valid until the request is dead. At most one
   * receive per peer is outstanding before its header has arrived; the next one may be posted as
   * soon as the former reported its header.
   * onebitInProgress: too many requests are unfinished; test them and try again. *request is then
   * not set. */
  onebitResult_t (*irecv)(void* comm, int peer, void* header, size_t headerCapacity,
                          onebitTransportRequest* request);
  /* Sizes of a message whose header has arrived. */
  onebitResult_t (*probe)(void* comm, onebitTransportRequest request, size_t* headerBytes,
                          size_t* payloadBytes);
  /* Takes the payload of a message whose header has arrived into `payload`, which must have exactly
   * the size that probe told. Until then nothing of the payload has touched the caller's memory.
   * That the payload cannot be had, because its sender cancelled or is gone, is told by test. */
  onebitResult_t (*accept)(void* comm, onebitTransportRequest request, void* payload,
                           size_t payloadBytes);
  /* State of a request. An error means that this request failed and is dead; only onebitAborted is
   * about the endpoint, and the buffers are still the transport's until cancel or close. Does not
   * progress. Once all requests of a rank are done, its peers need no progress of it to end theirs:
   * it may stay away for any time. */
  onebitResult_t (*test)(void* comm, onebitTransportRequest request, onebitTransportState* state);
  /* Ends a request whatever its state: when cancel returns, the transport will not touch the
   * buffers of this request again. A cancelled message may or may not have reached the peer, so
   * cancel is for communicators that are being given up. Takes bounded time, whatever the peer
   * does. */
  onebitResult_t (*cancel)(void* comm, onebitTransportRequest request);
  /* Moves messages on, without blocking. */
  onebitResult_t (*progress)(void* comm);
  /* Blocks until there may be something new for this endpoint, or the time is over (then
   * onebitSuccess too: the caller looks at its clock), or `abort` was called. */
  onebitResult_t (*wait)(void* comm, uint64_t timeoutMs);

  /* Makes the endpoint useless at once: wait and connect return, and every later call but cancel,
   * getCounters, describePeer and close returns onebitAborted. Callable from any thread, any number
   * of times. */
  onebitResult_t (*abort)(void* comm);
  /* Frees the endpoint. Pending requests are cancelled. Never waits for a peer. */
  onebitResult_t (*close)(void* comm);

  /* Bytes and messages that isend handed to the wire so far: headers and payloads, without what
   * lower layers add. */
  onebitResult_t (*getCounters)(void* comm, uint64_t* bytesSent, uint64_t* messagesSent);

  /* Writes in a few words how a peer is reached, for error texts: "shared memory", "tcp over eth0".
   * At most `capacity` bytes, the final 0 included. For the thread that uses the endpoint, from the
   * return of `connect` on, also after errors and abort. */
  onebitResult_t (*describePeer)(void* comm, int peer, char* text, size_t capacity);

  /* The members from here on are optional: NULL, or beyond `structSize`, means that the transport
   * has no such thing. */

  /* Makes a group of the ranks of a communicator of the layer below: that which `native` points to,
   * `nativeBytes` long, in a form that the transport documents; NULL: the one of all processes that
   * were started together. All its ranks call this at about the same time; it may wait for them, up
   * to its timeout. The native communicator stays the application's, and nothing that the transport
   * does later can be taken for traffic on it. Sets *group, *rank and *nranks. */
  onebitResult_t (*adopt)(void* context, const void* native, size_t nativeBytes, uint64_t timeoutMs,
                          void** group, int* rank, int* nranks);
  /* Gives `count` bytes of the group's rank 0 to all its ranks, each of which calls it, before any
   * endpoint of the group is opened. onebitTimeout: not all came in time. */
  onebitResult_t (*broadcast)(void* group, void* bytes, size_t count, uint64_t timeoutMs);
  /* Ends the caller's use of a group. */
  onebitResult_t (*release)(void* group);
  /* Starts an allreduce of the layer below's own: `count` elements of `datatype`, sum or average,
   * from `send` to `recv`, which may be the same. Every rank starts the same ones in the same
   * order. The request is for test and cancel, and while it is pending for probe, whose
   * payloadBytes are those of `recv` that are done: so a caller sees that it moves. What it sends
   * is in no counter. */
  onebitResult_t (*iallreduce)(void* comm, const void* send, void* recv, size_t count,
                               onebitDataType_t datatype, onebitRedOp_t op,
                               onebitTransportRequest* request);

  /* The stream face. `stream` is a CUDA stream of the device that the endpoint was opened on, which
   * is the current one of the calling thread in `open` and in all calls of this face; NULL is its
   * legacy default stream. Buffers are memory of that device and stay untouched until the stream
   * has passed. Messages have no header: sizes of a send and its receive must be equal, and between
   * two ranks they match in their order. Everything may be captured into a CUDA graph. Nothing
   * blocks, but that the first message to a peer may connect to it.
   *
   * Between groupBegin and groupEnd the calls of all ranks of a phase are gathered; they start
   * together at groupEnd, so that sends and receives cannot wait for each other. Groups of an
   * endpoint do not nest. A thread that drives several endpoints begins a group of each and then
   * ends them: all start together at the end of the last one, whose result is that of all. After an
   * error the endpoint is good for abort and close only. */
  onebitResult_t (*groupBegin)(void* comm);
  onebitResult_t (*sendOnStream)(void* comm, int peer, const void* buffer, size_t bytes,
                                 onebitStream_t stream);
  onebitResult_t (*recvOnStream)(void* comm, int peer, void* buffer, size_t bytes,
                                 onebitStream_t stream);
  onebitResult_t (*groupEnd)(void* comm);
  /* The layer below's own allreduce of `count` elements; `send` may equal `recv`. In a
   * group or outside of one. What it sends is in no counter. */
  onebitResult_t (*allReduceOnStream)(void* comm, const void* send, void* recv, size_t count,
                                      onebitDataType_t datatype, onebitRedOp_t op,
                                      onebitStream_t stream);
  /* An error that came up after the calls had returned, such as that of a connection; onebitSuccess
   * if there is none. Writes its text, at most `capacity` bytes, the final 0 included. From any
   * thread, also beside the other calls of this face. */
  onebitResult_t (*asyncError)(void* comm, char* text, size_t capacity);
} onebitTransport;

/* Type of the function a plugin exports as ONEBIT_TRANSPORT_SYMBOL. */
typedef const onebitTransport* (*onebitTransportGetFunction)(void);

#ifdef __cplusplus
}
#endif

#endif /* ONEBIT_TRANSPORT_H_ */
