// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls in which one rank's heap allocations fail from some number on.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "onebit/onebit.h"
#include "tests/faults/fault_case.h"
#include "tests/support/allocation_failer.h"
#include "tests/support/comm_group.h"

namespace onebit::testing {

inline constexpr int kStarvedRank = kStruckRank;  // the rank without memory

struct StarvedCall {
  bool has_struck = false;  // an allocation failed
  onebitResult_t result = onebitSuccess;
  std::string text;
};
// Makes `call` on this thread, whose allocations fail after the first `before`.
StarvedCall CallWithout(uint64_t before, Shortage shortage,
                        const std::function<onebitResult_t()>& call);

// One call on every rank, each on its own thread.
struct StarvedGroupCall {
  StarvedCall starved;       // of kStarvedRank
  std::vector<Outcome> all;  // by rank
};
// kStarvedRank calls `then` after onebitOutOfMemory, with memory again.
StarvedGroupCall CallAllWithout(uint64_t before, Shortage shortage,
                                const std::function<onebitResult_t(int rank)>& call,
                                const std::function<onebitResult_t()>& then = nullptr);

// Calls body(before) for every allocation, or every one of `stride`, until a test has failed. The
// body returns false if there was no allocation left to fail. Returns the number of allocations.
uint64_t ForEachAllocation(const std::function<bool(uint64_t before)>& body, uint64_t stride = 1);

// Parameters of tests: every transport and every kind of shortage.
struct HeapParameter {
  std::string transport;
  Shortage shortage;
};
std::vector<HeapParameter> HeapParameters();
std::string NameOf(const HeapParameter& parameter);

}  // namespace onebit::testing
