// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "exec/host_runner.h"

#include <algorithm>
#include <utility>

#include "base/guard.h"
#include "exec/engine.h"
#include "steps/held_check.h"

namespace onebit {
namespace {

// Limits the wait for events, because a silent peer sends none, and one of several communicators
// cannot see events of the others.
constexpr uint64_t kSingleWaitMs = 100;
constexpr uint64_t kSharedWaitMs = 1;

}  // namespace

// Reserves for a single call, so that the first call of a compressor allocates nothing.
HostRunner::HostRunner(Comm& comm, PlanCache& plans, CallLedger& ledger)
    : comm_(comm),
      plans_(plans),
      ledger_(ledger),
      executor_(comm),
      are_finite_(1),
      batches_(1),
      sequences_(1),
      calls_(1),
      digests_(1) {
  batches_.clear();
}

Status HostRunner::ReservePackets(const Plan& plan) {
  if (plan.packet_space_bytes <= packets_.size()) return OkStatus();
  ONEBIT_ASSIGN_OR_RETURN(packets_,
                          Memory::Create({}, nullptr, plan.packet_space_bytes, "packet space"));
  return OkStatus();
}

Status HostRunner::CheckThread() {
  const Status refusal = comm_.ranks() > 1 ? comm_.endpoint().Progress() : OkStatus();
  return refusal.code() == Code::kInvalidUsage ? refusal : OkStatus();
}

inline Status HostRunner::MakeProgress(bool* has_moved) {
  if (!is_batch_running_) StartBatch();
  ONEBIT_TRY(executor_.MakeProgress(has_moved));
  if (!executor_.is_done()) return OkStatus();
  *has_moved = true;
  is_batch_running_ = false;
  const GroupCut& cut = batches_[next_batch_ - 1].cut;
  for (size_t i = 0; i < cut.count; ++i) {
    are_finite_[cut.begin + i] = executor_.is_finite(i);
    if (executor_.is_finite(i)) ONEBIT_TRY(CheckHeld(&comm_, calls_[i], nullptr));
  }
  codec_ns_ += executor_.codec_ns();
  return OkStatus();
}

Status HostRunner::Run(std::span<GroupMember> members) {
  for (const GroupMember& member : members) member.engine->AwaitProxy();
  for (GroupMember& member : members) {
    ONEBIT_TRY(member.engine->host().Prepare(member.requests));
    member.status = OkStatus();
    member.has_ended = false;
  }
  for (size_t open = members.size(), next_member = 0; open != 0;) {
    bool has_moved = false;
    open = 0;
    GroupMember* last_open = nullptr;
    for (GroupMember& member : members) {
      if (member.has_ended) continue;
      HostRunner& runner = member.engine->host();
      Status status = CatchNoMemory([&] { return runner.MakeProgress(&has_moved); });
      if (!status.ok() || runner.has_ended()) {
        End(&member, std::move(status));
        has_moved = true;
        continue;
      }
      ++open;
      last_open = &member;
    }
    if (has_moved || open == 0) continue;
    if (open == 1) {
      WaitFor(last_open, kSingleWaitMs);
    } else if (GroupMember& next = members[next_member++ % members.size()]; !next.has_ended) {
      WaitFor(&next, kSharedWaitMs);
    }
  }
  for (GroupMember& member : members) {
    if (!member.status.ok()) return std::move(member.status);
  }
  return OkStatus();
}

void HostRunner::WaitFor(GroupMember* member, uint64_t timeout_ms) {
  HostExecutor& executor = member->engine->host().executor_;
  Status status = CatchNoMemory([&] { return executor.Wait(timeout_ms); });
  if (!status.ok()) End(member, std::move(status));
}

void HostRunner::End(GroupMember* member, Status status) {
  HostRunner& runner = member->engine->host();
  member->status = runner.Finish(std::move(status));
  member->outcome = runner.are_finite_[0] != 0 ? CallOutcome::kFinite : CallOutcome::kNonfinite;
  member->has_ended = true;
}

// Runs before sequence numbers are assigned: if it fails nothing was sent, and the calls can be
// made again.
Status HostRunner::Prepare(std::span<const CallRequest> requests) {
  requests_ = requests;
  next_batch_ = 0;
  is_batch_running_ = false;
  plans_.PlanBatches(requests_, &batches_);
  size_t most_calls = 0;
  size_t most_elements = 0;
  for (const PlannedBatch& batch : batches_) {
    const size_t calls = batch.cut.count;
    plans_.TakeCounts(requests_[batch.cut.begin]);
    executor_.Reserve(batch.whole(), calls);
    ONEBIT_TRY(ReservePackets(batch.whole()));
    most_calls = std::max(most_calls, calls);
    for (size_t i = 0; i < calls; ++i) {
      most_elements = std::max(most_elements, batch.PlanOf(i).tensor_elements);
    }
  }
  calls_.resize(std::max(calls_.size(), most_calls));
  are_finite_.assign(requests.size(), 1);
  sequences_.assign(batches_.size(), 0);
  ONEBIT_TRY(executor_.StartThreads(most_elements));
  ONEBIT_TRY(CheckThread());
  codec_ns_ = 0;
  begin_ = std::chrono::steady_clock::now();
  return OkStatus();
}

// The messages of a single call follow its own plan and name the call; those of several follow the
// group's plan.
void HostRunner::StartBatch() {
  const PlannedBatch& batch = batches_[next_batch_];
  const auto requests = requests_.subspan(batch.cut.begin, batch.cut.count);
  if (batches_.size() > 1) plans_.TakeCounts(requests[0]);  // other batches have set theirs since
  for (size_t i = 0; i < requests.size(); ++i) {
    const size_t offset = batch.plan != nullptr ? 0 : batch.group->packets[i];
    calls_[i] = CallOf(requests[i], batch.PlanOf(i), comm_, packets_.data() + offset);
  }
  const auto calls = std::span(calls_).first(requests.size());
  const uint64_t sequence = ledger_.Number(batch.whole(), calls);
  sequences_[next_batch_++] = sequence;
  Batch run = BatchOf(batch.whole(), calls, sequence, &digests_, comm_);
  run.packets = packets_.data();
  executor_.Start(run);
  is_batch_running_ = true;
}

// Until the last batch has ended another rank may still fail. In that case no call of the group
// counts as done on any rank that hears of the failure.
Status HostRunner::Finish(Status status) {
  const bool has_succeeded = status.ok();
  if (!has_succeeded && is_batch_running_) status = executor_.Fail(status);
  ledger_.CountMessages();
  for (size_t index = 0; index < batches_.size(); ++index) {
    const PlannedBatch& batch = batches_[index];
    if (batches_.size() > 1) plans_.TakeCounts(requests_[batch.cut.begin]);
    for (size_t i = 0; i < batch.cut.count; ++i) {
      const size_t number = batch.cut.begin + i;
      Call call =
          CallOf(requests_[number], batch.PlanOf(i), comm_, nullptr);  // needs no packets any more
      call.descriptor.sequence = sequences_[index];
      const CallOutcome outcome =
          has_succeeded ? are_finite_[number] != 0 ? CallOutcome::kFinite : CallOutcome::kNonfinite
          : index < next_batch_ ? CallOutcome::kFailed
                                : CallOutcome::kNotBegun;
      ledger_.End(requests_[number], call, outcome);
    }
  }
  ledger_.CountTime(codec_ns_, begin_);
  batches_.clear();
  next_batch_ = 0;
  is_batch_running_ = false;
  requests_ = {};
  return status;
}

}  // namespace onebit
