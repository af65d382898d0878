// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// One rank's part in a round: it carries out the plan and verifies every result.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "onebit/onebit.h"
#include "perf/common/allreduce_model.h"
#include "perf/common/comm_handles.h"
#include "perf/common/rank_exchange.h"
#include "perf/studies/soak/live_comms.h"
#include "perf/studies/soak/soak_plan.h"
#include "perf/studies/soak/watchdog.h"
#include "perf/studies/soak/workspace.h"

namespace onebit::soak {

// Hooks for tests of the soak itself; may be empty. Called on the threads of the ranks.
struct SoakHooks {
  // After each call with data, before its result is verified.
  std::function<void(int rank, const Action& action, std::span<std::byte> result)> after_call;
};

// Counters of a rank's communicators.
struct Traffic {
  uint64_t logical_bytes = 0;
  uint64_t wire_bytes = 0;
};

// Everything a rank works with in all rounds.
struct RankSetup {
  int rank = 0;
  onebitComm_t base = nullptr;
  bool asks_for_usage = true;  // of memory and descriptors, for all ranks of this process
  LiveComms& comms;
  Workspace& workspace;
  Watchdog& watchdog;
  const SoakHooks& hooks;
};

class RankRound {
 public:
  // All are borrowed.
  RankRound(const RankSetup& setup, const Plan& plan, uint64_t round);

  // Throws ToolError; the text names action and round.
  void Run();

  // Counters of the communicators that were created and destroyed.
  const Traffic& traffic() const { return traffic_; }

 private:
  struct Tensor {
    perf::CompressorHandle compressor;  // null: this rank does not hold it
    std::optional<model::AllReduceModel> model;
    Members holders;
    bool has_residuals = false;  // a call has committed since they were zero
  };
  // The outcome of a call, compared between ranks.
  struct Verdict {
    perf::BytesHash result;
    uint64_t epoch = 0;
    uint64_t nonfinite_calls = 0;
  };

  void Execute(const Action& action);
  void Regroup(const Action& action);
  void Adopt(onebitComm_t comm, const Action& action);
  void DestroyGroup(const Action& action);
  void CreateTensor(const Action& action);
  void Rebind(const Action& action);
  void AllReduce(const Action& action);
  void Broadcast(const Action& action);
  // Generates the inputs of all members and returns them.
  std::vector<const void*> FillInputs(const Action& action);
  std::byte* PrepareResult(const Action& action, const void* input, const std::byte** send);
  void Verify(const Action& action, const std::byte* result, const void* expected);

  onebitComm_t CommOf(const Action& action) { return comms_[static_cast<size_t>(action.group)]; }
  Tensor& TensorOf(const Action& action) { return tensors_[static_cast<size_t>(action.tensor)]; }
  const Members& MembersOf(const Action& action) const {
    return plan_.groups[static_cast<size_t>(action.group)];
  }
  bool IsMember(const Action& action) const;
  size_t RankIn(const Members& members) const;

  const RankSetup& setup_;
  const Plan& plan_;
  const uint64_t round_;
  std::vector<onebitComm_t> comms_;  // by group; null: not a member, or not there
  std::vector<Tensor> tensors_;
  Traffic traffic_;
};

}  // namespace onebit::soak
