// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// FrameTransport: what an endpoint needs of a network library, which is to carry frames between
// ranks.
#pragma once

#include <onebit/transport.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

namespace onebit::plugin {

// The way to one rank. The frame transport's; it stays where it is from Open to the end.
struct Link {
  size_t piece_bytes = 0;  // of a payload that one frame carries
  // Whether only so many bytes may be on their way to this rank: over a network that is shared.
  bool is_paced = false;
  // Frames that the frame transport could not send at once: those it took, and those of them that
  // it has sent since. They go in the order they were taken, but for some that overtake smaller
  // ones.
  uint64_t taken = 0;
  uint64_t sent = 0;
  const char* loss = nullptr;  // why the rank cannot be reached any more; null: it can
  std::string host;            // where the rank is, for texts
  std::string route;           // in words: "shared memory", "tcp over eth0"

  uint64_t in_flight() const { return taken - sent; }
  bool is_lost() const { return loss != nullptr; }
};

enum class Sent { kYes, kNoRoom, kFailed };

// Frames of the two kinds have room of their own, so that neither keeps the other waiting.
enum class FrameKind {
  kShort,  // at most kMostHeaderBytes and the eager limit
  kPiece,  // at most kMostHeaderBytes and `piece_bytes` of the link
};

class FrameSink {
 public:
  // The memory is the frame transport's, until it returns.
  virtual void OnFrame(const void* header, size_t header_bytes, const void* payload,
                       size_t payload_bytes) = 0;
  // Something else than a frame has come that a caller may wait for.
  virtual void OnNews() = 0;

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

  // Where frames go that arrive inside Progress, Send or Sleep.
  void SetSink(FrameSink* sink) { sink_ = sink; }

  // Writes what the others need to know, at most addressBytes of the properties. Throws
  // std::bad_alloc, as Open does.
  virtual onebitResult_t GetAddress(void* address, size_t* bytes) = 0;
  // Opens the ways to all ranks and allocates whatever frames need. Called once at most. Logs why
  // not.
  virtual onebitResult_t Open(const void* const* addresses, const size_t* address_bytes,
                              uint64_t timeout_ns, const std::function<bool()>& is_aborted) = 0;
  // Gives everything up, without waiting for anybody, also without Open or after one that failed.
  // Nothing but the destructor follows.
  virtual void Close() = 0;

  // From here to StartFlush, and is_flushed: only after an Open that succeeded.
  virtual Link* link(int rank) = 0;
  // Ranks on this machine, this one included: they share its processors.
  virtual uint32_t ranks_here() const = 0;

  // Sends a frame. Both spans are the caller's again when it returns.
  virtual Sent Send(int rank, FrameKind kind, std::span<const std::byte> header,
                    std::span<const std::byte> payload) = 0;
  // Moves frames on. False if there was nothing to do.
  virtual bool Progress() = 0;
  // Returns when there may be something to do, after an interrupt, or when the time is over.
  virtual void Sleep(uint64_t timeout_ns) = 0;
  // Any thread, also before Open and while it goes on. Ends the sleep that is going on, and those
  // to come.
  virtual void Interrupt() = 0;
  // Whether some link has been lost since it was asked last.
  bool TakeLosses() { return std::exchange(has_losses_, false); }

  // Starts to hand everything that was sent to the wire, where that is more than sending it.
  virtual void StartFlush() {}
  virtual bool is_flushed() const { return true; }

  // At any time. From here on nothing of a caller's memory is read or written, by what goes beside
  // the frames of a frame transport.
  virtual void ForgetCallers() {}

  // At any time: onebitInvalidUsage, and a line in the log, if the calling thread may not use the
  // frame transport.
  virtual onebitResult_t CheckThread() const { return onebitSuccess; }
  // At any time: whether a thread that is not the owner's may send, between two calls of the owner.
  virtual bool CanTellOfAbort() const { return true; }

 protected:
  FrameSink* sink_ = nullptr;
  bool has_losses_ = false;
};

// Payloads up to this size set out before the receiver has asked for them: `most`, or less in a
// communicator of many ranks, because each keeps a window of them for every other.
size_t EarlyBytes(size_t most, size_t ranks);

}  // namespace onebit::plugin
