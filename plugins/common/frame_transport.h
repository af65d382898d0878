// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// FrameTransport: carries frames between ranks, which is all an endpoint needs from a network
// library.
#pragma once

#include <onebit/transport.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

namespace onebit::plugin {

// The path to one rank. Owned by the frame transport; its address is stable from Open to the end.
struct Link {
  size_t piece_bytes = 0;  // of a payload, in one frame
  // True over a shared network: the bytes on their way to this rank are then limited.
  bool is_paced = false;
  // Two counters of the frames that could not be sent at once: how many were accepted, and how many
  // of them have been sent since. Frames leave in the order they were accepted, except that some
  // overtake smaller ones.
  uint64_t taken = 0;
  uint64_t sent = 0;
  const char* loss = nullptr;  // why the rank is unreachable; null: it is reachable
  std::string host;            // the rank's host, for texts
  std::string route;           // in words: "shared memory", "tcp over eth0"

  uint64_t in_flight() const { return taken - sent; }
  bool is_lost() const { return loss != nullptr; }
};

enum class Sent { kYes, kNoRoom, kFailed };

// The two kinds of frame have separate capacity, so that neither keeps the other waiting.
enum class FrameKind {
  kShort,  // at most kMostHeaderBytes plus the eager limit
  kPiece,  // at most kMostHeaderBytes plus the link's `piece_bytes`
};

class FrameSink {
 public:
  // The memory belongs to the frame transport and is valid during the call.
  virtual void OnFrame(const void* header, size_t header_bytes, const void* payload,
                       size_t payload_bytes) = 0;
  // Reports an event other than a frame that a caller may wait for.
  virtual void OnEvent() = 0;

 protected:
  ~FrameSink() = default;
};

// Frames from one rank to another arrive in order, or at least those of one payload do. One thread
// at a time, except Interrupt.
class FrameTransport {
 public:
  FrameTransport() = default;
  virtual ~FrameTransport() = default;
  FrameTransport(const FrameTransport&) = delete;
  FrameTransport& operator=(const FrameTransport&) = delete;

  // Sets the receiver of frames that arrive inside Progress, Send or Sleep.
  void SetSink(FrameSink* sink) { sink_ = sink; }

  // Writes the address that the other ranks need, at most addressBytes of the properties. Throws
  // std::bad_alloc, as Open does.
  virtual onebitResult_t GetAddress(void* address, size_t* bytes) = 0;
  // Opens the links to all ranks and allocates everything that frames need. Called at most once.
  // Logs the cause of an error.
  virtual onebitResult_t Open(const void* const* addresses, const size_t* address_bytes,
                              uint64_t timeout_ns, const std::function<bool()>& is_aborted) = 0;
  // Gives everything up without waiting for anybody; allowed without Open or after one that failed.
  // Only the destructor may follow.
  virtual void Close() = 0;

  // The functions from here to is_flushed may be called only after an Open that succeeded.
  virtual Link* link(int rank) = 0;
  // Ranks on this machine, this one included: they share its processors.
  virtual uint32_t ranks_here() const = 0;

  // Sends a frame. Both spans are the caller's again when it returns.
  virtual Sent Send(int rank, FrameKind kind, std::span<const std::byte> header,
                    std::span<const std::byte> payload) = 0;
  // Makes progress on frames. False if there was nothing to do.
  virtual bool Progress() = 0;
  // Returns when there may be something to do, after an interrupt, or at the time-out.
  virtual void Sleep(uint64_t timeout_ns) = 0;
  // Ends the current sleep and all later ones. Thread-safe, also before and during Open.
  virtual void Interrupt() = 0;
  // True if some link was lost since the last call.
  bool TakeLosses() { return std::exchange(has_losses_, false); }

  // Starts to hand all sent frames to the wire, in transports where that is more than sending them.
  virtual void StartFlush() {}
  virtual bool is_flushed() const { return true; }

  // May be called at any time. From here on, operations other than frames no longer read or write
  // memory of a caller.
  virtual void ForgetCallers() {}

  // May be called at any time. Returns onebitInvalidUsage, and logs a line, if the calling thread
  // may not use the frame transport.
  virtual onebitResult_t CheckThread() const { return onebitSuccess; }
  // May be called at any time. True if a thread other than the owner's may send between two calls
  // of the owner.
  virtual bool CanAnnounceAbort() const { return true; }

 protected:
  FrameSink* sink_ = nullptr;
  bool has_losses_ = false;
};

// Payloads up to this size start before the receiver has asked for them: `most`, or less in a
// communicator of many ranks, because each rank keeps a window of them for every other.
size_t EarlyBytes(size_t most, size_t ranks);

}  // namespace onebit::plugin
