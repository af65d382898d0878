// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The engine's part of a group: cuts its calls into batches, runs these one after the other, and
// commits all calls at the end.
#include <algorithm>
#include <utility>

#include "collectives/engine.h"

namespace onebit {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

Status Engine::PrepareGroup(std::span<const Request> requests) {
  ONEBIT_ASSIGN_OR_RETURN(requests_, StageGroup(requests));
  batches_.clear();
  next_batch_ = 0;
  is_batch_running_ = false;
  group_begin_ = Clock::now();
  are_finite_.assign(requests.size(), 1);
  keys_.clear();
  for (const Request& request : requests) {
    keys_.push_back(request.key);
  }
  // One rank sends nothing that could travel together.
  const uint64_t group_elements = comm_.ranks() == 1 ? 0 : comm_.options().group_elements;
  for (size_t begin = 0; begin < requests.size();) {
    GroupCut cut = FirstCut(std::span(keys_).subspan(begin), static_cast<size_t>(comm_.ranks()),
                            group_elements);
    cut.begin = begin;
    ONEBIT_TRY(PrepareBatch(cut));
    begin += cut.count;
  }
  size_t most_elements = 0;
  for (const GroupBatch& batch : batches_) {
    for (size_t i = 0; i < batch.cut.count; ++i) {
      most_elements = std::max(most_elements, PlanOf(batch, i).tensor_elements);
    }
  }
  ONEBIT_TRY(executor_.StartThreads(most_elements));
  return CheckThread();
}

Status Engine::PrepareBatch(GroupCut cut) {
  if (calls_.size() < cut.count) {
    calls_.resize(cut.count);
    digests_.resize(cut.count);
  }
  GroupBatch batch{.cut = cut, .plan = nullptr, .group = nullptr};
  if (cut.count == 1) {
    batch.plan = PlanFor(requests_[cut.begin]);
  } else {
    batch.group = GroupPlanFor(cut);
  }
  ONEBIT_TRY(ReservePackets(batch.plan != nullptr ? *batch.plan : batch.group->plan));
  batches_.push_back(std::move(batch));
  return OkStatus();
}

std::shared_ptr<const GroupPlan> Engine::GroupPlanFor(GroupCut cut) {
  const auto keys = std::span(keys_).subspan(cut.begin, cut.count);
  for (CachedGroupPlan& cached : group_plans_) {
    if (std::equal(keys.begin(), keys.end(), cached.keys.begin(), cached.keys.end())) {
      cached.last_use = ++uses_;
      return cached.plan;
    }
  }
  std::vector<std::shared_ptr<const Plan>> plans;
  for (size_t i = 0; i < cut.count; ++i) plans.push_back(PlanFor(requests_[cut.begin + i]));
  auto plan = std::make_shared<const GroupPlan>(MergePlans(
      std::move(plans), static_cast<uint32_t>(comm_.rank()), static_cast<uint32_t>(comm_.ranks())));
  executor_.Reserve(plan->plan, cut.count);
  CachedGroupPlan cached{{keys.begin(), keys.end()}, plan, ++uses_};
  if (group_plans_.size() == kMaxCachedGroupPlans) {
    *std::min_element(group_plans_.begin(), group_plans_.end(), [](const auto& a, const auto& b) {
      return a.last_use < b.last_use;
    }) = std::move(cached);
  } else {
    group_plans_.push_back(std::move(cached));
  }
  return plan;
}

// Of a call of the batch.
const Plan& Engine::PlanOf(const GroupBatch& batch, size_t call) {
  return batch.plan != nullptr ? *batch.plan : *batch.group->calls[call];
}

// Calls of an all-to-all-v share a plan, which takes on the counts of each when it is its turn.
// They are alone, and their plan is there: this takes no memory.
void Engine::TakeCounts(const GroupBatch& batch) {
  const Request& first = requests_[batch.cut.begin];
  if (first.key.collective == Collective::kAllToAllv) static_cast<void>(PairPlanFor(first));
}

void Engine::StartBatch(GroupBatch* started) {
  started->sequence = comm_.NextSequence();
  const GroupBatch& batch = *started;
  const auto requests = requests_.subspan(batch.cut.begin, batch.cut.count);
  TakeCounts(batch);
  for (size_t i = 0; i < requests.size(); ++i) {
    const Plan& plan = PlanOf(batch, i);
    const size_t offset = batch.plan != nullptr ? 0 : batch.group->packets[i];
    calls_[i] = CallOf(requests[i], plan, packets() + offset);
    calls_[i].descriptor.sequence = batch.sequence;
    digests_[i] = DigestOf(calls_[i].descriptor, static_cast<uint16_t>(plan.segments()));
  }
  Batch run = {.plan = batch.plan.get(),
               .descriptor = calls_[0].descriptor,
               .calls = std::span(calls_).first(requests.size()),
               .packets = packets(),
               .digests = {},
               .device = device_steps()};
  if (batch.plan == nullptr) {
    run.plan = &batch.group->plan;
    run.digests = std::span(digests_).first(requests.size());
    run.descriptor = DescriptorOf(run.plan->key);
    run.descriptor.sequence = batch.sequence;
    run.descriptor.mask_digest = GroupDigest(run.digests);
  }
  executor_.Start(run);
}

Status Engine::GoGroup(bool* has_moved) {
  if (!is_batch_running_) {
    if (next_batch_ == batches_.size()) return OkStatus();
    is_batch_running_ = true;
    StartBatch(&batches_[next_batch_++]);
  }
  ONEBIT_TRY(executor_.Go(has_moved));
  if (!executor_.is_done()) return OkStatus();
  *has_moved = true;
  is_batch_running_ = false;
  const GroupCut& cut = batches_[next_batch_ - 1].cut;
  for (size_t i = 0; i < cut.count; ++i) {
    are_finite_[cut.begin + i] = executor_.is_finite(i);
    if (executor_.is_finite(i)) ONEBIT_TRY(CheckHeld(calls_[i]));
  }
  Add(comm_.counters().codec_ns, executor_.codec_ns());
  return has_group_ended() ? UnstageGroup() : OkStatus();
}

// Until the last batch is over another rank may still fail: then no call of the group has happened,
// on any rank that can tell.
void Engine::FinishGroup(bool has_succeeded) {
  CommCounters& counters = comm_.counters();
  CountMessages();
  for (size_t index = 0; index < batches_.size(); ++index) {
    const GroupBatch& batch = batches_[index];
    TakeCounts(batch);
    for (size_t i = batch.cut.begin; i < batch.cut.begin + batch.cut.count; ++i) {
      const Request& request = requests_[i];
      if (has_succeeded) {
        const Plan& plan = PlanOf(batch, i - batch.cut.begin);
        onebit::Call call = CallOf(request, plan, nullptr);  // its packets are gone
        call.descriptor.sequence = batch.sequence;
        if (Status status = Settle(request, call, are_finite_[i] != 0); !status.ok()) {
          static_cast<void>(comm_.Fail(std::move(status)));
        }
        CountCall(request, plan);
      } else if (index < next_batch_ && request.compressor != nullptr) {
        request.compressor->compressor.DiscardFailed();  // others had written nothing yet
      }
    }
  }
  if (!has_succeeded) Add(counters.failed_calls, requests_.size());
  Add(counters.call_ns,
      static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now() - group_begin_).count()));
  batches_.clear();
  next_batch_ = 0;
  requests_ = originals_ = {};
}

}  // namespace onebit
