// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Draws one action after the other, tracking what exists after each.
#include "perf/studies/soak/soak_plan.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "perf/studies/soak/draws.h"

namespace onebit::soak {
namespace {

constexpr size_t kMaxLiveGroups = 7;
constexpr size_t kMaxLiveTensors = 12;
constexpr uint64_t kMaxSeries = 4;  // calls of a choice
constexpr int kDetached = -1;

constexpr std::array<onebitDataType_t, 3> kTypes = {onebitFloat32, onebitFloat16, onebitBfloat16};
constexpr std::array<onebitRedOp_t, 2> kOps = {onebitSum, onebitAvg};
constexpr std::array<int32_t, 6> kBlocks = {ONEBIT_BLOCK_TENSOR, 64, 192, 1024, 4096, 65536};
constexpr std::array<int32_t, 5> kAlignments = {8, 24, 64, 256, 4096};

class Planner {
 public:
  Planner(const PlanLimits& limits, uint64_t seed, uint64_t round)
      : limits_(limits), draws_(seed, round) {
    Members all;
    for (int rank = 0; rank < limits.ranks; ++rank) all.push_back(rank);
    NewGroup(std::move(all));
  }

  Plan Make() && {
    Split(0);
    for (int choice = 0; choice < limits_.choices; ++choice) Choose();
    // Destroys the rest in any order.
    while (live_groups_.size() > 1 || !live_tensors_.empty()) {
      const bool has_groups = live_groups_.size() > 1;
      if (!live_tensors_.empty() && (!has_groups || draws_.Chance(0.5))) {
        DestroyTensor(AnyTensor());
      } else {
        DestroyGroup(live_groups_[1 + draws_.Below(live_groups_.size() - 1)]);
      }
    }
    return std::move(plan_);
  }

 private:
  void Choose() {
    const uint64_t choice = draws_.Below(100);
    const int group = draws_.OneOf(live_groups_);
    if (choice < 10) {
      if (live_groups_.size() < kMaxLiveGroups) Split(group);
    } else if (choice < 14) {
      if (live_groups_.size() < kMaxLiveGroups) Shrink(group);
    } else if (choice < 22) {
      if (group != 0) DestroyGroup(group);
    } else if (choice < 42) {
      if (live_tensors_.size() < kMaxLiveTensors) CreateTensor(group);
    } else if (choice < 52) {
      Rebind();
    } else if (choice < 54) {
      if (const int tensor = TensorOf(group); tensor >= 0) {
        Add({.kind = ActionKind::kReset, .group = group, .tensor = tensor});
      }
    } else if (choice < 56) {
      if (!live_tensors_.empty()) DestroyTensor(AnyTensor());
    } else if (choice < 84) {
      for (uint64_t left = 1 + draws_.Below(kMaxSeries); left > 0; --left) Compressed(group);
    } else if (choice < 92) {
      Add(DataCall(ActionKind::kDense, group));
    } else if (choice < 97) {
      Broadcast(group);
    } else {
      Add({.kind = ActionKind::kBarrier, .group = group});
    }
  }

  void Split(int parent) {
    Action split{.kind = ActionKind::kSplit, .group = parent};
    const Members members = plan_.groups[static_cast<size_t>(parent)];
    const uint64_t colors = 1 + draws_.Below(std::min<uint64_t>(members.size(), 3));
    for (size_t rank = 0; rank < members.size(); ++rank) {
      const bool has_color = !draws_.Chance(0.1);
      split.colors.push_back(has_color ? static_cast<int>(7 * draws_.Below(colors)) : kNoColor);
      split.keys.push_back(static_cast<int>(draws_.Below(3)) - 1);  // with ties
    }
    // Groups by color, orders by key and then by former rank, as the library must.
    std::map<int, std::vector<std::pair<int, size_t>>> parts;
    for (size_t rank = 0; rank < members.size(); ++rank) {
      if (split.colors[rank] != kNoColor) {
        parts[split.colors[rank]].emplace_back(split.keys[rank], rank);
      }
    }
    for (auto& [color, part] : parts) {
      std::sort(part.begin(), part.end());
      Members chosen;
      for (const auto& [key, rank] : part) chosen.push_back(members[rank]);
      split.new_groups.push_back(NewGroup(std::move(chosen)));
    }
    Add(std::move(split));
  }

  void Shrink(int parent) {
    Action shrink{.kind = ActionKind::kShrink, .group = parent};
    const Members members = plan_.groups[static_cast<size_t>(parent)];
    Members rest;
    for (size_t rank = 0; rank < members.size(); ++rank) {
      if (draws_.Chance(0.3)) {
        shrink.excluded.push_back(static_cast<int>(rank));
      } else {
        rest.push_back(members[rank]);
      }
    }
    if (rest.empty() || shrink.excluded.empty()) return;
    shrink.new_groups.push_back(NewGroup(std::move(rest)));
    Add(std::move(shrink));
  }

  void DestroyGroup(int group) {
    std::erase(live_groups_, group);
    for (int& home : homes_) {
      if (home == group) home = kDetached;
    }
    Add({.kind = ActionKind::kDestroyGroup, .group = group, .is_finalized = draws_.Chance(0.5)});
  }

  void CreateTensor(int group) {
    TensorSpec spec;
    spec.count = draws_.LogUniform(limits_.max_elements);
    spec.type = draws_.OneOf(kTypes);
    spec.op = draws_.OneOf(kOps);
    spec.mode = draws_.Chance(0.75) ? onebitModeEf : onebitModePlain;
    spec.scale_rule = draws_.Chance(0.5) ? onebitScaleL1 : onebitScaleL2;
    spec.block = draws_.OneOf(kBlocks);
    spec.chunk_alignment = draws_.OneOf(kAlignments);
    if (spec.mode == onebitModeEf) {
      spec.residual_type = draws_.Chance(0.3) ? onebitBfloat16 : onebitFloat32;
      spec.is_transactional = draws_.Chance(0.7);
      spec.has_server_residual = draws_.Chance(0.85);
    }
    if (draws_.Chance(0.3)) {
      spec.mask.resize((spec.count + 7) / 8);
      for (uint8_t& byte : spec.mask) byte = static_cast<uint8_t>(draws_.Next());
    }
    const auto tensor = static_cast<int>(plan_.tensors.size());
    plan_.tensors.push_back(std::move(spec));
    homes_.push_back(group);
    holders_.push_back(plan_.groups[static_cast<size_t>(group)]);
    live_tensors_.push_back(tensor);
    Add({.kind = ActionKind::kCreateTensor, .group = group, .tensor = tensor});
  }

  void Rebind() {
    std::vector<std::pair<int, int>> choices;
    for (const int tensor : live_tensors_) {
      const int home = homes_[static_cast<size_t>(tensor)];
      if (home != kDetached && draws_.Chance(0.7)) continue;  // those are many
      for (const int group : live_groups_) {
        if (group != home && HoldAll(tensor, group)) choices.emplace_back(tensor, group);
      }
    }
    if (choices.empty()) return;
    const auto [tensor, group] = draws_.OneOf(choices);
    homes_[static_cast<size_t>(tensor)] = group;
    holders_[static_cast<size_t>(tensor)] = plan_.groups[static_cast<size_t>(group)];
    Add({.kind = ActionKind::kRebind, .group = group, .tensor = tensor});
  }

  bool HoldAll(int tensor, int group) const {
    const Members& holders = holders_[static_cast<size_t>(tensor)];
    const Members& members = plan_.groups[static_cast<size_t>(group)];
    return std::all_of(members.begin(), members.end(), [&](int rank) {
      return std::find(holders.begin(), holders.end(), rank) != holders.end();
    });
  }

  void DestroyTensor(int tensor) {
    std::erase(live_tensors_, tensor);
    Add({.kind = ActionKind::kDestroyTensor, .group = 0, .tensor = tensor});
  }

  void Compressed(int group) {
    const int tensor = TensorOf(group);
    if (tensor < 0) return;
    const TensorSpec& spec = plan_.tensors[static_cast<size_t>(tensor)];
    Action call = DataCall(ActionKind::kCompressed, group);
    call.tensor = tensor;
    call.count = spec.count;
    call.type = spec.type;
    call.op = spec.op;
    if (spec.count > 0 && draws_.Chance(0.05)) {
      call.nan_rank =
          static_cast<int>(draws_.Below(plan_.groups[static_cast<size_t>(group)].size()));
      call.nan_index = draws_.Below(spec.count);
    }
    Add(std::move(call));
  }

  void Broadcast(int group) {
    Action call = DataCall(ActionKind::kBroadcast, group);
    call.root = static_cast<int>(draws_.Below(plan_.groups[static_cast<size_t>(group)].size()));
    Add(std::move(call));
  }

  Action DataCall(ActionKind kind, int group) {
    Action call{.kind = kind, .group = group};
    call.count = draws_.LogUniform(limits_.max_elements);
    call.type = draws_.OneOf(kTypes);
    call.op = draws_.OneOf(kOps);
    call.is_in_place = draws_.Chance(0.4);
    if (draws_.Chance(0.5)) {
      call.send_shift = draws_.Below(kMaxShift + 1);
      call.recv_shift = draws_.Below(kMaxShift + 1);
    }
    call.data_seed = draws_.Next();
    return call;
  }

  int AnyTensor() { return draws_.OneOf(live_tensors_); }

  // Returns a tensor of the group; -1: it has none.
  int TensorOf(int group) {
    std::vector<int> tensors;
    for (const int tensor : live_tensors_) {
      if (homes_[static_cast<size_t>(tensor)] == group) tensors.push_back(tensor);
    }
    return tensors.empty() ? -1 : draws_.OneOf(tensors);
  }

  int NewGroup(Members members) {
    const auto group = static_cast<int>(plan_.groups.size());
    plan_.groups.push_back(std::move(members));
    live_groups_.push_back(group);
    return group;
  }

  void Add(Action action) { plan_.actions.push_back(std::move(action)); }

  const PlanLimits limits_;
  Draws draws_;
  Plan plan_;
  std::vector<int> live_groups_;   // the first is 0
  std::vector<int> live_tensors_;  // attached or detached
  std::vector<int> homes_;         // [tensor]: its group, or kDetached
  std::vector<Members> holders_;   // [tensor]: ranks that hold it
};

}  // namespace

bool IsCall(ActionKind kind) {
  return kind == ActionKind::kDense || kind == ActionKind::kCompressed ||
         kind == ActionKind::kBroadcast || kind == ActionKind::kBarrier;
}

Plan MakePlan(const PlanLimits& limits, uint64_t seed, uint64_t round) {
  return Planner(limits, seed, round).Make();
}

}  // namespace onebit::soak
