// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Combines the findings of all ranks into the result of a run.
#pragma once

#include <cstdint>
#include <span>

#include "perf/common/comm_stats.h"
#include "perf/common/rank_exchange.h"
#include "perf/train_text/rank_worker.h"
#include "perf/train_text/trainer.h"

namespace onebit::train {

/** The summary of a rank that is done, sent between processes as raw bytes. */
struct RankSummary {
  perf::BytesHash parameters;
  uint64_t bytes_sent = 0;  // in the steps
  perf::SentTotal sent;     // in all
  PhaseSeconds seconds;
  uint64_t state_bytes = 0;  // held by the optimizer
  double lag = -1;           // of a sharded optimizer; otherwise less than 0
};

RankSummary SummaryOf(const RankWorker& worker);

/** Throws perf::ToolError if the parameters of a rank differ from those of the first one. */
void CheckReplicas(const SharedRun& shared, std::span<const RankSummary> ranks);

/** `worker` may be any rank's, as all hold the same results. Sums are taken in rank order. */
TrainResult JoinResults(const SharedRun& shared, const RankWorker& worker,
                        std::span<const RankSummary> ranks);

}  // namespace onebit::train
