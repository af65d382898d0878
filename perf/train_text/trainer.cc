// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs the workers of this process, and joins the results of all.
#include "perf/train_text/trainer.h"

#include <cstdint>
#include <exception>
#include <memory>
#include <utility>

#include <fmt/core.h>

#include "perf/common/rank_exchange.h"
#include "perf/common/rank_pool.h"
#include "perf/common/tool_error.h"
#include "perf/train_text/rank_worker.h"
#include "perf/train_text/run_result.h"

namespace onebit::train {
namespace {

/** Fails if another host has a different version of the text. */
void RequireSameText(const Corpus& corpus, onebitComm_t comm) {
  const std::vector<uint64_t> hashes = perf::GatherRecords(comm, corpus.hash);
  for (size_t rank = 1; rank < hashes.size(); ++rank) {
    if (hashes[rank] == hashes[0]) continue;
    // Rank 0 reports it. It may still be gathering, so the others wait until it aborts.
    if (perf::RankOf(comm) != 0) perf::Check(onebitBarrier(comm, nullptr), "onebitBarrier");
    throw perf::ToolError(
        fmt::format("rank {} has a different text from rank 0: FNV-1a {:016x}, not {:016x}; give "
                    "all ranks the same one with --text",
                    rank, hashes[rank], hashes[0]));
  }
}

onebitResult_t AsyncErrorOf(onebitComm_t comm) {
  onebitResult_t result = onebitSuccess;
  onebitCommGetAsyncError(comm, &result);
  return result;
}

/** True if the run may continue without a rank: the one that is gone is the one that was to go. */
bool CanResume(const TrainOptions& options, const RankWorker& worker, onebitComm_t comm) {
  const onebitResult_t error = AsyncErrorOf(comm);
  const bool was_lost = error == onebitPeerLost || error == onebitRemoteError;
  return options.survive && !worker.survival() && was_lost &&
         worker.current_step() + 1 >= options.survive->step - 1;
}

std::vector<perf::CommHandle> MakeComms(int ranks) {
  std::vector<onebitComm_t> comms(static_cast<size_t>(ranks));
  perf::Check(onebitCommInitAll(comms.data(), ranks, nullptr), "onebitCommInitAll");
  std::vector<perf::CommHandle> handles;
  for (onebitComm_t comm : comms) handles.emplace_back(comm);
  return handles;
}

class Run {
 public:
  Run(const TrainOptions& options, const Corpus& corpus, const TrainHooks& hooks,
      std::vector<perf::CommHandle>& comms)
      : shared_(options, corpus, hooks),
        comms_(comms),
        first_(perf::RankOf(comms.front().get())),
        workers_(comms.size()) {}

  TrainResult Execute() {
    perf::RankPool pool(first_, static_cast<int>(comms_.size()), [this] {
      for (const perf::CommHandle& comm : comms_) onebitCommAbort(comm.get());
    });
    pool.Run([this](int rank) { RunRank(rank); });
    return std::move(result_);
  }

 private:
  void RunRank(int rank) {
    const auto index = static_cast<size_t>(rank - first_);
    perf::CommHandle& comm = comms_[index];
    std::unique_ptr<RankWorker>& worker = workers_[index];
    try {
      if (shared_.are_ranks_processes) RequireSameText(shared_.corpus, comm.get());
      worker = std::make_unique<RankWorker>(shared_, comm.get(), rank);
      RunWorker(comm, *worker);
      const std::vector<RankSummary> ranks = perf::GatherRecords(comm.get(), SummaryOf(*worker));
      if (rank == first_) {
        CheckReplicas(shared_, ranks);
        result_ = JoinResults(shared_, *worker, ranks);
      }
    } catch (const std::exception& error) {
      const auto* const own = dynamic_cast<const perf::ToolError*>(&error);
      const onebitResult_t state = AsyncErrorOf(comm.get());
      throw perf::ToolError(
          fmt::format("{}: {}",
                      worker ? fmt::format("step {}", worker->current_step() + 1) : "set-up",
                      error.what()),
          (own != nullptr && own->is_consequence()) || state == onebitRemoteError ||
              state == onebitAborted);
    }
    worker.reset();
    perf::Check(onebitCommFinalize(comm.get()), "onebitCommFinalize");
  }

  /** Runs all steps, in two parts if a rank is lost. */
  void RunWorker(perf::CommHandle& comm, RankWorker& worker) {
    try {
      worker.Run();
      return;
    } catch (const std::exception&) {
      if (!CanResume(shared_.options, worker, comm.get())) throw;
    }
    comm = worker.Resume();  // destroys the former one
    worker.Run();
  }

  SharedRun shared_;
  std::vector<perf::CommHandle>& comms_;  // of the ranks of this process
  const int first_;                       // of them
  // Workers that fail are destroyed when all have ended: their optimizers may wait for others.
  std::vector<std::unique_ptr<RankWorker>> workers_;
  TrainResult result_;
};

}  // namespace

TrainResult Train(const TrainOptions& options, const Corpus& corpus, const TrainHooks& hooks) {
  std::vector<perf::CommHandle> comms = MakeComms(options.ranks);
  return Run(options, corpus, hooks, comms).Execute();
}

TrainResult TrainAsProcess(const TrainOptions& options, const Corpus& corpus,
                           const TrainHooks& hooks, perf::CommHandle& comm) {
  std::vector<perf::CommHandle> comms;
  comms.push_back(std::move(comm));
  TrainResult result = Run(options, corpus, hooks, comms).Execute();
  comm = std::move(comms.front());
  return result;
}

}  // namespace onebit::train
