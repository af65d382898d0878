// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A thread's open group of NCCL, and the calls that wait for its end.
#pragma once

#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "plugins/nccl_preload/nccl_types.h"
#include "plugins/nccl_preload/preload_comm.h"
#include "plugins/nccl_preload/preload_session.h"

namespace onebit::preload {

// A call in phases cannot run inside a group of NCCL, which launches nothing before its end. So
// calls to be compressed wait; once NCCL's group has ended they are made in a group of onebit. If
// other calls than reductions are in the group too, all go to NCCL.
class OpenGroup {
 public:
  static OpenGroup& OfThisThread();

  void Begin() { ++depth_; }
  bool is_open() const { return depth_ > 0; }
  // True if the group would end now.
  bool is_outermost() const { return depth_ == 1; }

  // Another call than a reduction.
  void NoteOther() { has_other_ = true; }
  // Takes a call that waits. False if one of its tensor does already: a group has one for each.
  bool Defer(const Session::Route& route, Comm native, const Reduction& call);
  // A communicator to be made at the end, in `*made`.
  void NoteNew(Comm* made, const Config* config);

  // The end of the outermost group. `end` is that of NCCL's.
  template <typename End>
  Result Finish(End end);
  // Drops what waits, because the group ends without its calls.
  void Drop();
  void EndInner() { --depth_; }

 private:
  struct Deferred {
    Session::Route route;
    Comm native;
    Reduction call;
  };
  struct New {
    Comm* made;
    std::vector<char> config;  // its bytes
  };

  static Result CompressAll(const std::vector<Deferred>& calls);
  static Result PassAll(const std::vector<Deferred>& calls);
  static void AddAll(const std::vector<New>& comms);

  int depth_ = 0;
  bool has_other_ = false;
  std::vector<Deferred> deferred_;
  std::set<std::pair<uint64_t, uint64_t>> tensors_;  // of deferred_: communicator, tensor
  std::vector<New> new_;
};

template <typename End>
Result OpenGroup::Finish(End end) {
  const OpenGroup group = std::exchange(*this, OpenGroup());
  if (group.has_other_ && !group.deferred_.empty()) {
    const Result passed = PassAll(group.deferred_);
    const Result ended = end();
    return passed == kSuccess ? ended : passed;
  }
  const Result ended = end();
  if (ended != kSuccess) return ended;
  AddAll(group.new_);
  return CompressAll(group.deferred_);
}

}  // namespace onebit::preload
