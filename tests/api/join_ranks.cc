// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/api/join_ranks.h"

#include <stdexcept>
#include <thread>

namespace onebit::testing {

onebitConfig_t LocalConfig() {
  onebitConfig_t config = ONEBIT_CONFIG_INIT;
  config.transport = "local";
  config.connectTimeoutMs = 10'000;
  config.collectiveTimeoutMs = 20'000;
  return config;
}

onebitUniqueId NewUniqueId() {
  onebitUniqueId id;
  const onebitResult_t result = onebitGetUniqueId(&id);
  if (result != onebitSuccess) throw std::runtime_error(Explain(result));
  return id;
}

std::vector<Joined> JoinRanks(const onebitUniqueId& id, const std::vector<JoinCall>& calls) {
  std::vector<Joined> joined(calls.size());
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < calls.size(); ++i) {
      threads.emplace_back([&id, &call = calls[i], &one = joined[i]] {
        onebitComm_t comm = nullptr;
        one.outcome = CallHere([&] {
          return onebitCommInitRankConfig(&comm, call.nranks, id, call.rank, &call.config);
        });
        one.comm.reset(comm);
      });
    }
  }
  return joined;
}

std::vector<UniqueComm> JoinGroup(int n, const onebitConfig_t& config) {
  std::vector<JoinCall> calls;
  for (int rank = 0; rank < n; ++rank)
    calls.push_back({.rank = rank, .nranks = n, .config = config});
  std::vector<UniqueComm> comms;
  for (Joined& joined : JoinRanks(NewUniqueId(), calls)) {
    if (joined.outcome.result != onebitSuccess) throw std::runtime_error(joined.outcome.text);
    comms.push_back(std::move(joined.comm));
  }
  return comms;
}

std::vector<Outcome> CallAll(const std::vector<UniqueComm>& comms,
                             const std::function<onebitResult_t(onebitComm_t)>& call) {
  std::vector<Outcome> outcomes(comms.size());
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < comms.size(); ++i) {
      if (comms[i] == nullptr) continue;
      threads.emplace_back([&call, comm = comms[i].get(), &outcome = outcomes[i]] {
        outcome = CallHere([&] { return call(comm); });
      });
    }
  }
  return outcomes;
}

}  // namespace onebit::testing
