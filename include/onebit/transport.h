/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Transport plugin ABI, version 2: moves bytes from one rank to another.
 *
 * A transport moves messages between the ranks of one communicator. A message is a small header and
 * a payload. The transport interprets neither: it knows no collective and no data type. The library
 * does everything above it: what is sent when, checks, deadlines, error texts.
 *
 * A plugin includes only this header and the results in onebit.h, fills one onebitTransport, and
 * exports it by a function named ONEBIT_TRANSPORT_SYMBOL. plugins/README.md describes the life of a
 * plugin and what one can do today; tests/transports has the conformance program that it must pass.
 *
 * Version 2 is not frozen: a change that breaks old plugins raises the version. `structSize` tells
 * which members exist.
 */
#ifndef ONEBIT_TRANSPORT_H_
#define ONEBIT_TRANSPORT_H_

#include <stddef.h>
#include <stdint.h>

#include "onebit/onebit.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ONEBIT_TRANSPORT_ABI_VERSION 2
#define ONEBIT_TRANSPORT_SYMBOL "onebitTransportGet"

/* Largest header of a message, in bytes. */
#define ONEBIT_TRANSPORT_HEADER_BYTES 64

/* Services of the library. The structure is valid until `init` returns, so a plugin copies it; its
 * functions and texts are valid until `finalize` returns. Any thread may call the functions. */
typedef struct {
  size_t structSize;
  /* Writes one line to the library's log. `level` is a onebitLogLevel_t; `text` has no newline and
   * is copied. */
  void (*log)(int level, const char* text);
  /* Returns a monotonic clock in nanoseconds. */
  uint64_t (*nowNs)(void);
  /* Names of the network interfaces to use, separated by commas; "" means any. Never NULL. */
  const char* interfaces;
  /* Values of the settings that the transport declares in its properties: a structure of
   * `settingsBytes` bytes, which the library has filled from the environment and the defaults.
   * Valid until `init` returns. NULL if the transport declares no settings. */
  const void* settings;
} onebitTransportHost;

/* Kind of a setting: the values that it accepts, and the type of the member that receives one. */
typedef enum {
  onebitSettingInteger = 0,       /* uint64_t: decimal digits, `minimum` to `maximum` */
  onebitSettingAutoOrInteger = 1, /* uint64_t: the same; ONEBIT_SETTING_AUTO for "auto" */
  onebitSettingBoolean = 2,       /* uint64_t: 0 or 1 */
  onebitSettingChoice = 3,        /* uint64_t: position in `values` */
  onebitSettingName = 4,          /* const char*: lower-case letters and digits */
  onebitSettingList = 5,          /* const char*: letters, digits and _-.:,^@/ */
  onebitSettingText = 6,          /* const char*: anything */
  onebitSettingPath = 7           /* const char*: names of files or folders; a set-user-ID program
                                   * or one with capabilities gets the default */
} onebitSettingKind;
#define ONEBIT_SETTING_AUTO UINT64_MAX

/* One setting: an environment variable whose name begins with ONEBIT_<TRANSPORT NAME IN CAPITALS>_.
 * The library reads it, refuses an invalid text, and prints the row in words. All texts have static
 * storage. */
typedef struct {
  const char* name;
  int kind; /* onebitSettingKind */
  /* The unit of an integer ("bytes"), the choices ("no|yes"), "" for a boolean, otherwise the value
   * in words ("path of a file"). */
  const char* values;
  uint64_t minimum; /* integers only */
  uint64_t maximum;
  const char* defaultValue; /* if it is "", the value of a name or list may be empty */
  const char* help;         /* one sentence */
  size_t offset;            /* that of the member that receives the value, a multiple of 8 */
} onebitTransportSetting;

typedef struct {
  size_t structSize;   /* set by the caller; members beyond it are left alone */
  const char* name;    /* lower case, e.g. "ucx" */
  int hasHostFace;     /* nonzero: the host members of onebitTransport are filled */
  size_t addressBytes; /* upper bound of what getAddress writes */
  size_t eagerBytes;   /* payloads up to this size travel with their header; equal on all ranks */
  const onebitTransportSetting* settings;
  size_t settingCount;
  size_t settingsBytes; /* size of the structure that the settings' offsets point into */
  /* Nonzero: after a rank was lost the others can make a new communicator. 0: they cannot, because
   * the layer below cannot do without the dead one. */
  int survivesLoss;
  /* Nonzero: the library makes dense allreduces of fp32 by `iallreduce` or, with a stream face, by
   * `allReduceOnStream`. Equal on all ranks. */
  int nativeDense;
  /* Nonzero: the stream members of onebitTransport are filled; they move messages from device
   * memory to device memory in the order of a CUDA stream. A transport with this face and no host
   * face serves device memory only. */
  int hasStreamFace;
} onebitTransportProperties;

/* The communicator that a new endpoint belongs to. */
typedef struct {
  size_t structSize;
  int rank;
  int nranks;
  uint64_t commId; /* the same on every rank of the communicator */
  /* The transport calls this, from any thread, when it learns that `peer` is gone while a message
   * to or from it is pending or begun. A peer from which nothing is expected may end without
   * notice. `text` says what was seen and is copied. The callback takes no lock that its caller may
   * hold. */
  void (*peerError)(void* argument, int peer, onebitResult_t result, const char* text);
  void* peerErrorArgument;
  /* NULL on every rank, or on every rank the group that `adopt` made of the same ranks. The
   * endpoint shares it and may outlive its release. */
  void* group;
} onebitTransportCommInfo;

/* A pending send or receive. Owned by the transport. Dead, and not to be used any more, once `test`
 * reported onebitTransportDone or an error, or `cancel` returned. */
typedef struct onebitTransportRequest_s* onebitTransportRequest;

typedef enum {
  onebitTransportPending = 0, /* nothing new */
  onebitTransportHeader = 1,  /* receive only: the header is in place; call accept or cancel */
  onebitTransportDone = 2     /* finished; the buffers are the caller's again */
} onebitTransportState;

/*
 * Rules that hold for every member:
 *   - Functions return onebitSuccess or an error; they never exit, abort or throw.
 *   - One thread at a time uses `comm`. Only `abort` may be called by any thread, at any time from
 *     the return of `open` until the call of `close`.
 *   - Only `wait` and `connect` block, up to their time-outs.
 *   - Messages from one rank to another arrive in the order of their isend calls.
 *   - After `connect` no member allocates heap memory or takes a lock on the path of a message that
 *     succeeds.
 */
typedef struct onebitTransport {
  size_t structSize;
  int abiVersion; /* ONEBIT_TRANSPORT_ABI_VERSION the plugin was built with */

  /* Starts the transport, once per process, before any other member but getProperties. Sets
   * *context. */
  onebitResult_t (*init)(const onebitTransportHost* host, void** context);
  /* Describes the transport. `context` may be NULL, even before init: then eagerBytes and
   * nativeDense, which may depend on settings, are 0. */
  onebitResult_t (*getProperties)(void* context, onebitTransportProperties* properties);
  /* Ends the transport. The library has closed every endpoint before. */
  onebitResult_t (*finalize)(void* context);

  /* Makes this rank's endpoint of a new communicator. Needs no other rank. */
  onebitResult_t (*open)(void* context, const onebitTransportCommInfo* info, void** comm);
  /* Writes the endpoint's address, at most `addressBytes` of the properties; sets *bytes. */
  onebitResult_t (*getAddress)(void* comm, void* address, size_t* bytes);
  /* Connects to all ranks. addresses[r] holds addressBytes[r] bytes, for the own rank as well. All
   * ranks call it at about the same time; it may wait for the others' calls, up to its timeout.
   * Every rank's endpoint stays open until connect has returned on all ranks. */
  onebitResult_t (*connect)(void* comm, const void* const* addresses, const size_t* addressBytes,
                            uint64_t timeoutMs);

  /* Starts to send a message. The header is copied; the caller leaves the payload untouched until
   * the request is done. payload may be NULL if payloadBytes is 0. Sends that are done at once may
   * share one request.
   * onebitInProgress: there is no room now and *request is not set. Make progress, test what is
   * pending, and try again.
   * onebitRemoteError, onebitPeerLost: the peer is gone, and peerError was called. */
  onebitResult_t (*isend)(void* comm, int peer, const void* header, size_t headerBytes,
                          const void* payload, size_t payloadBytes,
                          onebitTransportRequest* request);
  /* Starts to receive the next message from `peer`. `header` has room for headerCapacity >=
   * ONEBIT_TRANSPORT_HEADER_BYTES bytes and stays valid until the request is dead. At most one
   * receive per peer may wait for its header; post the next one once that header was reported.
   * onebitInProgress: too many requests are unfinished and *request is not set. Test them and try
   * again. */
  onebitResult_t (*irecv)(void* comm, int peer, void* header, size_t headerCapacity,
                          onebitTransportRequest* request);
  /* Reads the sizes of a message whose header has arrived. */
  onebitResult_t (*probe)(void* comm, onebitTransportRequest request, size_t* headerBytes,
                          size_t* payloadBytes);
  /* Starts to receive the payload of a message whose header has arrived into `payload`, whose size
   * must be exactly that reported by probe. Before this call the payload touches none of the
   * caller's memory. If the payload cannot arrive, because its sender cancelled or is gone, test
   * reports it. */
  onebitResult_t (*accept)(void* comm, onebitTransportRequest request, void* payload,
                           size_t payloadBytes);
  /* Reports the state of a request. Makes no progress. An error means that this request failed and
   * is dead. Only onebitAborted concerns the endpoint instead: the buffers then stay the
   * transport's until cancel or close. Once all requests of a rank are done, its peers can finish
   * theirs without any progress by that rank, however long it stays away. */
  onebitResult_t (*test)(void* comm, onebitTransportRequest request, onebitTransportState* state);
  /* Ends a request in any state: when cancel returns, the transport will not touch the buffers of
   * this request again. A cancelled message may or may not have reached the peer, so cancel is for
   * communicators that are being given up. Takes bounded time, whatever the peer does. */
  onebitResult_t (*cancel)(void* comm, onebitTransportRequest request);
  /* Moves messages on, without blocking. */
  onebitResult_t (*progress)(void* comm);
  /* Blocks until there may be something new for this endpoint, the time is over, or `abort` was
   * called. Returns onebitSuccess when the time is over, too: the caller looks at its clock. */
  onebitResult_t (*wait)(void* comm, uint64_t timeoutMs);

  /* Stops the endpoint at once: wait and connect return, and every later call but cancel,
   * getCounters, describePeer and close returns onebitAborted. Callable from any thread, any number
   * of times. */
  onebitResult_t (*abort)(void* comm);
  /* Frees the endpoint. Pending requests are cancelled. Never waits for a peer. */
  onebitResult_t (*close)(void* comm);

  /* Reads how many bytes and messages isend has handed to the wire so far: headers and payloads,
   * without what lower layers add. */
  onebitResult_t (*getCounters)(void* comm, uint64_t* bytesSent, uint64_t* messagesSent);

  /* Writes in a few words how a peer is reached, for error texts: "shared memory", "tcp over eth0".
   * At most `capacity` bytes, including the terminating 0. For the thread that uses the endpoint,
   * from the return of `connect` on, even after errors and abort. */
  onebitResult_t (*describePeer)(void* comm, int peer, char* text, size_t capacity);

  /* The members from here on are optional: one that is NULL or beyond `structSize` does not exist.
   */

  /* Makes a group of the ranks of a communicator of the layer below. `native` points to its handle,
   * `nativeBytes` long, in a form that the transport documents; NULL: the communicator of all
   * processes that were started together. All its ranks call this at about the same time; it may
   * wait for them, up to its timeout. The native communicator stays the application's, and later
   * traffic of the transport cannot be mistaken for traffic on it. Sets *group, *rank and
   * *nranks. */
  onebitResult_t (*adopt)(void* context, const void* native, size_t nativeBytes, uint64_t timeoutMs,
                          void** group, int* rank, int* nranks);
  /* Copies `count` bytes from the group's rank 0 to all its ranks. Each of them calls it, before
   * any endpoint of the group is opened. onebitTimeout: not all came in time. */
  onebitResult_t (*broadcast)(void* group, void* bytes, size_t count, uint64_t timeoutMs);
  /* Ends the caller's use of a group. Endpoints may outlive it. */
  onebitResult_t (*release)(void* group);
  /* Starts the allreduce of the layer below: `count` elements of `datatype`, sum or average, from
   * `send` to `recv`, which may be the same. Every rank starts the same ones in the same order. The
   * request is for test and cancel. While it is pending, probe reports in payloadBytes how much of
   * `recv` is done, so that the caller sees progress. No counter includes what it sends. */
  onebitResult_t (*iallreduce)(void* comm, const void* send, void* recv, size_t count,
                               onebitDataType_t datatype, onebitRedOp_t op,
                               onebitTransportRequest* request);

  /* The stream face. `stream` is a CUDA stream of the device that the endpoint was opened on; NULL
   * is its legacy default stream. That device is the calling thread's current one in `open` and in
   * all calls of this face. Buffers are memory of that device and stay untouched until the stream
   * has passed the call. Messages have no header: between two ranks sends and receives match in
   * their order, and the sizes of a pair must be equal. Everything may be captured into a CUDA
   * graph. Nothing blocks, except that the first message to a peer may connect to it.
   *
   * Calls between groupBegin and groupEnd are collected and start together at groupEnd, so that
   * sends and receives cannot wait for each other. Groups of an endpoint do not nest. A thread that
   * drives several endpoints begins a group of each and then ends them: all start together at the
   * end of the last one, whose result is that of all. After an error the endpoint is good for abort
   * and close only. */
  onebitResult_t (*groupBegin)(void* comm);
  onebitResult_t (*sendOnStream)(void* comm, int peer, const void* buffer, size_t bytes,
                                 onebitStream_t stream);
  onebitResult_t (*recvOnStream)(void* comm, int peer, void* buffer, size_t bytes,
                                 onebitStream_t stream);
  onebitResult_t (*groupEnd)(void* comm);
  /* Enqueues the allreduce of the layer below over `count` elements; `send` may equal `recv`.
   * Inside or outside a group. No counter includes what it sends. */
  onebitResult_t (*allReduceOnStream)(void* comm, const void* send, void* recv, size_t count,
                                      onebitDataType_t datatype, onebitRedOp_t op,
                                      onebitStream_t stream);
  /* Returns an error that came up after the calls had returned, such as that of a connection, or
   * onebitSuccess. Writes its text, at most `capacity` bytes, including the terminating 0. Callable
   * from any thread, concurrently with the other calls of this face. */
  onebitResult_t (*asyncError)(void* comm, char* text, size_t capacity);
} onebitTransport;

/* Type of the function a plugin exports as ONEBIT_TRANSPORT_SYMBOL. */
typedef const onebitTransport* (*onebitTransportGetFunction)(void);

#ifdef __cplusplus
}
#endif

#endif /* ONEBIT_TRANSPORT_H_ */
