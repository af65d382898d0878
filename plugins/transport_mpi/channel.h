// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Channel: carries frames between the ranks of a private MPI communicator.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "plugins/common/frame_transport.h"
#include "plugins/common/slot_pool.h"
#include "plugins/transport_mpi/mpi_settings.h"
#include "plugins/transport_mpi/native_allreduce.h"

namespace onebit::mpi {

// MPI uses only memory of this class, because a send cannot be cancelled, and a receive not once it
// has begun. A frame is copied into a slot before it is sent and out of a buffer after it was
// received. For each rank there are always kReceives buffers of the largest size posted, so no
// message is larger than a receive it can match (Open MPI 4.1 would write past its end).
//
// The library bounds the short frames that a peer sends unasked. Long ones use MPI_Issend, which
// completes when the receiver has a buffer for them: so frames that a rank takes too slowly do not
// accumulate in MPI's memory there.
//
// An MPI communicator can be freed only when no frame can arrive any more, or a late one might be
// taken for one of the next communicator. So a channel ends in two steps: StartEnd tells the peers
// that nothing follows, and TryEnd, called now and then, frees it when all peers have said so.
//
// One thread at a time.
class Channel {
 public:
  struct Shape {
    int ranks;
    size_t short_bytes;  // header and payload
    size_t piece_bytes;  // payload of one piece
  };

  // Owns `comm`. Throws std::bad_alloc; MPI then keeps `comm`, because peers may send on it and
  // there is no memory to receive with.
  Channel(MPI_Comm comm, const Shape& shape);
  ~Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // Equal on all ranks, because their options are.
  static Shape ShapeOf(int ranks, const Options& options);

  // Posts the receives. Returns MPI's code.
  int Start();

  plugin::Link* link(int rank) { return &links_[static_cast<size_t>(rank)]; }
  bool TakeLosses() { return std::exchange(has_losses_, false); }
  NativeAllreduce& native() { return native_; }
  MPI_Comm comm() const { return comm_; }

  plugin::Sent Send(int rank, onebitFrameKind kind, std::span<const std::byte> header,
                    std::span<const std::byte> payload);
  // Delivers frames that have arrived to `sink`, or drops them if it is null. False if nothing
  // moved.
  bool Progress(const plugin::FrameSink* sink);

  void StartEnd();
  // True if the channel has ended and its communicator is freed.
  bool TryEnd();

 private:
  using Slot = plugin::SlotPool::Slot;
  // A frame MPI has not sent yet; sends_ has its request at the same index.
  struct Sending {
    Slot* slot;
    int rank;
  };

  std::byte* Buffer(size_t rank, size_t index) {
    return &receive_memory_[(rank * kReceives + index) * frame_bytes_];
  }
  int Post(size_t rank, size_t index, MPI_Request* request);
  bool ProgressSends();
  bool ProgressReceives(const plugin::FrameSink* sink);
  void Receive(size_t rank, const MPI_Status& status, const plugin::FrameSink* sink);
  void CancelReceives(size_t rank);
  void Lose(size_t rank, int code);
  void LoseAll(int code);

  static constexpr size_t kReceives = 4;

  MPI_Comm comm_;
  const size_t ranks_;
  const size_t frame_bytes_;
  std::vector<plugin::Link> links_;
  std::vector<std::string> losses_;  // error texts of lost links
  bool has_losses_ = false;

  plugin::SlotPool short_slots_;
  plugin::SlotPool piece_slots_;
  std::vector<MPI_Request> sends_;  // capacity reserved, like that of the next member
  std::vector<Sending> sendings_;

  // MPI matches receives from a rank in the order they were posted, so only the oldest is tested:
  // heads_[rank], into buffer head_indices_[rank]. The others are in receives_, by buffer.
  std::unique_ptr<std::byte[]> receive_memory_;
  std::vector<MPI_Request> heads_;
  std::vector<size_t> head_indices_;
  std::vector<MPI_Request> receives_;

  // Outputs of MPI_Testsome.
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;

  NativeAllreduce native_;
  bool is_ending_ = false;
  std::vector<bool> has_last_;              // by rank: no message follows
  std::vector<MPI_Request> last_messages_;  // sent by StartEnd, by rank
};

}  // namespace onebit::mpi
