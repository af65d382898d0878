// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// TcpLink: frames to and from one rank over a connection that has proved the job's key.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "comm/socket.h"
#include "plugins/common/frame_transport.h"
#include "plugins/transport_socket/frame_cipher.h"

namespace onebit::sockets {

// One thread at a time. After an error `link->loss` is set and nothing more is sent or received.
class TcpLink {
 public:
  static constexpr size_t kPieceBytes = 256u << 10;

  // `link` outlives this. `most_short_bytes`: payload of a short frame. Without a cipher frames
  // travel as they are. Throws std::bad_alloc.
  TcpLink(Descriptor socket, plugin::Link* link, size_t most_short_bytes,
          std::unique_ptr<FrameCipher> cipher);
  TcpLink(const TcpLink&) = delete;
  TcpLink& operator=(const TcpLink&) = delete;

  int fd() const { return socket_.get(); }
  // True if the socket takes nothing any more. Receive then ends with the loss of the link.
  bool is_broken() const { return send_error_ != nullptr; }
  // True if something waits for the socket to take it.
  bool has_queued() const { return flushed_ != queued_ && !is_broken(); }
  // True if the system has put on the wire whatever it took. What it has not is lost when the
  // socket is closed and the peer sends anything.
  bool has_left() const;

  // Describes bytes that the system retransmits without an acknowledgement; empty: there are none.
  std::string Trouble() const;

  // Sends as much as the socket takes and queues the rest.
  plugin::Sent Send(onebitFrameKind kind, std::span<const std::byte> header,
                    std::span<const std::byte> payload);
  // Sends what is queued, as much as the socket takes. False if that was nothing.
  bool Flush();
  // Delivers what has arrived, a bounded number of frames. False if that was nothing.
  bool Receive(int peer, const plugin::FrameSink& sink);
  // The rest of the frame that is arriving goes to memory of this class.
  void StopPlacing();

 private:
  // Precedes each frame.
  struct Sizes {
    uint32_t header_bytes;
    uint32_t payload_bytes;
  };
  // With the tags of header and payload.
  static constexpr size_t kMostHeadBytes =
      sizeof(Sizes) + ONEBIT_TRANSPORT_FRAME_HEADER_BYTES + 2 * FrameCipher::kTagBytes;
  // Frames that may be queued: room in bytes is the limit that matters.
  static constexpr size_t kMostQueuedFrames = 64;

  void Lose(const char* reason);
  std::span<const std::byte> Sealed(const Sizes& sizes, std::span<const std::byte> header,
                                    std::span<const std::byte> payload);
  size_t tag_bytes() const { return cipher_ == nullptr ? 0 : FrameCipher::kTagBytes; }
  void Queue(std::span<const std::byte> bytes);
  bool ReadMore();
  bool TakeHead(int peer, const plugin::FrameSink& sink);
  bool TakePayload();

  const Descriptor socket_;
  plugin::Link* const link_;
  const size_t most_short_bytes_;
  const std::unique_ptr<FrameCipher> cipher_;  // null: none
  const std::unique_ptr<std::byte[]> sealed_;  // the frame that is being sent; null without cipher

  // The queue: a ring of bytes. `queued_` and `flushed_` count bytes since the beginning.
  const size_t queue_bytes_;
  const std::unique_ptr<std::byte[]> queue_;
  uint64_t queued_ = 0;
  // Why the socket takes nothing any more. The link is lost only when everything was read that the
  // peer had sent before.
  const char* send_error_ = nullptr;
  uint64_t flushed_ = 0;
  std::array<uint64_t, kMostQueuedFrames> frame_ends_{};  // of queued frames, as `queued_` counts

  // Bytes that were read and belong to no frame yet lie from `begin_` to `end_`.
  static constexpr size_t kBufferBytes = 16u << 10;
  const std::unique_ptr<std::byte[]> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
  // The frame that is arriving, once its header is complete.
  bool has_head_ = false;
  Sizes sizes_{};
  std::array<std::byte, ONEBIT_TRANSPORT_FRAME_HEADER_BYTES> header_;
  const std::unique_ptr<std::byte[]> payload_;
  std::byte* target_ = nullptr;  // where the payload goes: `payload_`, or memory of the library
  size_t received_ = 0;          // bytes of the payload
};

}  // namespace onebit::sockets
