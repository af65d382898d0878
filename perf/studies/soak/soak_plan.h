// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The plan of a round: communicators and compressors come and go, and calls are made on them. It is
// a pure function of seed and round, so all ranks do the same and a round can be repeated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "onebit/onebit.h"

namespace onebit::soak {

// Ranks of the base communicator, in the order of the group's own ranks.
using Members = std::vector<int>;

// The color of ranks that a split leaves without a group.
inline constexpr int kNoColor = -1;

// A tensor with its compressor.
struct TensorSpec {
  size_t count = 0;
  onebitDataType_t type = onebitFloat32;
  onebitRedOp_t op = onebitSum;
  onebitMode_t mode = onebitModeEf;
  onebitScaleRule_t scale_rule = onebitScaleL2;
  int32_t block = 4096;  // or ONEBIT_BLOCK_TENSOR
  int32_t chunk_alignment = 64;
  onebitDataType_t residual_type = onebitFloat32;
  bool is_transactional = true;
  bool has_server_residual = true;
  std::vector<uint8_t> mask;  // empty: all elements take part
};

enum class ActionKind {
  kSplit,          // of a group, into new groups
  kShrink,         // of a group, into a new one without some of its members
  kDestroyGroup,   // its tensors become detached
  kCreateTensor,   // on a group
  kRebind,         // of a tensor, detached or not, to another group of ranks that hold it
  kReset,          // of a tensor's residuals
  kDestroyTensor,  // attached or detached
  kDense,          // allreduce without a compressor
  kCompressed,     // allreduce of a tensor
  kBroadcast,
  kBarrier,
};
inline constexpr size_t kActionKinds = 11;
const char* NameOf(ActionKind kind);
// True for a collective on data or a barrier; false for actions that create or destroy something.
bool IsCall(ActionKind kind);

// All ranks carry out all actions in the same order, skipping those of groups they do not belong
// to. So no two ranks ever wait for each other in different groups.
struct Action {
  ActionKind kind = ActionKind::kBarrier;
  int group = 0;    // group of the action; kRebind: the new one; index into Plan::groups
  int tensor = -1;  // index into Plan::tensors
  // kSplit, by rank of the group; kShrink: those of the group that are left out.
  std::vector<int> colors, keys, excluded;
  std::vector<int> new_groups;  // of kSplit and kShrink
  bool is_finalized = false;    // kDestroyGroup: with onebitCommFinalize
  // Parameters of a call.
  size_t count = 0;
  onebitDataType_t type = onebitFloat32;
  onebitRedOp_t op = onebitSum;
  bool is_in_place = false;
  size_t send_shift = 0, recv_shift = 0;  // elements from the start of an aligned buffer
  int root = 0;
  int nan_rank = -1;  // rank of the group with a NaN among its input
  size_t nan_index = 0;
  uint64_t data_seed = 0;
};

struct Plan {
  std::vector<Members> groups;  // the first has all ranks and outlives the round
  std::vector<TensorSpec> tensors;
  std::vector<Action> actions;  // in the end only the first group is left, without tensors
};

struct PlanLimits {
  int ranks = 4;
  size_t max_elements = 1 << 18;  // of a tensor
  int choices = 40;               // a choice is one action or a few calls
};
inline constexpr size_t kMaxShift = 15;

Plan MakePlan(const PlanLimits& limits, uint64_t seed, uint64_t round);

// Describes action `index` in one line, for people.
std::string Describe(const Plan& plan, size_t index);

}  // namespace onebit::soak
