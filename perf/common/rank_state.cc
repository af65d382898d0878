// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Makes or joins communicators, and buffers on the thread of each rank.
#include "perf/common/rank_state.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "perf/common/error.h"

namespace onebit::perf {
namespace {

std::vector<CommHandle> ThreadComms(int threads) {
  std::vector<onebitComm_t> comms(static_cast<size_t>(threads));
  Check(onebitCommInitAll(comms.data(), threads, nullptr), "onebitCommInitAll");
  std::vector<CommHandle> handles;
  for (onebitComm_t comm : comms) handles.emplace_back(comm);
  return handles;
}

// A place that can travel.
struct PlaceRecord {
  int pid;
  char host[64];
};

}  // namespace

Ranks::Ranks(std::vector<CommHandle> comms, int first, size_t buffer_bytes)
    : first_(first), buffer_bytes_(buffer_bytes), states_(comms.size()) {
  count_ = CountOf(comms.front().get());
  std::vector<onebitComm_t> borrowed;
  for (size_t i = 0; i < comms.size(); ++i) {
    borrowed.push_back(comms[i].get());
    states_[i].comm = std::move(comms[i]);
  }
  // Abort only marks a communicator, from any thread; the handles stay valid.
  pool_ = std::make_unique<RankPool>(first_, local_count(), [borrowed] {
    for (onebitComm_t comm : borrowed) onebitCommAbort(comm);
  });
  pool_->Run([this](int rank) {
    state(rank).send = Buffer(buffer_bytes_);
    state(rank).recv = Buffer(buffer_bytes_);
  });
}

Ranks::~Ranks() {
  if (is_finished_ || are_all_local()) return;
  for (RankState& state : states_) onebitCommAbort(state.comm.get());
}

void Ranks::Broadcast(std::span<std::byte> bytes, int root) {
  pool().Run([&](int rank) { BroadcastBytes(state(rank).comm.get(), bytes, root); });
}

std::vector<RankPlace> Ranks::Places() {
  const auto records = GatherFromAll([](int) {
    PlaceRecord record = {.pid = getpid(), .host = {}};
    const std::string host = HostName();
    std::memcpy(record.host, host.data(), std::min(host.size(), sizeof(record.host) - 1));
    return record;
  });
  std::vector<RankPlace> places;
  for (const PlaceRecord& record : records) places.push_back({record.pid, record.host});
  return places;
}

void Ranks::Finish() {
  if (!are_all_local()) {
    pool().Run(
        [&](int rank) { Check(onebitCommFinalize(state(rank).comm.get()), "onebitCommFinalize"); });
  }
  is_finished_ = true;
}

std::unique_ptr<Ranks> MakeRanks(const Options& options) {
  const size_t buffer_bytes = std::max<size_t>(options.AllocatedBytes(), 1);
  if (!options.ranks.is_one_rank()) {
    return std::make_unique<Ranks>(ThreadComms(options.ranks.threads), 0, buffer_bytes);
  }
  onebitComm_t comm = nullptr;
  Check(JoinProcesses(options.transport, &comm), "onebitCommInitEnv");
  std::vector<CommHandle> comms;
  comms.emplace_back(comm);
  const int rank = RankOf(comm);
  return std::make_unique<Ranks>(std::move(comms), rank, buffer_bytes);
}

}  // namespace onebit::perf
