// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Migrates an optimizer to another communicator: ranks that missed the last step receive its
// results from one that did not, then the compressors are rebound.
#include <algorithm>
#include <array>
#include <tuple>
#include <vector>

#include "base/aligned_buffer.h"
#include "optim/api_status.h"
#include "optim/gather_numbers.h"
#include "optim/gradient_elements.h"
#include "optim/optimizer_base.h"

namespace onebit::optim {
namespace {

// The state of one rank, as exchanged with the others.
struct RankProgress {
  uint64_t commits = 0;
  uint64_t step = 0;
  uint64_t residual_commits = 0;
  uint64_t skipped_steps = 0;
  uint64_t freeze_rule = 0;
  bool is_torn = false;

  // Commits, which ranks agreed on, are compared first: a rank may have made local steps since
  // then.
  bool IsBehind(const RankProgress& other) const {
    return std::tie(commits, step) < std::tie(other.commits, other.step);
  }
};

Result<std::vector<RankProgress>> Gather(onebitComm_t comm, int rank, const RankProgress& mine) {
  const std::array<uint64_t, 6> numbers = {mine.commits,          mine.step,
                                           mine.residual_commits, mine.skipped_steps,
                                           mine.freeze_rule,      mine.is_torn};
  ONEBIT_ASSIGN_OR_RETURN(const RankNumbers all, GatherNumbers(comm, rank, numbers));
  std::vector<RankProgress> progress;
  for (size_t r = 0; r < all.ranks(); ++r) {
    progress.push_back({.commits = all.At(r, 0),
                        .step = all.At(r, 1),
                        .residual_commits = all.At(r, 2),
                        .skipped_steps = all.At(r, 3),
                        .freeze_rule = all.At(r, 4),
                        .is_torn = all.At(r, 5) != 0});
  }
  return progress;
}

Status BroadcastBytes(StateList::Bytes bytes, int source, onebitComm_t comm,
                      onebitStream_t stream) {
  return FromApi(
      onebitBroadcast(bytes.data(), bytes.data(), bytes.size(), onebitUint8, source, comm, stream));
}

}  // namespace

Result<int> Optimizer::Rebind(onebitComm_t comm) {
  int rank = 0;
  ONEBIT_TRY(FromApi(onebitCommUserRank(comm, &rank)));
  const RankProgress mine = {.commits = commits_,
                             .step = step_,
                             .residual_commits = residual_commits_,
                             .skipped_steps = skipped_steps_,
                             .freeze_rule = static_cast<uint64_t>(freeze_rule()),
                             .is_torn = is_torn_};
  ONEBIT_ASSIGN_OR_RETURN(const std::vector<RankProgress> progress, Gather(comm, rank, mine));
  // The source is the first of the newest ranks that have their complete state.
  int source = -1;
  uint64_t most_skipped = 0;
  for (size_t r = 0; r < progress.size(); ++r) {
    most_skipped = std::max(most_skipped, progress[r].skipped_steps);
    if (progress[r].is_torn) continue;
    if (source < 0 || progress[static_cast<size_t>(source)].IsBehind(progress[r])) {
      source = static_cast<int>(r);
    }
  }
  if (source < 0) {
    return Error(Code::kRemoteError,
                 "rank {}: the rank with the newest parameters was lost while the others took them "
                 "from it: load a checkpoint",
                 rank);
  }
  const RankProgress& newest = progress[static_cast<size_t>(source)];
  bool is_anyone_behind = false;
  for (size_t r = 0; r < progress.size(); ++r) {
    const RankProgress& other = progress[r];
    is_anyone_behind |= other.is_torn || other.IsBehind(newest);
    if (other.freeze_rule != newest.freeze_rule) {
      return Error(Code::kMismatch,
                   "rank {}: onebitOptimizerRewarm was called on one of ranks {} and {} only: call "
                   "it on all, and then this again",
                   rank, source, r);
    }
    if (other.commits <= newest.commits && newest.commits - other.commits <= 1) continue;
    return Error(Code::kMismatch,
                 "rank {}: the optimizer of rank {} is at step {}, that of rank {} at {}: they are "
                 "not of the same training",
                 rank, source, newest.step, r, other.step);
  }
  if (is_anyone_behind) {
    const bool is_behind = is_torn_ || mine.IsBehind(newest);
    ONEBIT_TRY(TakeState(comm, source, rank == source, is_behind));
    awaits_residual_ |= compressor_ != nullptr && residual_commits_ != newest.residual_commits;
    commits_ = newest.commits;
    residual_commits_ = newest.residual_commits;
    is_torn_ = false;
  }
  skipped_steps_ = most_skipped;
  if (compressor_ != nullptr) {
    // The rebind compares masks, which some ranks may not have computed yet.
    ONEBIT_TRY(PrepareCompressor());
    ONEBIT_TRY(RebindCompressor(comm));
  }
  observer_ = CommObserver(comm);
  ReserveTensorId(comm, tensor_id_);
  comm_ = comm;
  rank_ = rank;
  ranks_ = static_cast<int>(progress.size());
  agreed_stages_ = 0;
  // Another rank may be rank 0, which warns, from here on. Without memory for a sample it does not.
  updates_.Forget();
  if (rank_ == 0 && compressor_ != nullptr) {
    static_cast<void>(updates_.Allocate(table_, *arithmetic_));
  }
  return source;
}

Status Optimizer::TakeState(onebitComm_t comm, int source, bool is_source, bool is_behind) {
  StateList state;
  ListState(&state);
  const bool takes_part = is_source || is_behind;
  size_t most_bytes = 0;
  for (const StateList::Part& local : state.local()) {
    most_bytes = std::max(most_bytes, local.bytes.size());
  }
  // Buffers for values, which are replaced all at once, and for data that ranks with the newest
  // state receive and ignore.
  ONEBIT_ASSIGN_OR_RETURN(
      const AlignedBuffer values,
      AlignedBuffer::Create(RoundUp(state.value_bytes(), sizeof(float)), "state"));
  ONEBIT_ASSIGN_OR_RETURN(const Memory ignored,
                          arithmetic_->Allocate(takes_part ? 0 : most_bytes, "state"));
  is_torn_ = is_behind;
  for (const StateList::Part& part : state.replicated()) {
    ONEBIT_TRY(BroadcastPart(part, source, comm));
  }
  for (const StateList::Part& part : state.local()) {
    const StateList::Bytes target =
        takes_part ? part.bytes : StateList::Bytes(ignored.data(), part.bytes.size());
    ONEBIT_TRY(BroadcastPart({.bytes = target}, source, comm));
  }
  state.ReadValues(values.data());
  ONEBIT_TRY(BroadcastBytes({values.data(), values.size()}, source, comm, nullptr));
  if (is_behind) {
    state.WriteValues(values.data());
    ONEBIT_TRY(WriteParameterCopy());
    ForgetDerivedState();
  }
  return OkStatus();
}

// Waits for each broadcast: the next may use host memory, for which no call may be pending.
Status Optimizer::BroadcastPart(const StateList::Part& part, int source, onebitComm_t comm) {
  ONEBIT_TRY(
      BroadcastBytes(part.bytes, source, comm, part.is_on_host ? nullptr : arithmetic_->stream()));
  return arithmetic_->Await(comm);
}

// A rank that receives a compressed step also needs the residuals it left, which are specific to
// each rank: the rebind rolls forward to them if a rank that committed the step is present.
Status Optimizer::RebindCompressor(onebitComm_t comm) {
  onebitCompressorStats_t stats{.size = sizeof(stats)};
  ONEBIT_TRY(FromApi(onebitCompressorGetStats(compressor_, &stats)));
  const uint64_t epoch_before = epoch_of_open_call_.value_or(stats.epoch);
  totals_.reset();
  int ignored = -1;  // parameters were received before
  ONEBIT_TRY(FromApi(onebitCompressorRebind(compressor_, comm, &ignored)));
  ONEBIT_TRY(FromApi(onebitCompressorGetStats(compressor_, &stats)));
  if (awaits_residual_ && stats.epoch == epoch_before) {
    is_torn_ = true;
    return Error(Code::kRemoteError,
                 "rank {}: the only rank that had made the last step was lost before all had its "
                 "residuals: load a checkpoint",
                 rank_);
  }
  awaits_residual_ = false;
  epoch_of_open_call_.reset();
  return OkStatus();
}

}  // namespace onebit::optim
