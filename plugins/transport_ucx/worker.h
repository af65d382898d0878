// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Worker: UCX's worker of one endpoint, which sends without lending user memory to UCX.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "plugins/common/frame_transport.h"
#include "plugins/common/slot_pool.h"
#include "plugins/transport_ucx/piece_receives.h"
#include "plugins/transport_ucx/registration.h"
#include "plugins/transport_ucx/ucx_context.h"

namespace onebit::ucx {

using plugin::SlotPool;

// The ids of active messages: frames, and greetings, which hold the number of a rank.
inline constexpr unsigned kActiveMessage = 1;
inline constexpr unsigned kGreeting = 2;

// The largest active messages that UCX sends in one piece, as this transport configures it.
inline constexpr size_t kNetworkSegmentBytes = 65536;
inline constexpr size_t kSharedSegmentBytes = 32768;
// Payload of a piece: the size of a segment, less the headers of all layers.
inline constexpr size_t kNetworkPieceBytes = kNetworkSegmentBytes - 256;
inline constexpr size_t kSharedPieceBytes = kSharedSegmentBytes - 256;
// Staging slots per link. A link whose slots are all in flight is blocked anyway.
inline constexpr uint32_t kMostSmallInFlight = 40;
inline constexpr uint32_t kMostPiecesInFlight = 4;
// A piece that the rendezvous protocol moves is no segment, and costs a round trip.
inline constexpr size_t kRendezvousPieceBytes = 256 * 1024;

// Translates an error of UCX for the library.
inline onebitResult_t ResultOf(ucs_status_t status) {
  return status == UCS_ERR_NO_MEMORY ? onebitOutOfMemory : onebitSystemError;
}

// How far a connection of TCP is. UCX asks a peer for the number of its endpoint when it first
// keeps a frame to send it later, and UCX 1.13 ends the process if the connection fails before that
// request, or its answer, has left (ucp_request_send_state_ff). So both ends first show each other,
// by messages that leave at once or not at all, that there is a connection.
enum class Opening : uint8_t { kConnecting, kConnected, kDone };

// The path to one peer. `loss` is set during UCX's progress, when UCX finds the peer unreachable.
struct UcxLink : plugin::Link {
  ucp_ep_h endpoint = nullptr;
  bool shares_memory = false;  // if false, UCX watches the peer (error mode PEER)
  Opening opening = Opening::kDone;
  bool is_heard = false;       // the peer has a connection to this rank
  bool has_carried = false;    // a frame, at once; `sent` counts others
  bool* has_losses = nullptr;  // of the frame transport: some link is lost
};

// Where frames of one kind wait until UCX has sent them.
struct Staging {
  std::unique_ptr<SlotPool> pool;
  uint32_t most_in_flight = 0;  // slots per link
  // If there is one, frames over a network go by UCX's rendezvous protocol, out of this memory.
  std::unique_ptr<Registration> registration;
};

// Takes the number of a rank that says that it has a connection to this one.
using Greeting = void (*)(void* argument, uint32_t rank);

// One thread at a time.
class Worker {
 public:
  static onebitResult_t Create(const Context& context, ucp_context_h ucp, Arrival arrival,
                               Greeting greeting, void* argument, std::unique_ptr<Worker>* worker);
  // Never waits for a peer. What was given to Send must outlive the worker.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // A copy of UCX's address.
  std::string Address() const;
  // The address of `link` must be stable.
  ucs_status_t Connect(const void* address, UcxLink* link);
  // Describes the path: "shared memory", "tcp over eth0".
  static std::string Route(const UcxLink& link);

  // Makes this end take pieces that come by rendezvous; without it, their payload is dropped.
  void EnableRendezvous(size_t ranks);
  // Registers the memory of frames that are to be sent by rendezvous.
  std::unique_ptr<Registration> Register(SlotPool* pool) const;
  // Greets the peer if there is a connection to it, and link->opening says so then.
  static plugin::Sent Greet(UcxLink* link, uint32_t rank);
  // Sends header and payload: from the given memory if UCX can send at once, else from a copy in a
  // slot of `staging`.
  static plugin::Sent Send(UcxLink* link, std::span<const std::byte> header,
                           std::span<const std::byte> payload, const Staging& staging);

  // Makes progress. False if there was nothing to do.
  bool Progress() { return ucp_worker_progress(worker_) != 0; }
  // True: `wake_fd` will become readable when there is something to do. False: there is already, or
  // UCX has sends that need polling.
  bool Arm() { return ucp_worker_arm(worker_) == UCS_OK; }
  int wake_fd() const { return wake_fd_; }

  // Starts to hand all sent messages to the wire.
  void StartFlush();
  bool is_flushed() const;
  // Gives up the paths to peers, as far as UCX allows that, and delivers nothing any more. False:
  // the worker must not be destroyed.
  bool Close(std::span<UcxLink> links, const Context& context);

 private:
  Worker() = default;
  static void CloseByForce(UcxLink* link);

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::unique_ptr<PieceReceives> pieces_;  // null: rendezvous is off
  int wake_fd_ = -1;
  ucs_status_ptr_t flush_ = nullptr;
  Arrival arrival_ = nullptr;
  Greeting greeting_ = nullptr;
  void* argument_ = nullptr;
  static ucs_status_t OnMessage(void* argument, const void* header, size_t header_bytes, void* data,
                                size_t bytes, const ucp_am_recv_param_t* param);
  static ucs_status_t OnGreeting(void* argument, const void* header, size_t header_bytes,
                                 void* data, size_t bytes, const ucp_am_recv_param_t* param);
};

}  // namespace onebit::ucx
