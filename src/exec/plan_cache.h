// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Keeps plans of one communicator's calls for later calls of the same shape.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "exec/call_request.h"
#include "plan/group_plan.h"
#include "plan/plan.h"

namespace onebit {

// Calls that share messages, with their plan.
struct PlannedBatch {
  GroupCut cut;                            // range in the list of calls
  std::shared_ptr<const Plan> plan;        // of a single call, else null
  std::shared_ptr<const GroupPlan> group;  // of several calls, else null

  const Plan& whole() const { return plan != nullptr ? *plan : group->plan; }
  const Plan& PlanOf(size_t call) const { return plan != nullptr ? *plan : *group->calls[call]; }
};

// Not thread-safe: threads that plan concurrently have a cache each. When it is full the least
// recently used plan is replaced.
class PlanCache {
 public:
  // `comm` must outlive the cache.
  explicit PlanCache(const Comm& comm) : comm_(comm), keys_(1) {}

  // From now on plans are for stream-ordered messages: headers precede payloads, and chunks are not
  // segmented, which would keep the wire no busier and launch more kernels.
  void OrderByStreams() { is_stream_ordered_ = true; }

  std::shared_ptr<const Plan> PlanFor(PlanKey key);
  // Returns the plan of a single call. That of an all-to-all-v has the counts of an earlier call
  // until TakeCounts.
  std::shared_ptr<const Plan> PlanFor(const CallRequest& request);
  // Sets the counts of an all-to-all-v in its plan, until the next one. Does nothing for other
  // calls. Never allocates.
  void TakeCounts(const CallRequest& request);
  // Cuts a list of calls into batches, which run one after the other. All ranks cut alike
  // (FirstCut).
  void PlanBatches(std::span<const CallRequest> requests, std::vector<PlannedBatch>* batches,
                   size_t most_dense_bytes = SIZE_MAX);

 private:
  struct Entry {
    std::shared_ptr<const Plan> plan;
    uint64_t last_use = 0;
  };
  struct GroupEntry {
    std::vector<PlanKey> keys;
    std::shared_ptr<const GroupPlan> plan;
    uint64_t last_use = 0;
  };
  static constexpr size_t kMaxEntries = 64;  // plans of single calls, and of groups

  std::shared_ptr<const Plan> PlanFor(const CallRequest& request, const PlanKey& key);
  std::shared_ptr<const GroupPlan> GroupPlanFor(std::span<const CallRequest> requests,
                                                std::span<const PlanKey> keys);
  Plan NewPlan(const PlanKey& key, size_t segment_elements) const;
  template <typename AnyEntry>
  static void Insert(AnyEntry entry, std::vector<AnyEntry>* entries);

  const Comm& comm_;
  bool is_stream_ordered_ = false;
  std::vector<Entry> entries_;
  std::vector<GroupEntry> group_entries_;
  std::shared_ptr<Plan> dense_pairs_;  // shared by dense all-to-all-vs
  std::vector<PlanKey> keys_;          // keys of the calls being planned
  uint64_t uses_ = 0;
};

}  // namespace onebit
