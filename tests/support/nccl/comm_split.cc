// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Communicators that are made from others.
#include <algorithm>
#include <memory>
#include <tuple>
#include <vector>

#include "tests/support/nccl/lifecycle.h"
#include "tests/support/nccl/operations.h"
#include "tests/support/nccl/run_operation.h"
#include "tests/support/nccl/unique_ids.h"

namespace onebit::testing::nccl {
namespace {

constexpr int kNoColor = -1;  // NCCL_SPLIT_NOCOLOR

struct Choice {
  int color;
  int key;
};

// Returns what all ranks have chosen; nothing if the communicator has ended.
std::vector<Choice> Exchange(const std::shared_ptr<Comm>& comm, const Choice& mine) {
  std::vector<Choice> all(static_cast<size_t>(comm->clique->ranks));
  Operation operation;
  operation.comm = comm;
  operation.is_by_host = true;
  operation.collective = std::make_shared<Collective>(
      Collective{.kind = Collective::Kind::kAllGather, .count = sizeof mine, .inputs = {&mine}});
  operation.output = all.data();
  if (!RunNow(&operation)) all.clear();
  return all;
}

// The ranks of the color that `rank` has chosen, in their new order.
std::vector<int> RanksOfGroup(const std::vector<Choice>& choices, int rank) {
  const auto choice = [&](int of) { return choices[static_cast<size_t>(of)]; };
  std::vector<int> ranks;
  for (int each = 0; each < static_cast<int>(choices.size()); ++each) {
    if (choice(each).color == choice(rank).color) ranks.push_back(each);
  }
  std::stable_sort(ranks.begin(), ranks.end(),
                   [&](int a, int b) { return choice(a).key < choice(b).key; });
  return ranks;
}

// `ranks` are those of the parent. All of them call this, with an equal `group`.
ncclResult_t MakeChild(const Comm& parent, uint64_t child, uint64_t group,
                       const std::vector<int>& ranks, bool is_blocking, ncclComm_t* made) {
  IdContent id;
  ReadId(parent.id, &id);
  id.number = ChildNumber(id.number, child, group);
  const auto rank = std::find(ranks.begin(), ranks.end(), parent.rank) - ranks.begin();
  return Init(made, static_cast<int>(ranks.size()), MakeId(id), static_cast<int>(rank),
              is_blocking);
}

// Begins a call that makes a child. *number is the same on all ranks.
ncclResult_t BeginChild(const Use& parent, const ncclConfig_t* config, const ncclComm_t* made,
                        bool* is_blocking, uint64_t* number) {
  if (!parent || made == nullptr) return ncclInvalidArgument;
  *is_blocking = parent->is_blocking;
  *number = parent->children++;
  return ReadConfig(config, is_blocking);
}

}  // namespace

ONEBIT_TEST_NCCL_FUNCTION(ncclResult_t, ncclCommSplit, ncclComm_t comm, int color, int key,
                          ncclComm_t* newcomm, ncclConfig_t* config) {
  ncclResult_t told = ncclSuccess;
  if (IsToFail("ncclCommSplit", &told)) return told;
  const Use parent(comm);
  bool is_blocking = true;
  uint64_t number = 0;
  const ncclResult_t begun = BeginChild(parent, config, newcomm, &is_blocking, &number);
  if (begun != ncclSuccess) return begun;
  const std::vector<Choice> choices = Exchange(parent.shared(), {.color = color, .key = key});
  if (choices.empty()) return ncclInternalError;
  *newcomm = nullptr;
  if (color == kNoColor) return ncclSuccess;
  return MakeChild(*parent.shared(), number, static_cast<uint64_t>(color),
                   RanksOfGroup(choices, parent->rank), is_blocking, newcomm);
}

ONEBIT_TEST_NCCL_FUNCTION(ncclResult_t, ncclCommShrink, ncclComm_t comm, int* excludeRanksList,
                          int excludeRanksCount, ncclComm_t* newcomm, ncclConfig_t* config,
                          int shrinkFlags) {
  ncclResult_t told = ncclSuccess;
  if (IsToFail("ncclCommShrink", &told)) return told;
  constexpr int kAbort = 1;  // NCCL_SHRINK_ABORT
  const Use parent(comm, Use::Kind::kEnd);
  bool is_blocking = true;
  uint64_t number = 0;
  const ncclResult_t begun = BeginChild(parent, config, newcomm, &is_blocking, &number);
  if (begun != ncclSuccess) return begun;
  if (excludeRanksList == nullptr || excludeRanksCount < 1) return ncclInvalidArgument;
  if (shrinkFlags == kAbort) StopOperations(parent.shared().get());
  int* const end = excludeRanksList + excludeRanksCount;
  std::vector<int> ranks;
  uint64_t excluded = 0;
  for (int rank = 0; rank < parent->clique->ranks; ++rank) {
    if (std::find(excludeRanksList, end, rank) == end) {
      ranks.push_back(rank);
    } else {
      excluded = ChildNumber(excluded, 0, static_cast<uint64_t>(rank));
    }
  }
  if (std::find(ranks.begin(), ranks.end(), parent->rank) == ranks.end()) {
    return ncclInvalidArgument;
  }
  return MakeChild(*parent.shared(), number, excluded, ranks, is_blocking, newcomm);
}

}  // namespace onebit::testing::nccl
