// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs collectives on one communicator: picks the plan, lends it packet space, commits its result.
#pragma once

#include <memory>
#include <vector>

#include "base/aligned_buffer.h"
#include "collectives/host_executor.h"
#include "collectives/plan.h"
#include "collectives/planned_compressor.h"
#include "comm/comm.h"

namespace onebit {

// The collectives enter the communicator themselves; for what else there is the caller acquires or
// enters it.
class Engine {
 public:
  // `comm` must outlive the engine.
  explicit Engine(Comm& comm) : comm_(comm), executor_(comm) {}

  // Completes `config` (server_elements) and makes a compressor for this communicator.
  Result<PlannedCompressor> CreateCompressor(Compressor::Config config);
  // What a compressor of this configuration gets here: its plan, with room for its packets, and
  // the length of its server residual.
  struct NewBinding {
    std::shared_ptr<const Plan> plan;
    size_t server_elements = 0;
  };
  Result<NewBinding> PlanCompressor(const Compressor::Config& config);

  // Dense sum in place, in exact arithmetic where all but one rank have zeros; ReserveSum takes the
  // memory for it.
  Status ReserveSum(size_t count, kernels::DataType type);
  Status Sum(void* values, size_t count, kernels::DataType type);

  struct Buffers {
    const void* input = nullptr;
    void* output = nullptr;
    size_t count = 0;
    kernels::DataType type = kernels::DataType::kF32;
  };
  // compressor null: dense.
  Status AllReduce(const Buffers& buffers, ReduceOp op, PlannedCompressor* compressor);
  Status Broadcast(const Buffers& buffers, uint32_t root);
  Status Barrier();

 private:
  struct CachedPlan {
    std::shared_ptr<const Plan> plan;
    uint64_t last_use = 0;
  };
  static constexpr size_t kMaxCachedPlans = 64;

  std::shared_ptr<const Plan> PlanFor(const PlanKey& key);
  Status ReservePackets(const Plan& plan);
  CallDescriptor DescriptorOf(const PlanKey& key) const;
  // Between Enter and Exit. Run counts the call; RunNumbered does it.
  Status Run(const Plan& plan, CallDescriptor descriptor, const Buffers& buffers,
             PlannedCompressor* compressor);
  Status RunNumbered(const Plan& plan, const CallDescriptor& descriptor, const Buffers& buffers,
                     PlannedCompressor* compressor);

  Comm& comm_;
  HostExecutor executor_;
  AlignedBuffer packets_;          // of the largest plan so far; calls take turns
  std::vector<CachedPlan> plans_;  // the least recently used one makes room
  uint64_t uses_ = 0;
};

}  // namespace onebit
