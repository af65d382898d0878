// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/group_run.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace onebit {
namespace {

// As in a single call, where a rank waits for one communicator. With several, news may come to any
// of them.
constexpr uint64_t kWaitAloneMs = 100;
constexpr uint64_t kWaitInTurnMs = 1;

// Leaves what was entered.
class Entrance {
 public:
  explicit Entrance(std::span<GroupMember> members) : members_(members) {}
  ~Entrance() {
    for (size_t i = 0; i < entered_; ++i) members_[i].comm->Exit();
  }
  Entrance(const Entrance&) = delete;
  Entrance& operator=(const Entrance&) = delete;

  Status Enter() {
    for (const GroupMember& member : members_) {
      const auto is_of_same_group = [&](const GroupMember& other) {
        return other.comm->id() == member.comm->id();
      };
      const auto ranks_here = std::count_if(members_.begin(), members_.end(), is_of_same_group);
      // Nothing blocks on a stream: other ranks need no thread of their own.
      const bool is_enqueued = member.engine->is_stream_ordered();
      ONEBIT_TRY(
          member.comm->Enter(is_enqueued ? member.comm->ranks() : static_cast<int>(ranks_here)));
      ++entered_;
    }
    return OkStatus();
  }

 private:
  std::span<GroupMember> members_;
  size_t entered_ = 0;
};

void End(GroupMember* member, Status status) {
  member->engine->FinishGroup(status.ok());
  member->status = std::move(status);
  member->has_ended = true;
}

void WaitFor(GroupMember* member, uint64_t timeout_ms) {
  if (Status status = member->engine->WaitGroup(timeout_ms); !status.ok()) {
    End(member, std::move(status));
  }
}

// Calls that are enqueued on streams: all are under way when this returns.
Status EnqueueGroup(std::span<GroupMember> members) {
  std::vector<Engine*>& engines = members[0].engine->ScratchForEngines();
  engines.clear();
  for (const GroupMember& member : members) {
    if (!member.engine->is_stream_ordered()) {
      return Error(Code::kInvalidUsage,
                   "the calls of a group are on communicators of transports that differ: make one "
                   "group for nccl and one for the others");
    }
    engines.push_back(member.engine);
  }
  Entrance entrance(members);
  ONEBIT_TRY(entrance.Enter());
  if (members.size() == 1) return members[0].engine->RunOnStream(members[0].requests);
  for (const GroupMember& member : members) {
    ONEBIT_TRY(member.engine->PrepareStream(member.requests));
  }
  return Engine::EnqueueAll(engines);
}

}  // namespace

Status RunGroup(std::span<GroupMember> members) {
  const bool is_stream_ordered = std::ranges::any_of(
      members, [](const GroupMember& member) { return member.engine->is_stream_ordered(); });
  if (is_stream_ordered) return EnqueueGroup(members);
  Entrance entrance(members);
  ONEBIT_TRY(entrance.Enter());
  for (GroupMember& member : members) {
    ONEBIT_TRY(member.engine->PrepareGroup(member.requests));
    member.status = OkStatus();
    member.has_ended = false;
  }
  for (size_t open = members.size(), turn = 0; open != 0;) {
    bool has_moved = false;
    open = 0;
    GroupMember* last_open = nullptr;
    for (GroupMember& member : members) {
      if (member.has_ended) continue;
      Status status = member.engine->GoGroup(&has_moved);
      if (!status.ok() || member.engine->has_group_ended()) {
        End(&member, std::move(status));
        has_moved = true;
        continue;
      }
      ++open;
      last_open = &member;
    }
    if (has_moved || open == 0) continue;
    if (open == 1) {
      WaitFor(last_open, kWaitAloneMs);
    } else if (GroupMember& next = members[turn++ % members.size()]; !next.has_ended) {
      WaitFor(&next, kWaitInTurnMs);
    }
  }
  for (GroupMember& member : members) {
    if (!member.status.ok()) return member.status;
  }
  return OkStatus();
}

}  // namespace onebit
