// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Plans of the calls on one communicator, kept for the next calls of the same shape.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/call_request.h"
#include "collectives/group_plan.h"
#include "collectives/plan.h"

namespace onebit {

// Calls that travel together, with the plan for them.
struct CallBatch {
  GroupCut cut;                            // of the list of calls that it is part of
  std::shared_ptr<const Plan> plan;        // of a call alone, else null
  std::shared_ptr<const GroupPlan> group;  // of several calls, else null

  const Plan& whole() const { return plan != nullptr ? *plan : group->plan; }
  const Plan& PlanOf(size_t call) const { return plan != nullptr ? *plan : *group->calls[call]; }
};

// Not thread-safe: threads that plan at the same time have a cache each. The least recently used
// plan makes room for a new one.
class PlanCache {
 public:
  // `comm` must outlive the cache.
  explicit PlanCache(const Comm& comm) : comm_(comm), keys_(1) {}

  // From now on plans are for messages in the order of streams: with their headers in front and in
  // one piece, because the wire is as busy and kernels are few.
  void OrderByStreams() { is_stream_ordered_ = true; }

  std::shared_ptr<const Plan> PlanFor(PlanKey key);
  // The plan of a call that is made alone. That of an all-to-all-v has the counts of an earlier
  // call until TakeCounts.
  std::shared_ptr<const Plan> PlanFor(const CallRequest& request);
  // Gives the plan of an all-to-all-v the counts of this call, until the next one. Allocates
  // nothing; other calls need nothing.
  void TakeCounts(const CallRequest& request);
  // Cuts a list of calls into batches that run one after the other; all ranks cut alike.
  void PlanBatches(std::span<const CallRequest> requests, std::vector<CallBatch>* batches);

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
  static constexpr size_t kMaxEntries = 64;  // of either kind

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
  std::shared_ptr<Plan> dense_pairs_;  // of dense all-to-all-vs, once there was one
  std::vector<PlanKey> keys_;          // of the calls at hand
  uint64_t uses_ = 0;
};

}  // namespace onebit
