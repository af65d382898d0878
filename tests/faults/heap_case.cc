// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/heap_case.h"

#include <thread>

#include <gtest/gtest.h>

namespace onebit::testing {
namespace {

constexpr uint64_t kMostAllocations = 5000;

}  // namespace

PoorCall CallWithout(uint64_t before, Shortage shortage,
                     const std::function<onebitResult_t()>& call) {
  PoorCall poor;
  {
    const FailingAllocations allocations(before, shortage);
    poor.result = call();
    poor.has_struck = allocations.has_struck();
  }
  if (poor.result != onebitSuccess) poor.text = onebitGetLastError(nullptr);
  return poor;
}

PoorGroupCall CallAllWithout(uint64_t before, Shortage shortage,
                             const std::function<onebitResult_t(int rank)>& call,
                             const std::function<onebitResult_t()>& then) {
  PoorGroupCall calls{.poor = {}, .all = std::vector<Outcome>(kCaseRanks)};
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < kCaseRanks; ++rank) {
    threads.emplace_back([&, rank] {
      calls.all[static_cast<size_t>(rank)] = CallHere([&] {
        if (rank != kPoorRank) return call(rank);
        calls.poor = CallWithout(before, shortage, [&] { return call(rank); });
        if (calls.poor.result == onebitOutOfMemory && then) return then();
        return calls.poor.result;
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
#if defined(FAULTS_HAVE_UCX)
    parameters.push_back({"ucx", shortage});
#endif
  }
  return parameters;
}

std::string NameOf(const HeapParameter& parameter) {
  return parameter.transport + (parameter.shortage == Shortage::kOnce ? "Once" : "FromThenOn");
}

}  // namespace onebit::testing
