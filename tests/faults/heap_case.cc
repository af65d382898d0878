// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/heap_case.h"

#include <thread>

#include <gtest/gtest.h>

namespace onebit::testing {
namespace {

constexpr uint64_t kMostAllocations = 5000;

}  // namespace

StarvedCall CallWithout(uint64_t before, Shortage shortage,
                        const std::function<onebitResult_t()>& call) {
  StarvedCall starved;
  {
    const FailingAllocations allocations(before, shortage);
    starved.result = call();
    starved.has_struck = allocations.has_struck();
  }
  if (starved.result != onebitSuccess) starved.text = onebitGetLastError(nullptr);
  return starved;
}

StarvedGroupCall CallAllWithout(uint64_t before, Shortage shortage,
                                const std::function<onebitResult_t(int rank)>& call,
                                const std::function<onebitResult_t()>& then) {
  StarvedGroupCall calls{.starved = {}, .all = std::vector<Outcome>(kCaseRanks)};
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < kCaseRanks; ++rank) {
    threads.emplace_back([&, rank] {
      calls.all[static_cast<size_t>(rank)] = CallHere([&] {
        if (rank != kStarvedRank) return call(rank);
        calls.starved = CallWithout(before, shortage, [&] { return call(rank); });
        if (calls.starved.result == onebitOutOfMemory && then) return then();
        return calls.starved.result;
      });
    });
  }
  threads.clear();
  return calls;
}

uint64_t ForEachAllocation(const std::function<bool(uint64_t before)>& body, uint64_t stride) {
  uint64_t found = 0;
  for (uint64_t before = 0; body(before) && !::testing::Test::HasFailure(); before += stride) {
    ++found;
    if (before > kMostAllocations) {
      ADD_FAILURE() << "allocations without end";
      break;
    }
  }
  return found;
}

std::vector<HeapParameter> HeapParameters() {
  std::vector<HeapParameter> parameters;
  for (const Shortage shortage : {Shortage::kOnce, Shortage::kFromThenOn}) {
    parameters.push_back({"local", shortage});
    parameters.push_back({"socket", shortage});
  }
  return parameters;
}

std::string NameOf(const HeapParameter& parameter) {
  return parameter.transport + (parameter.shortage == Shortage::kOnce ? "Once" : "FromThenOn");
}

}  // namespace onebit::testing
