// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/control.h"

namespace onebit {

Status Cancelled(int rank, std::string_view what) {
  return Error(Code::kAborted, "rank {}: {}: onebitCommAbort was called on this rank", rank, what);
}

std::string SilenceText(std::chrono::steady_clock::duration silence, bool is_lossy) {
  return Format("has been silent for {:.1f} s ({})", SecondsOf(silence),
                is_lossy ? "twice ONEBIT_LOSS_TIMEOUT_MS, because packets to it get lost"
                         : "ONEBIT_LOSS_TIMEOUT_MS");
}

Status HasLeft(int rank) {
  return Error(
      Code::kRemoteError,
      "rank {} has left (its program ended, or destroyed the communicator) while others wait",
      rank);
}

Status DescribeFailure(const Failure& failure, int rank) {
  const Status& cause = failure.cause;
  if (failure.is_of_group) return Error(cause.code(), "rank {}: {}", rank, cause.text());
  if (failure.is_loss && failure.rank == rank) {
    return Error(cause.code(), "rank {}: the other ranks gave up on this one: {}", rank,
                 cause.text());
  }
  if (failure.is_loss) {
    return Error(cause.code(), "rank {}: rank {} is gone: {}", rank, failure.rank, cause.text());
  }
  if (failure.rank == rank) return cause;
  if (cause.code() == Code::kAborted) {
    return Error(Code::kRemoteError,
                 "rank {}: rank {} was aborted: its program failed or ended, was interrupted "
                 "(Ctrl-C), or called onebitCommAbort",
                 rank, failure.rank);
  }
  // A peer that made a different call is part of the same mismatch; any other failure is remote.
  // One that misses another rank has not failed itself.
  if (cause.code() == Code::kMismatch || cause.code() == Code::kRemoteError) {
    return Error(cause.code(), "rank {}: as rank {} sees it: {}", rank, failure.rank, cause.text());
  }
  return Error(cause.code() == Code::kPeerLost ? Code::kPeerLost : Code::kRemoteError,
               "rank {}: rank {} failed first: {}", rank, failure.rank, cause.text());
}

}  // namespace onebit
