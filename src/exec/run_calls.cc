// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "exec/run_calls.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/guard.h"
#include "base/nvtx_range.h"
#include "exec/stream_engine.h"

namespace onebit {
namespace {

// Limits the wait for events, because a silent peer sends none, and one of several communicators
// cannot see events of the others.
constexpr uint64_t kSingleWaitMs = 100;
constexpr uint64_t kSharedWaitMs = 1;

// True if the calls are enqueued on a CUDA stream, or run from there.
bool IsOnStream(const GroupMember& member) {
  return member.engine->is_stream_ordered() || member.requests[0].location.is_device();
}

// Enters communicators, and exits them at the end of the scope.
class EnteredComms {
 public:
  explicit EnteredComms(std::span<GroupMember> members) : members_(members) {}
  ~EnteredComms() {
    for (size_t i = 0; i < entered_; ++i) members_[i].engine->comm().Exit();
  }
  EnteredComms(const EnteredComms&) = delete;
  EnteredComms& operator=(const EnteredComms&) = delete;

  Status Enter() {
    for (const GroupMember& member : members_) {
      Comm& comm = member.engine->comm();
      const auto is_of_same_group = [&](const GroupMember& other) {
        return other.engine->comm().id() == comm.id();
      };
      const auto ranks_here = std::count_if(members_.begin(), members_.end(), is_of_same_group);
      // Calls on streams do not block, so ranks of this process may share the thread.
      ONEBIT_TRY(comm.Enter(IsOnStream(member) ? comm.ranks() : static_cast<int>(ranks_here)));
      ++entered_;
    }
    return OkStatus();
  }

 private:
  std::span<GroupMember> members_;
  size_t entered_ = 0;
};

void End(GroupMember* member, Status status) {
  member->status = member->engine->Finish(std::move(status));
  member->outcome = member->engine->outcome();
  member->has_ended = true;
}

void WaitFor(GroupMember* member, uint64_t timeout_ms) {
  Status status = CatchNoMemory([&] { return member->engine->Wait(timeout_ms); });
  if (!status.ok()) End(member, std::move(status));
}

// One thread can drive communicators of several transports, but not in one group.
Status CheckAlike(std::span<const GroupMember> members) {
  const bool is_stream_ordered = members[0].engine->is_stream_ordered();
  for (const GroupMember& member : members) {
    if (member.engine->is_stream_ordered() == is_stream_ordered) continue;
    return Error(Code::kInvalidUsage,
                 "the calls of a group are on communicators of transports that differ: make one "
                 "group for nccl and one for the others");
  }
  return OkStatus();
}

// Enqueues calls on streams. All are in progress when this returns.
Status EnqueueCalls(std::span<GroupMember> members) {
  StreamEngine& first = *members[0].engine->stream();
  if (members.size() == 1) return first.Run(members[0].requests);
  std::vector<StreamEngine*>& engines = first.ScratchForEngines();
  engines.clear();
  for (const GroupMember& member : members) {
    engines.push_back(member.engine->stream());
    ONEBIT_TRY(engines.back()->Prepare(member.requests));
  }
  return StreamEngine::EnqueueAll(engines);
}

// The same over host transports.
Status EnqueueOnProxies(std::span<GroupMember> members) {
  std::vector<HostProxy*>& proxies = members[0].engine->proxy()->ScratchForProxies();
  proxies.clear();
  for (const GroupMember& member : members) {
    proxies.push_back(member.engine->proxy());
    ONEBIT_TRY(proxies.back()->Prepare(member.requests));
  }
  return HostProxy::EnqueueAll(proxies);
}

}  // namespace

Status RunCalls(std::span<GroupMember> members, bool are_entered) {
  const NvtxRange range(NameOf(members[0].requests[0].collective));
  EnteredComms entered(members);
  ONEBIT_TRY(CheckAlike(members));
  if (!are_entered) ONEBIT_TRY(entered.Enter());
  if (members[0].engine->is_stream_ordered()) return EnqueueCalls(members);
  if (IsOnStream(members[0])) return EnqueueOnProxies(members);
  for (const GroupMember& member : members) member.engine->AwaitProxy();
  for (GroupMember& member : members) {
    ONEBIT_TRY(member.engine->Prepare(member.requests));
    member.status = OkStatus();
    member.has_ended = false;
  }
  for (size_t open = members.size(), next_member = 0; open != 0;) {
    bool has_moved = false;
    open = 0;
    GroupMember* last_open = nullptr;
    for (GroupMember& member : members) {
      if (member.has_ended) continue;
      Status status = CatchNoMemory([&] { return member.engine->MakeProgress(&has_moved); });
      if (!status.ok() || member.engine->has_ended()) {
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

}  // namespace onebit
