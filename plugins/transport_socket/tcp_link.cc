// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/transport_socket/tcp_link.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/format.h"

namespace onebit::sockets {
namespace {

using plugin::Sent;

// Short frames that may be queued while a long one is.
constexpr size_t kShortFramesQueued = 40;
// Frames to deliver before other links are served; those already read come on top.
constexpr int kFramesPerRead = 8;

const char* const kClosedByPeer = "it closed the connection: its process has ended";
const char* const kBreaksProtocol = "it violates the protocol";
const char* const kForged = "a frame was changed in transit, or was sealed with another key";

// Texts of errors live as long as the process, as those of links must.
const char* TextOf(int error) {
  switch (error) {
    case ECONNRESET:
      return "Connection reset by peer";
    case EPIPE:
      return "Broken pipe";
    case ETIMEDOUT:
      return "Connection timed out";
    case EHOSTUNREACH:
      return "No route to host";
    case ENETUNREACH:
      return "Network is unreachable";
    default:
      return "the connection broke";
  }
}

// The system enlarges send buffers to megabytes, whose bytes then stand in the queue of whichever
// link is the slowest: other connections wait behind them, and switches drop. Over short paths a
// quarter of a megabyte is enough (the system doubles the figure for its own needs): the lab's
// dense allreduces of 64 MiB took 4 to 13 % less time at 2.7 and 10 Gbit/s. Where a round trip is
// longer, such a buffer would limit a connection to less than 13 Gbit/s.
constexpr int kSendBufferBytes = 208 << 10;
constexpr uint32_t kShortRoundTripUs = 250;

// A connection with little to send makes these within 0.6 s and more, another one within 1.4 s.
constexpr int kRetransmitsInVain = 3;

// Messages are whole when they are sent, so nothing is gained by waiting for more.
void Configure(int socket) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  BoundBackOff(socket);
  tcp_info facts{};
  socklen_t bytes = sizeof facts;
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &facts, &bytes) == 0 &&
      bytes >= offsetof(tcp_info, tcpi_min_rtt) + sizeof facts.tcpi_min_rtt &&
      facts.tcpi_min_rtt <= kShortRoundTripUs) {
    setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes, sizeof kSendBufferBytes);
  }
}

iovec PartOf(const void* data, size_t bytes) { return {const_cast<void*>(data), bytes}; }

}  // namespace

TcpLink::TcpLink(Descriptor socket, plugin::Link* link, size_t most_short_bytes,
                 std::unique_ptr<FrameCipher> cipher)
    : socket_(std::move(socket)),
      link_(link),
      most_short_bytes_(most_short_bytes),
      cipher_(std::move(cipher)),
      sealed_(cipher_ == nullptr ? nullptr
                                 : std::make_unique_for_overwrite<std::byte[]>(
                                       kMostHeadBytes + std::max(kPieceBytes, most_short_bytes))),
      queue_bytes_(kMostHeadBytes + kPieceBytes +
                   kShortFramesQueued * (kMostHeadBytes + most_short_bytes)),
      queue_(std::make_unique_for_overwrite<std::byte[]>(queue_bytes_)),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(kBufferBytes)),
      payload_(
          std::make_unique_for_overwrite<std::byte[]>(std::max(kPieceBytes, most_short_bytes))) {
  Configure(socket_.get());
}

void TcpLink::Lose(const char* reason) {
  if (!link_->is_lost()) link_->loss = reason;
}

void TcpLink::Queue(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const size_t at = queued_ % queue_bytes_;
  const size_t first = std::min(bytes.size(), queue_bytes_ - at);
  std::memcpy(&queue_[at], bytes.data(), first);
  if (first < bytes.size()) std::memcpy(&queue_[0], bytes.data() + first, bytes.size() - first);
  queued_ += bytes.size();
}

// The whole frame, encrypted.
std::span<const std::byte> TcpLink::Sealed(const Sizes& sizes, std::span<const std::byte> header,
                                           std::span<const std::byte> payload) {
  std::byte* end = sealed_.get();
  std::memcpy(end, &sizes, sizeof sizes);
  end += sizeof sizes;
  cipher_->Seal(header, std::as_bytes(std::span(&sizes, 1)), end);
  end += header.size() + FrameCipher::kTagBytes;
  if (!payload.empty()) {
    cipher_->Seal(payload, {}, end);
    end += payload.size() + FrameCipher::kTagBytes;
  }
  return {sealed_.get(), end};
}

Sent TcpLink::Send(onebitFrameKind kind, std::span<const std::byte> header,
                   std::span<const std::byte> payload) {
  if (link_->is_lost()) return Sent::kFailed;
  if (send_error_ != nullptr) return Sent::kNoRoom;
  if (header.size() > ONEBIT_TRANSPORT_FRAME_HEADER_BYTES ||
      payload.size() > (kind == onebitFrameLong ? kPieceBytes : most_short_bytes_)) {
    Lose("a frame is too large");
    return Sent::kFailed;
  }
  const Sizes sizes{static_cast<uint32_t>(header.size()), static_cast<uint32_t>(payload.size())};
  const size_t tags_bytes = payload.empty() ? tag_bytes() : 2 * tag_bytes();
  const size_t bytes = sizeof sizes + header.size() + payload.size() + tags_bytes;
  size_t sent = 0;
  if (has_queued()) Flush();
  if (send_error_ != nullptr) return Sent::kNoRoom;
  // Long frames wait for an empty queue, so that short ones always find room behind one of them.
  const bool was_empty = !has_queued();
  if (!was_empty && (kind == onebitFrameLong || queued_ - flushed_ + bytes > queue_bytes_ ||
                     link_->in_flight() >= kMostQueuedFrames)) {
    return Sent::kNoRoom;
  }
  // From here on the frame is sent: encrypting it has used its number.
  std::span<const std::byte> parts[] = {std::as_bytes(std::span(&sizes, 1)), header, payload};
  if (cipher_ != nullptr) {
    parts[0] = Sealed(sizes, header, payload);
    parts[1] = parts[2] = {};
  }
  if (was_empty) {
    iovec vectors[3];
    for (size_t i = 0; i < 3; ++i) vectors[i] = PartOf(parts[i].data(), parts[i].size());
    msghdr message{};
    message.msg_iov = vectors;
    message.msg_iovlen = 3;
    const ssize_t count = sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (count < 0 && errno != EAGAIN && errno != EINTR) {
      send_error_ = TextOf(errno);
      return Sent::kNoRoom;
    }
    sent = count < 0 ? 0 : static_cast<size_t>(count);
    if (sent == bytes) return Sent::kYes;
  }
  for (std::span<const std::byte> part : parts) {
    const size_t skipped = std::min(sent, part.size());
    sent -= skipped;
    Queue(part.subspan(skipped));
  }
  frame_ends_[link_->taken % kMostQueuedFrames] = queued_;
  ++link_->taken;
  return Sent::kYes;
}

bool TcpLink::Flush() {
  bool has_moved = false;
  while (has_queued() && !link_->is_lost() && send_error_ == nullptr) {
    const size_t at = flushed_ % queue_bytes_;
    const size_t bytes = queued_ - flushed_;
    const size_t first = std::min(bytes, queue_bytes_ - at);
    iovec vectors[] = {PartOf(&queue_[at], first), PartOf(&queue_[0], bytes - first)};
    msghdr message{};
    message.msg_iov = vectors;
    message.msg_iovlen = bytes > first ? 2 : 1;
    const ssize_t count = sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count < 0) {
      send_error_ = TextOf(errno);
      break;
    }
    flushed_ += static_cast<size_t>(count);
    has_moved = true;
    while (link_->sent != link_->taken &&
           frame_ends_[link_->sent % kMostQueuedFrames] <= flushed_) {
      ++link_->sent;
    }
  }
  return has_moved;
}

// Reads into the rest of the payload that is arriving, and behind it into the buffer. False if
// nothing has arrived.
bool TcpLink::ReadMore() {
  if (begin_ != 0) {
    std::memmove(&buffer_[0], &buffer_[begin_], end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  const size_t lacking = has_head_ ? sizes_.payload_bytes - received_ : 0;
  iovec vectors[] = {PartOf(target_ + received_, lacking),
                     PartOf(&buffer_[end_], kBufferBytes - end_)};
  const ssize_t count = lacking != 0 ? readv(socket_.get(), vectors, 2)
                                     : recv(socket_.get(), &buffer_[end_], kBufferBytes - end_, 0);
  if (count > 0) {
    const size_t of_payload = std::min(lacking, static_cast<size_t>(count));
    received_ += of_payload;
    end_ += static_cast<size_t>(count) - of_payload;
    return true;
  }
  if (count == 0) {
    Lose(send_error_ != nullptr ? send_error_ : kClosedByPeer);
  } else if (errno == EAGAIN && send_error_ != nullptr) {
    Lose(send_error_);
  } else if (errno != EAGAIN && errno != EINTR) {
    Lose(TextOf(errno));
  }
  return false;
}

// True if the header of the next frame is complete.
bool TcpLink::TakeHead(int peer, const plugin::FrameSink& sink) {
  if (has_head_) return true;
  if (end_ - begin_ < sizeof sizes_) return false;
  std::memcpy(&sizes_, &buffer_[begin_], sizeof sizes_);
  if (sizes_.header_bytes > header_.size() ||
      sizes_.payload_bytes > std::max(kPieceBytes, most_short_bytes_)) {
    Lose(kBreaksProtocol);
    return false;
  }
  if (end_ - begin_ < sizeof sizes_ + sizes_.header_bytes + tag_bytes()) return false;
  begin_ += sizeof sizes_;
  std::memcpy(header_.data(), &buffer_[begin_], sizes_.header_bytes);
  begin_ += sizes_.header_bytes;
  if (cipher_ != nullptr && !cipher_->Open({header_.data(), sizes_.header_bytes}, &buffer_[begin_],
                                           std::as_bytes(std::span(&sizes_, 1)))) {
    Lose(kForged);
    return false;
  }
  begin_ += tag_bytes();
  has_head_ = true;
  received_ = 0;
  target_ = sink.Place(peer, header_.data(), sizes_.header_bytes, sizes_.payload_bytes);
  if (target_ == nullptr) target_ = payload_.get();
  return true;
}

// True if the payload is complete.
bool TcpLink::TakePayload() {
  const size_t bytes = std::min<size_t>(sizes_.payload_bytes - received_, end_ - begin_);
  if (bytes != 0) {
    std::memcpy(target_ + received_, &buffer_[begin_], bytes);
    received_ += bytes;
    begin_ += bytes;
  }
  if (received_ != sizes_.payload_bytes) return false;
  if (cipher_ == nullptr || sizes_.payload_bytes == 0) return true;
  if (end_ - begin_ < FrameCipher::kTagBytes) return false;
  if (!cipher_->Open({target_, sizes_.payload_bytes}, &buffer_[begin_], {})) {
    Lose(kForged);
    return false;
  }
  begin_ += FrameCipher::kTagBytes;
  return true;
}

bool TcpLink::has_left() const {
  int bytes = 0;
  return send_error_ != nullptr || link_->is_lost() ||
         ioctl(socket_.get(), SIOCOUTQNSD, &bytes) != 0 || bytes == 0;
}

std::string TcpLink::Trouble() const {
  tcp_info facts{};
  socklen_t bytes = sizeof facts;
  int unacknowledged = 0;
  if (getsockopt(socket_.get(), IPPROTO_TCP, TCP_INFO, &facts, &bytes) != 0 ||
      facts.tcpi_retransmits < kRetransmitsInVain || facts.tcpi_unacked == 0 ||
      ioctl(socket_.get(), SIOCOUTQ, &unacknowledged) != 0) {
    return {};
  }
  return Format(
      "{} bytes not acknowledged, of which the first were sent {} times, in packets of up "
      "to {} bytes",
      unacknowledged, facts.tcpi_retransmits + 1, facts.tcpi_pmtu);
}

void TcpLink::StopPlacing() {
  if (!has_head_ || target_ == payload_.get()) return;
  std::memcpy(payload_.get(), target_, received_);
  target_ = payload_.get();
}

bool TcpLink::Receive(int peer, const plugin::FrameSink& sink) {
  bool has_moved = false;
  int frames = 0;
  while (!link_->is_lost()) {
    if (TakeHead(peer, sink)) {
      if (TakePayload()) {
        has_head_ = false;
        ++frames;
        has_moved = true;
        sink.OnFrame(peer, header_.data(), sizes_.header_bytes, target_, sizes_.payload_bytes);
        continue;
      }
    }
    // Only here, where the buffer holds no whole frame any more: nothing tells of one that stays.
    if (link_->is_lost() || frames >= kFramesPerRead || !ReadMore()) break;
    has_moved = true;
  }
  return has_moved;
}

}  // namespace onebit::sockets
