// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A thread's open group of NCCL, and the calls that wait for its end.
#pragma once

#include <cstdint>
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

  bool is_open() const { return depth_ > 0; }
  void Begin() { ++depth_; }
  // Records another call than a reduction.
  void NoteOther() { has_other_ = true; }
  // Begins an exchange between ranks, or takes it until the group has ended.
  void Exchange(const Session::ScopeQuestion& question);
  // Takes a call that waits. False if the group has a call of its tensor already.
  bool Defer(const Session::Route& route, Comm native, const Reduction& call);

  // Ends one level. `end` is the call that ends it in NCCL.
  template <typename End>
  Result Finish(End end);
  // Ends one level without making its calls.
  void Drop();

 private:
  struct Deferred {
    Session::Route route;
    Comm native;
    Reduction call;
  };

  static Result CompressAll(const std::vector<Deferred>& calls);
  static Result PassAll(const std::vector<Deferred>& calls);
  Result ExchangeAll() const;

  int depth_ = 0;
  bool has_other_ = false;
  std::vector<Deferred> deferred_;
  std::vector<Session::ScopeQuestion> exchanges_;
  std::set<std::pair<uint64_t, uint64_t>> tensors_;  // of deferred_: communicator, tensor
};

template <typename End>
Result OpenGroup::Finish(End end) {
  if (depth_ != 1) {
    if (depth_ > 0) --depth_;
    return end();
  }
  const OpenGroup group = std::exchange(*this, OpenGroup());
  const Result passed = group.has_other_ ? PassAll(group.deferred_) : kSuccess;
  Result result = end();
  if (result == kSuccess) result = group.ExchangeAll();
  if (result == kSuccess && !group.has_other_) result = CompressAll(group.deferred_);
  return passed == kSuccess ? result : passed;
}

}  // namespace onebit::preload
