// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "exec/plan_cache.h"

#include <algorithm>
#include <utility>

#include "plan/algorithms.h"

namespace onebit {
namespace {

std::span<const PlanKey> WithoutPairs(std::span<const PlanKey> keys) {
  const auto first = std::ranges::find_if(keys, &PlanKey::is_pairs);
  return keys.first(static_cast<size_t>(first - keys.begin()));
}

}  // namespace

Plan PlanCache::NewPlan(const PlanKey& key, size_t segment_elements) const {
  return SelectPlan(key, static_cast<uint32_t>(comm_.rank()), comm_.hosts(), segment_elements);
}

template <typename AnyEntry>
void PlanCache::Insert(AnyEntry entry, std::vector<AnyEntry>* entries) {
  if (entries->size() < kMaxEntries) {
    entries->push_back(std::move(entry));
  } else {
    *std::ranges::min_element(*entries, {}, &AnyEntry::last_use) = std::move(entry);
  }
}

std::shared_ptr<const Plan> PlanCache::PlanFor(PlanKey key) {
  if (is_stream_ordered_ && !key.codec.is_dense()) key.header_room = kHeaderBytes;
  for (Entry& entry : entries_) {
    if (entry.plan->key != key) continue;
    entry.last_use = ++uses_;
    return entry.plan;
  }
  const size_t segment_elements = is_stream_ordered_ ? 0 : comm_.options().segment_elements;
  auto plan = std::make_shared<const Plan>(NewPlan(key, segment_elements));
  Insert(Entry{plan, ++uses_}, &entries_);
  return plan;
}

std::shared_ptr<const Plan> PlanCache::PlanFor(const CallRequest& request) {
  return PlanFor(request, KeyOf(request, comm_));
}

std::shared_ptr<const Plan> PlanCache::PlanFor(const CallRequest& request, const PlanKey& key) {
  if (request.collective == Collective::kSendRecv) return PlanFor(key);
  if (request.compressor != nullptr) {
    return key.has_drift_check ? request.compressor->check_plan : request.compressor->plan;
  }
  if (request.collective != Collective::kAllToAllv) return PlanFor(key);
  if (dense_pairs_ == nullptr) {
    dense_pairs_ = std::make_shared<Plan>(
        NewPlan({.collective = Collective::kAllToAllv, .chunk_alignment = 0}, 0));
  }
  return dense_pairs_;
}

void PlanCache::TakeCounts(const CallRequest& request) {
  if (request.collective != Collective::kAllToAllv) return;
  Plan& plan = request.compressor != nullptr ? *request.compressor->sized_plan : *dense_pairs_;
  if (request.compressor == nullptr) plan.key.type = request.type;
  ResizeAllToAllv(*request.pairs, &plan);
}

void PlanCache::PlanBatches(std::span<const CallRequest> requests,
                            std::vector<PlannedBatch>* batches, size_t most_dense_bytes) {
  batches->clear();
  keys_.clear();
  for (const CallRequest& request : requests) keys_.push_back(KeyOf(request, comm_));
  const auto ranks = static_cast<size_t>(comm_.ranks());
  // A single rank sends nothing, so its calls have no messages to share.
  const uint64_t group_elements = ranks == 1 ? 0 : comm_.group_elements();
  for (size_t begin = 0; begin < requests.size(); begin += batches->back().cut.count) {
    const auto rest = std::span<const PlanKey>(keys_).subspan(begin);
    // Sends and receives come last in a group, and make progress together.
    const size_t count =
        rest[0].is_pairs()
            ? rest.size()
            : FirstCut(WithoutPairs(rest), ranks, group_elements, most_dense_bytes).count;
    PlannedBatch batch{.cut = {begin, count}, .plan = nullptr, .group = nullptr};
    if (count == 1) {
      batch.plan = PlanFor(requests[begin], keys_[begin]);
    } else {
      batch.group =
          GroupPlanFor(requests.subspan(begin, count), std::span(keys_).subspan(begin, count));
    }
    batches->push_back(std::move(batch));
  }
}

std::shared_ptr<const GroupPlan> PlanCache::GroupPlanFor(std::span<const CallRequest> requests,
                                                         std::span<const PlanKey> keys) {
  for (GroupEntry& entry : group_entries_) {
    if (!std::ranges::equal(keys, entry.keys)) continue;
    entry.last_use = ++uses_;
    return entry.plan;
  }
  std::vector<std::shared_ptr<const Plan>> plans;
  for (size_t i = 0; i < requests.size(); ++i) plans.push_back(PlanFor(requests[i], keys[i]));
  const auto merge = keys[0].is_pairs() ? MergePairs : MergePlans;
  auto plan = std::make_shared<const GroupPlan>(merge(
      std::move(plans), static_cast<uint32_t>(comm_.rank()), static_cast<uint32_t>(comm_.ranks())));
  Insert(GroupEntry{{keys.begin(), keys.end()}, plan, ++uses_}, &group_entries_);
  return plan;
}

}  // namespace onebit
