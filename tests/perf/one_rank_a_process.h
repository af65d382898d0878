// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs the driver of a sweep as several processes would: each "process" is a thread with one rank
// of a group, and no access to the memory of the others.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "perf/common/rank_state.h"
#include "perf/common/tool_error.h"

namespace onebit::perf {

// Runs work(ranks) in every process. Returns what each threw, by rank, or "".
inline std::vector<std::string> RunOneRankAProcess(int count, size_t buffer_bytes,
                                                   const std::function<void(Ranks&)>& work) {
  std::vector<onebitComm_t> comms(static_cast<size_t>(count));
  Check(onebitCommInitAll(comms.data(), count, nullptr), "onebitCommInitAll");
  std::vector<std::string> errors(comms.size());
  std::vector<std::jthread> processes;
  for (size_t rank = 0; rank < comms.size(); ++rank) {
    processes.emplace_back([&, rank] {
      try {
        std::vector<CommHandle> own;
        own.emplace_back(comms[rank]);
        Ranks ranks(std::move(own), static_cast<int>(rank), buffer_bytes);
        work(ranks);
        ranks.Finish();
      } catch (const std::exception& error) {
        errors[rank] = error.what();
      }
    });
  }
  processes.clear();
  return errors;
}

}  // namespace onebit::perf
