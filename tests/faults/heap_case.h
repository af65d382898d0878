// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls of ranks of which one finds no heap memory from some allocation on.
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

inline constexpr int kPoorRank = kStruckRank;  // the one that has no memory

struct PoorCall {
  bool has_struck = false;  // an allocation failed
  onebitResult_t result = onebitSuccess;
  std::string text;
};
// Makes `call` on this thread, whose allocations fail after `before` others.
PoorCall CallWithout(uint64_t before, Shortage shortage,
                     const std::function<onebitResult_t()>& call);

// A call on every rank, each on a thread of its own.
struct PoorGroupCall {
  PoorCall poor;             // of kPoorRank
  std::vector<Outcome> all;  // by rank
};
// `then` is what kPoorRank does after onebitOutOfMemory, with memory.
PoorGroupCall CallAllWithout(uint64_t before, Shortage shortage,
                             const std::function<onebitResult_t(int rank)>& call,
                             const std::function<onebitResult_t()>& then = nullptr);

// Calls body(before) for the allocations there are, or every one of `stride`, until a test has
// failed. The body says whether there was one to fail. Returns how many there were.
uint64_t ForEachAllocation(const std::function<bool(uint64_t before)>& body, uint64_t stride = 1);

// Parameters of tests: every transport and kind of shortage.
struct HeapParameter {
  std::string transport;
  Shortage shortage;
};
std::vector<HeapParameter> HeapParameters();
std::string NameOf(const HeapParameter& parameter);

}  // namespace onebit::testing
