// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Ends a channel.
#include "plugins/transport_mpi/channel.h"
#include "plugins/transport_mpi/tags.h"

namespace onebit::mpi {

void Channel::StartEnd() {
  if (is_ending_) return;
  is_ending_ = true;
  native_.Cancel();
  for (size_t rank = 0; rank < ranks_; ++rank) {
    if (links_[rank].is_lost()) continue;
    const int code = MPI_Isend(nullptr, 0, MPI_BYTE, static_cast<int>(rank), kLastTag, comm_,
                               &last_messages_[rank]);
    if (code != MPI_SUCCESS) Lose(rank, code);
  }
}

bool Channel::TryEnd() {
  if (!is_ending_) return false;
  Progress(nullptr);
  if (!sends_.empty() || native_.is_in_mpi()) return false;
  for (size_t rank = 0; rank < ranks_; ++rank) {
    if (!has_last_[rank]) return false;
  }
  int are_sent = 0;
  int are_cancelled = 0;
  int code =
      MPI_Testall(static_cast<int>(ranks_), last_messages_.data(), &are_sent, MPI_STATUSES_IGNORE);
  if (code == MPI_SUCCESS) {
    code = MPI_Testall(static_cast<int>(receives_.size()), receives_.data(), &are_cancelled,
                       MPI_STATUSES_IGNORE);
  }
  if (code != MPI_SUCCESS) LoseAll(code);
  if (code != MPI_SUCCESS || are_sent == 0 || are_cancelled == 0) return false;
  // The call is local in Open MPI and MPICH, although the standard does not promise that.
  MPI_Comm_free(&comm_);
  return true;
}

// No message can match these receives any more, so MPI returns all of them.
void Channel::CancelReceives(size_t rank) {
  for (size_t index = 0; index < kReceives; ++index) {
    MPI_Request& request = receives_[rank * kReceives + index];
    if (request == MPI_REQUEST_NULL) continue;
    if (const int code = MPI_Cancel(&request); code != MPI_SUCCESS) Lose(rank, code);
  }
}

}  // namespace onebit::mpi
