// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Continues a worker with another communicator.
#include <algorithm>
#include <chrono>

#include "perf/common/rank_exchange.h"
#include "perf/common/seconds.h"
#include "perf/train_text/rank_worker.h"

namespace onebit::train {
namespace {

void AddStats(const onebitCommStats_t& more, onebitCommStats_t* sum) {
  sum->codec_ns += more.codec_ns;
  sum->call_ns += more.call_ns;
  sum->bytes_sent += more.bytes_sent;
  sum->messages_sent += more.messages_sent;
}

}  // namespace

perf::CommHandle RankWorker::Resume() {
  Survival survival{.loss = *shared_.options.survive,
                    .detection_seconds = perf::SecondsSince(call_start_)};
  Clock::time_point start = Clock::now();
  onebitComm_t next = nullptr;
  perf::Check(onebitCommShrink(comm_, nullptr, 0, &next, nullptr, ONEBIT_SHRINK_ABORT),
              "onebitCommShrink");
  perf::CommHandle owner(next);
  survival.shrink_seconds = perf::SecondsSince(start);

  start = Clock::now();
  const int source = optimizers_.Rebind(next);
  survival.rebind_seconds = perf::SecondsSince(start);
  survival.lost_elements = optimizers_.Stats().lost_elements;

  AddStats(perf::StatsOf(comm_), &former_);
  comm_ = next;
  comm_rank_ = static_cast<size_t>(perf::RankOf(next));
  shared_.members = perf::GatherRecords(next, rank_);
  survival.ranks_after = perf::CountOf(next);
  survival_ = survival;
  ResumeFrom(source);
  survival_->resumed_at = done_.kept + 1;
  exchange_seconds_ += static_cast<double>(perf::StatsOf(comm_).call_ns) * 1e-9;
  return owner;
}

// All ranks now have the parameters of `source`, and so the steps it has kept. Steps that only some
// ranks have recorded are recorded again by all.
void RankWorker::ResumeFrom(int source) {
  const std::vector<StepsDone> all = perf::GatherRecords(comm_, done_);
  int recorded = done_.recorded;
  int evaluated = done_.evaluated;
  for (const StepsDone& rank : all) {
    recorded = std::min(recorded, rank.recorded);
    evaluated = std::min(evaluated, rank.evaluated);
  }
  StepsDone newest = all[static_cast<size_t>(source)];
  const int kept = newest.kept;
  newest.recorded = recorded;
  newest.evaluated = evaluated;
  done_ = newest;
  steps_.resize(static_cast<size_t>(recorded));
  while (!evaluations_.empty() && evaluations_.back().step > evaluated) evaluations_.pop_back();

  std::vector<int>& steps_of_rank = shared_.steps_of_rank;
  for (size_t rank = 0; rank < steps_of_rank.size(); ++rank) {
    const bool is_left = std::find(shared_.members.begin(), shared_.members.end(),
                                   static_cast<int>(rank)) != shared_.members.end();
    if (!is_left) steps_of_rank[rank] = recorded;
  }
  const Clock::time_point last_end = step_end_;
  for (int step = recorded; step < kept; ++step) Record(step);
  step_end_ = last_end;
  is_first_after_loss_ = true;
}

}  // namespace onebit::train
