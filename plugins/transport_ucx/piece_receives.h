// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// PieceReceives: receives pieces of payloads that UCX's rendezvous protocol moves.
#pragma once

#include <onebit/transport.h>
#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "plugins/transport_ucx/registration.h"

namespace onebit::ucx {

// Called for each frame. The memory is valid during the call.
using Arrival = void (*)(void* argument, const void* header, size_t header_bytes,
                         const void* payload, size_t payload_bytes);

// UCX cannot give a buffer back in bounded time once a rendezvous has begun. Pieces therefore come
// into memory of this class, never a user's, and a receive can be cancelled at any time. They are
// delivered in the order in which they were announced. One thread at a time.
class PieceReceives {
 public:
  // Has memory for `count` pieces, and for the announcements of as many more. Throws
  // std::bad_alloc.
  PieceReceives(ucp_context_h context, ucp_worker_h worker, size_t count, size_t piece_bytes,
                Arrival arrival, void* argument);
  // Stop comes first, and then the end of the worker.
  ~PieceReceives() = default;
  PieceReceives(const PieceReceives&) = delete;
  PieceReceives& operator=(const PieceReceives&) = delete;

  // False for an announcement that no rank of ours can have made.
  bool CanTake(size_t header_bytes, size_t bytes) const {
    return announced_ - delivered_ < pieces_.size() && bytes <= piece_bytes_ &&
           header_bytes <= sizeof Piece::header;
  }
  // Receives the payload that UCX has announced to a handler of active messages, whose result this
  // returns. Only after CanTake.
  ucs_status_t Take(const void* header, size_t header_bytes, void* announced, size_t bytes);
  // Nothing is delivered or begun any more.
  void Stop();

 private:
  enum class State : uint8_t { kWaiting, kComing, kHere, kLost };
  struct Piece {
    State state;
    size_t header_bytes;
    size_t bytes;
    void* announced;
    PieceReceives* receives;
    std::byte header[ONEBIT_TRANSPORT_FRAME_HEADER_BYTES];
  };

  static void OnReceived(void* request, ucs_status_t status, size_t bytes, void* user_data);
  Piece& piece(uint64_t number) { return pieces_[number % pieces_.size()]; }
  std::byte* memory(uint64_t number) { return memory_.get() + number % count_ * piece_bytes_; }
  void Start(uint64_t number);
  void Deliver();

  const ucp_worker_h worker_;
  const size_t count_;
  const size_t piece_bytes_;
  const Arrival arrival_;
  void* const argument_;
  const std::unique_ptr<std::byte[]> memory_;
  const Registration registration_;
  std::vector<Piece> pieces_;
  // Numbers of pieces: delivered < begun <= announced.
  uint64_t delivered_ = 0;
  uint64_t begun_ = 0;
  uint64_t announced_ = 0;
  bool is_delivering_ = false;
  bool is_stopped_ = false;
};

}  // namespace onebit::ucx
