// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "exec/run_calls.h"

#include <algorithm>
#include <cstddef>

#include "base/nvtx_range.h"

namespace onebit {
namespace {

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

}  // namespace

Status RunCalls(std::span<GroupMember> members, bool are_entered) {
  const NvtxRange range(NameOf(members[0].requests[0].collective));
  EnteredComms entered(members);
  ONEBIT_TRY(CheckAlike(members));
  if (!are_entered) ONEBIT_TRY(entered.Enter());
  return members[0].engine->RunnerFor(members[0].requests[0].location).Run(members);
}

}  // namespace onebit
