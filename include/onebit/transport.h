/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Transport plugin ABI, version 4: carries frames from one rank to another.
 *
 * A frame is a header of at most ONEBIT_TRANSPORT_FRAME_HEADER_BYTES and a payload of bounded size.
 * The transport interprets neither. It delivers the frames of two ranks in order and says when a
 * rank can no longer be reached. The library does everything above that: messages of any size, flow
 * control, cancellation, deadlines, checks, error texts.
 *
 * A plugin includes only this header and the results in onebit.h, fills one onebitTransport, and
 * exports it by a function named ONEBIT_TRANSPORT_SYMBOL. plugins/README.md describes the life of a
 * plugin and what one can do today; tests/transports has the conformance program that it must pass.
 *
 * Version 4 is not frozen: a change that breaks old plugins raises the version. `structSize` tells
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

#define ONEBIT_TRANSPORT_ABI_VERSION 4
#define ONEBIT_TRANSPORT_SYMBOL "onebitTransportGet"

#define ONEBIT_TRANSPORT_KEY_BYTES 32
/* Largest header of a frame, in bytes. */
#define ONEBIT_TRANSPORT_FRAME_HEADER_BYTES 112
/* Payloads that a rank may offer to one peer at a time. */
#define ONEBIT_TRANSPORT_OFFERS 32

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
  int hasFrameFace;    /* nonzero: the frame members of onebitTransport are filled */
  size_t addressBytes; /* upper bound of what getAddress writes */
  /* Payloads of messages up to these sizes travel with their header, and start before the receiver
   * has memory for them. Equal on all ranks; eagerBytes is also the limit of a short frame. */
  size_t eagerBytes;
  size_t earlyBytes;
  /* Equal for processes that can share memory over this transport. 0: it makes no difference. */
  uint64_t memoryDomain;
  const onebitTransportSetting* settings;
  size_t settingCount;
  size_t settingsBytes; /* size of the structure that the settings' offsets point into */
  /* Nonzero: after a rank was lost the others can make a new communicator. 0: they cannot, because
   * the layer below cannot do without the dead one. */
  int survivesLoss;
  /* Nonzero: the library makes a caller's dense sums and averages of fp32 by `iallreduce`; with a
   * stream face it makes all of onebitTransportCollective_t by `collectiveOnStream`. Equal on all
   * ranks. */
  int nativeDense;
  /* Nonzero: the stream members of onebitTransport are filled; they move messages from device
   * memory to device memory in the order of a CUDA stream. A transport with this face and no frame
   * face serves device memory only. */
  int hasStreamFace;
  /* Name and value of a setting that changes calls in a way that the library does not see; ranks
   * whose values differ do not join. NULL: there is none. Valid as long as the context. */
  const char* agreedName;
  const char* agreedValue;
} onebitTransportProperties;

typedef enum {
  onebitTransportAllReduce = 0,
  onebitTransportReduceScatter = 1,
  onebitTransportAllGather = 2,
  onebitTransportBroadcast = 3
} onebitTransportCollective_t;

/* A collective of the layer below. In place, the smaller buffer is this rank's part of the larger.
 */
typedef struct {
  onebitTransportCollective_t collective;
  const void* send; /* NULL on the ranks of a broadcast that are not its root */
  void* recv;
  size_t count; /* elements; of one part if a buffer has a part for every rank */
  /* Any of onebit.h. A plugin refuses what it does not know by onebitInvalidArgument. */
  onebitDataType_t datatype;
  onebitRedOp_t op; /* of an allreduce or reduce-scatter; refused in the same way */
  int root;         /* of a broadcast */
} onebitTransportCollectiveCall;

/* The path to one rank. The transport alone writes it, during the calls of the thread that uses the
 * endpoint. */
typedef struct {
  size_t structSize;
  size_t pieceBytes; /* largest payload of a long frame */
  int isPaced;       /* nonzero: over a shared network; the library limits the bytes in flight */
  int isHere;        /* nonzero: the rank is on this machine and shares its processors */
  int canPull;       /* nonzero: offer, pull and recall work between the two ranks */
  /* Nonzero: `connect` has reached the rank, and frames sent from now on arrive. 0: the library
   * finds out by a frame in each direction before the communicator is used. */
  int isReached;
  /* Counters of frames that `sendFrame` took but could not send at once: how many it took, and how
   * many of them it has sent since. */
  uint64_t taken;
  uint64_t sent;
  const char* loss;  /* why the rank cannot be reached, static storage; NULL: it can */
  const char* host;  /* the rank's host */
  const char* route; /* in words: "shared memory", "tcp over eth0" */
} onebitTransportLink;

/* The two kinds of frame have separate room, so that neither keeps the other waiting. */
typedef enum {
  onebitFrameShort = 0, /* header and payload: at most the largest header plus eagerBytes */
  onebitFrameLong = 1   /* payload: at most the link's pieceBytes */
} onebitFrameKind;

/* The communicator that a new endpoint belongs to. */
typedef struct {
  size_t structSize;
  int rank;
  int nranks;
  uint64_t commId; /* the same on every rank of the communicator */
  /* The transport calls these with `argument`, during calls of the thread that uses the
   * endpoint. onFrame delivers a frame, whose memory is valid during the call. onLoss: the `loss`
   * of some link was set. onEvent: something else that a sleep may be waiting for has happened,
   * such as room for a frame after sendFrame returned onebitInProgress. `peer` is the rank whose
   * link a frame came by, and the library drops frames that claim to be from another; -1: the layer
   * below does not tell, so any rank can pretend to be any other.
   *
   * A transport that can choose where the payload of a frame goes may ask by placeFrame, once the
   * header has arrived and before onFrame. It gets memory of `payloadBytes` bytes, which is then
   * the payload of onFrame, or NULL: it uses its own. The memory may be a user's. It is the
   * transport's to write until onFrame, or until the library calls stopPlacing. */
  void* (*placeFrame)(void* argument, int peer, const void* header, size_t headerBytes,
                      size_t payloadBytes);
  void (*onFrame)(void* argument, int peer, const void* header, size_t headerBytes,
                  const void* payload, size_t payloadBytes);
  void (*onLoss)(void* argument);
  void (*onEvent)(void* argument);
  void* argument;
  /* ONEBIT_TRANSPORT_KEY_BYTES bytes that the ranks of the communicator share and nobody else
   * knows, for proofs; NULL if the communicator has none. Valid until `open` returns, as are the
   * addresses. */
  const unsigned char* key;
  /* The address by which the other ranks reach this process: a sockaddr_in or sockaddr_in6 of
   * `addressBytes` bytes, port 0. NULL: loopback is enough. The wildcard address: this is rank 0's
   * process, which does not know by which of its addresses the others reach it. */
  const void* address;
  size_t addressBytes;
  /* The address by which this rank reaches rank 0's process, in the same form. */
  const void* server;
  size_t serverBytes;
  int isOneHost; /* nonzero: the memoryDomain of all ranks is the same, and not 0 */
  /* NULL on every rank, or on every rank the group that `adopt` made of the same ranks. The
   * endpoint shares it and may outlive its release. */
  void* group;
} onebitTransportCommInfo;

/*
 * Rules that hold for every member:
 *   - Functions return onebitSuccess or an error; they never exit, abort or throw.
 *   - One thread at a time uses `comm`. Only `abort` may be called by any thread, at any time
 *     from the return of `open` until the call of `close`.
 *   - Only `sleep` and `connect` block, up to their time-outs, and `recall` for a moment.
 *   - Frames from one rank to another arrive in the order of their sendFrame calls, except that a
 *     long frame may be overtaken by a short one.
 *   - After `connect` no member allocates heap memory or takes a lock on the path of a frame that
 *     is sent or delivered.
 */
typedef struct onebitTransport {
  size_t structSize;
  int abiVersion; /* ONEBIT_TRANSPORT_ABI_VERSION the plugin was built with */

  /* Starts the transport, once per process, before any other member but getProperties. Sets
   * *context. */
  onebitResult_t (*init)(const onebitTransportHost* host, void** context);
  /* Describes the transport. `context` may be NULL, even before init: then eagerBytes, earlyBytes
   * and nativeDense, which may depend on settings, are 0. */
  onebitResult_t (*getProperties)(void* context, onebitTransportProperties* properties);
  /* Ends the transport. The library has closed every endpoint before. */
  onebitResult_t (*finalize)(void* context);

  /* Makes this rank's endpoint of a new communicator. Needs no other rank. */
  onebitResult_t (*open)(void* context, const onebitTransportCommInfo* info, void** comm);
  /* Writes the endpoint's address, at most `addressBytes` of the properties; sets *bytes. */
  onebitResult_t (*getAddress)(void* comm, void* address, size_t* bytes);
  /* Opens the paths to all ranks, and allocates everything that frames need. addresses[r] holds
   * addressBytes[r] bytes; this rank's own address is included. All ranks call it at about the same
   * time; it may wait for the others' calls, up to its time-out. After onebitInvalidArgument, which
   * says that the addresses are unusable, it may be called again; otherwise only once. */
  onebitResult_t (*connect)(void* comm, const void* const* addresses, const size_t* addressBytes,
                            uint64_t timeoutMs);
  /* Stops the endpoint: connect and sleep return at once, now and from now on, and calls of the
   * stream face return onebitAborted. Frames can still be sent, so that the library can tell the
   * peers. Callable from any thread, any number of times. */
  onebitResult_t (*abort)(void* comm);
  /* Frees the endpoint, whatever has failed before. Never waits for a peer: frames that have not
   * been sent are lost. */
  onebitResult_t (*close)(void* comm);

  /* The frame face. Its members are called only after a connect that succeeded. */

  /* Sets *link to the path to a rank, which stays there until close. */
  onebitResult_t (*getLink)(void* comm, int peer, const onebitTransportLink** link);
  /* Sends a frame; `kind` is a onebitFrameKind. Header and payload are the caller's again when it
   * returns: what cannot be sent at once is copied. A frame to this rank itself may be delivered
   * inside the call.
   * onebitInProgress: there is no room now. Make progress and try again.
   * onebitPeerLost: the rank cannot be reached; its link says why. */
  onebitResult_t (*sendFrame)(void* comm, int peer, int kind, const void* header,
                              size_t headerBytes, const void* payload, size_t payloadBytes);
  /* Moves frames on, without blocking. *hasMoved: nonzero if there was something to do. */
  onebitResult_t (*progress)(void* comm, int* hasMoved);
  /* Blocks until there may be something to do, the time is over, or `abort` was called. */
  onebitResult_t (*sleep)(void* comm, uint64_t timeoutNs);

  /* The members from here on are optional: one that is NULL or beyond `structSize` does not exist.
   */

  /* Ends the placing of a frame that is arriving from `peer`, if there is one: the rest of it goes
   * to memory of the transport's own. Only for transports that call placeFrame. Callable at any
   * time from `connect` to `close`. */
  onebitResult_t (*stopPlacing)(void* comm, int peer);
  /* Payloads that the receiver copies straight out of the sender's memory, for links that canPull.
   * `index` is less than ONEBIT_TRANSPORT_OFFERS; each rank has offers of its own to each peer. */

  /* Lets the peer read `bytes` bytes at `payload` until `recall` returns. */
  onebitResult_t (*offer)(void* comm, int peer, int index, const void* payload, size_t bytes);
  /* Copies what the peer has offered, which must be `bytes` bytes. Ends the offer.
   * onebitRemoteError: it was recalled, and `target` may hold a part of it. */
  onebitResult_t (*pull)(void* comm, int peer, int index, void* target, size_t bytes);
  /* Ends an offer, if there is one: once it returns nobody reads the payload. Waits for a
   * peer that is copying, at most for one piece of bounded size. Callable until `close`. */
  onebitResult_t (*recall)(void* comm, int peer, int index);
  /* Starts to hand all frames sent so far to the wire, if sending them does not do so already. */
  onebitResult_t (*startFlush)(void* comm);
  /* Sets *flushed to nonzero once they all have been handed over. */
  onebitResult_t (*isFlushed)(void* comm, int* flushed);
  /* Returns onebitInvalidUsage, and logs a line, if the calling thread must not use the endpoint.
   * Callable at any time. */
  onebitResult_t (*checkThread)(void* comm);
  /* Sets *can to nonzero if any thread may send a frame between two calls of the one that uses the
   * endpoint. Without this member, any thread may. Callable from any thread, at any time. */
  onebitResult_t (*canSendFromAnyThread)(void* comm, int* can);

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
   * `send` to `recv`, which may be the same. Every rank starts the same ones in the same order, one
   * at a time. No counter includes what it sends.
   * onebitInProgress: the layer below still works on an earlier one. */
  onebitResult_t (*iallreduce)(void* comm, const void* send, void* recv, size_t count,
                               onebitDataType_t datatype, onebitRedOp_t op);
  /* Sets *bytesDone to how much of `recv` is done; all of it at the end. An error ends the
   * allreduce. `progress` moves it on. */
  onebitResult_t (*testAllreduce)(void* comm, size_t* bytesDone);
  /* Ends the allreduce: when this returns, its buffers are the caller's again. Callable at any
   * time. */
  onebitResult_t (*cancelAllreduce)(void* comm);

  /* Reads how many bytes and messages of the stream face were handed to the wire so far, without
   * what lower layers add. */
  onebitResult_t (*getCounters)(void* comm, uint64_t* bytesSent, uint64_t* messagesSent);
  /* Writes in a few words how a peer is reached, at most `capacity` bytes with the terminating 0.
   * onebitTimeout: and why what was sent to it does not arrive. Frame transports may omit it. */
  onebitResult_t (*describePeer)(void* comm, int peer, char* text, size_t capacity);

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
  /* Enqueues a collective of the layer below, inside or outside a group. No counter includes what
   * it sends. */
  onebitResult_t (*collectiveOnStream)(void* comm, const onebitTransportCollectiveCall* call,
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
