// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of this process, each with a CUDA device; they share devices if there are fewer.
#pragma once

#include <functional>
#include <latch>
#include <span>

#include "onebit/onebit.h"

namespace onebit::testing {

// The transport: over host memory (local, or socket if there are several hosts), or by NCCL, which
// needs a device per rank.
enum class Over { kLocal, kNccl };
inline const char* NameOf(Over over) { return over == Over::kLocal ? "local" : "nccl"; }

// Calls `body(comm, rank)` on each rank, with its device current. A rank that throws fails the
// group; the first exception is thrown again here. `host_ranks` successive ranks form a host;
// 0: all of them.
void RunDeviceRanks(Over over, int ranks,
                    const std::function<void(onebitComm_t comm, int rank)>& body,
                    int host_ranks = 0);

// Counts down at the end of the scope, also when a test gives up there.
class CountDown {
 public:
  explicit CountDown(std::latch& latch) : latch_(latch) {}
  ~CountDown() { latch_.count_down(); }
  CountDown(const CountDown&) = delete;
  CountDown& operator=(const CountDown&) = delete;

 private:
  std::latch& latch_;
};

// Calls `body` once, in the thread of rank 0, with the communicators of all ranks.
void RunDeviceRanksInOneThread(Over over, int ranks,
                               const std::function<void(std::span<const onebitComm_t>)>& body);

}  // namespace onebit::testing
