// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Starts the ranks, stops all when one fails, and joins their results.
#include "perf/train_text/trainer.h"

#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/core.h>

#include "onebit/onebit.hpp"
#include "perf/train_text/rank_worker.h"
#include "perf/train_text/run_result.h"

namespace onebit::train {
namespace {

/** Keeps the error to report. If one rank fails, the others fail as a consequence. */
class FirstError {
 public:
  /** `is_consequence`: this rank failed because another did. A cause replaces a consequence. */
  void Set(std::string text, bool is_consequence) {
    const std::lock_guard lock(mutex_);
    if (!text_.empty() && (is_consequence || !is_consequence_)) return;
    text_ = std::move(text);
    is_consequence_ = is_consequence;
  }

  /** Requires that no rank is running any more. */
  const std::string& text() const { return text_; }

 private:
  std::mutex mutex_;
  std::string text_;
  bool is_consequence_ = false;
};

class Run {
 public:
  Run(const TrainOptions& options, const Corpus& corpus, const TrainHooks& hooks)
      : shared_(options, corpus, hooks),
        comms_(static_cast<size_t>(options.ranks)),
        workers_(comms_.size()) {
    const onebitResult_t result = onebit::MakeComms(comms_);
    if (result != onebitSuccess) {
      throw TrainError(OnebitError(result, "onebitCommInitAll").what());
    }
  }

  TrainResult Execute() {
    {
      std::vector<std::jthread> threads;
      try {
        for (size_t rank = 0; rank < comms_.size(); ++rank) {
          threads.emplace_back([this, rank] { RunRank(rank); });
        }
      } catch (const std::system_error& error) {
        error_.Set(fmt::format("cannot start a thread per rank: {}", error.what()), false);
        AbortAll();
      }
    }
    if (!error_.text().empty()) throw TrainError(error_.text());
    const std::vector<RankSummary> summaries = Summaries();
    CheckReplicas(shared_, summaries);
    return JoinResults(shared_, *workers_[0], summaries);
  }

 private:
  void RunRank(size_t rank) {
    try {
      workers_[rank] =
          std::make_unique<RankWorker>(shared_, comms_[rank].get(), static_cast<int>(rank));
      workers_[rank]->Run();
      return;
    } catch (const OnebitError& error) {
      Fail(rank, error.what(), WasStoppedByOthers(rank));
    } catch (const std::exception& error) {
      Fail(rank, error.what(), false);
    }
    AbortAll();
  }

  bool WasStoppedByOthers(size_t rank) const {
    onebitResult_t result = onebitSuccess;
    onebitCommGetAsyncError(comms_[rank].get(), &result);
    return result == onebitRemoteError || result == onebitAborted;
  }

  void Fail(size_t rank, const char* cause, bool is_consequence) {
    const std::string when =
        workers_[rank] ? fmt::format("step {}", workers_[rank]->current_step() + 1) : "set-up";
    error_.Set(fmt::format("rank {}, {}: {}", rank, when, cause), is_consequence);
  }

  /** Wakes the ranks that wait in a collective. */
  void AbortAll() {
    for (const onebit::UniqueComm& comm : comms_) onebitCommAbort(comm.get());
  }

  std::vector<RankSummary> Summaries() const {
    std::vector<RankSummary> summaries;
    for (const auto& worker : workers_) summaries.push_back(SummaryOf(*worker));
    return summaries;
  }

  SharedRun shared_;
  std::vector<onebit::UniqueComm> comms_;  // outlive the workers, whose optimizers use them
  std::vector<std::unique_ptr<RankWorker>> workers_;
  FirstError error_;
};

}  // namespace

TrainResult Train(const TrainOptions& options, const Corpus& corpus, const TrainHooks& hooks) {
  return Run(options, corpus, hooks).Execute();
}

}  // namespace onebit::train
