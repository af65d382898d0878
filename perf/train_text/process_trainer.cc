// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs one worker and gathers the results of the others.
#include "perf/train_text/process_trainer.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "perf/common/rank_exchange.h"
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
    throw perf::ToolError(fmt::format("rank {} has another text than rank 0: FNV-1a {:016x}, not "
                                      "{:016x}; give all the same with --text",
                                      rank, hashes[rank], hashes[0]),
                          perf::RankOf(comm) != 0);
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

/** Runs all steps, in two parts if a rank is lost. */
void RunWorker(const TrainOptions& options, perf::CommHandle& comm, RankWorker& worker) {
  try {
    worker.Run();
    return;
  } catch (const std::exception&) {
    if (!CanResume(options, worker, comm.get())) throw;
  }
  comm = worker.Resume();  // destroys the former one
  worker.Run();
}

}  // namespace

TrainResult TrainAsProcess(const TrainOptions& options, const Corpus& corpus,
                           const TrainHooks& hooks, perf::CommHandle& comm) {
  const int rank = perf::RankOf(comm.get());
  SharedRun shared(options, corpus, hooks);
  std::optional<RankWorker> worker;
  try {
    RequireSameText(corpus, comm.get());
    worker.emplace(shared, comm.get(), rank);
    RunWorker(options, comm, *worker);
    const std::vector<RankSummary> ranks = perf::GatherRecords(comm.get(), SummaryOf(*worker));
    CheckReplicas(shared, ranks);
    TrainResult result = JoinResults(shared, *worker, ranks);
    worker.reset();
    perf::Check(onebitCommFinalize(comm.get()), "onebitCommFinalize");
    return result;
  } catch (const perf::ToolError&) {
    throw;
  } catch (const std::exception& error) {
    const std::string when = worker ? fmt::format("step {}", worker->current_step() + 1) : "set-up";
    throw perf::ToolError(fmt::format("rank {}, {}: {}", rank, when, error.what()),
                          AsyncErrorOf(comm.get()) == onebitRemoteError);
  }
}

}  // namespace onebit::train
