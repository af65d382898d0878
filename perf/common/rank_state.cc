// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Makes the communicators of one group, and buffers on the thread of each rank.
#include "perf/common/rank_state.h"

#include <algorithm>

#include "perf/common/error.h"

namespace onebit::perf {

Ranks::Ranks(const Options& options)
    : buffer_bytes_(std::max<size_t>(options.sweep.max_bytes, 1)),
      states_(static_cast<size_t>(options.threads)) {
  std::vector<onebitComm_t> comms(states_.size());
  Check(onebitCommInitAll(comms.data(), options.threads, nullptr), "onebitCommInitAll");
  for (size_t rank = 0; rank < states_.size(); ++rank) states_[rank].comm.reset(comms[rank]);
  // Abort only marks a communicator, from any thread; the handles stay valid.
  pool_ = std::make_unique<RankPool>(options.threads, [comms] {
    for (onebitComm_t comm : comms) onebitCommAbort(comm);
  });
  pool_->Run([this](int rank) {
    state(rank).send = Buffer(buffer_bytes_);
    state(rank).recv = Buffer(buffer_bytes_);
  });
}

std::vector<const void*> Ranks::sends() const {
  std::vector<const void*> buffers;
  for (const RankState& rank : states_) buffers.push_back(rank.send.data());
  return buffers;
}

std::vector<const void*> Ranks::recvs() const {
  std::vector<const void*> buffers;
  for (const RankState& rank : states_) buffers.push_back(rank.recv.data());
  return buffers;
}

}  // namespace onebit::perf
