// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A thread's open group of NCCL, and the calls that wait for its end.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "plugins/nccl_preload/nccl_types.h"
#include "plugins/nccl_preload/preload_comm.h"
#include "plugins/nccl_preload/preload_session.h"
#include "plugins/nccl_preload/without_throwing.h"

namespace onebit::preload {

// A call in phases cannot run inside a group of NCCL, which launches nothing before its end. So
// calls that may be compressed wait, and are decided about when the group ends: those that are
// NCCL's are made then, before NCCL's group ends, and the others after it in a group of onebit. If
// the group has a collective that cannot be compressed, too, all of its communicator go to NCCL.
class OpenGroup {
 public:
  static OpenGroup& OfThisThread();

  bool is_open() const { return depth_ > 0; }
  void Begin() { ++depth_; }
  // Records a call that cannot be compressed. Messages do not count: the other ranks know nothing
  // of them, and must decide alike about the collectives of the group.
  void NoteOther(Comm native, Operation operation) {
    if (!IsPair(operation)) others_.insert(native);
  }
  // Takes a call that may be compressed.
  void Record(std::shared_ptr<PreloadComm> comm, Comm native, const DataCall& call,
              const CallOptions& options);

  // Ends one level. `end` is the call that ends it in NCCL.
  template <typename End>
  Result Finish(End end);
  // Ends one level as NCCL's estimate of it does: its calls are made by NCCL, which launches none
  // of them, and nothing is learned from them.
  Result Simulate();

 private:
  struct Recorded {
    std::shared_ptr<PreloadComm> comm;  // the program may abort `native` before the group ends
    Comm native;
    DataCall call;
    CallOptions options;
  };
  struct Own {
    Session::Route route;
    DataCall call;
  };

  Result Decide();
  bool MayStand(const Session::Route& route, const Recorded& recorded);
  Result ExchangeAll() const;
  Result CheckStreams() const;
  Result MakeOwn() const;
  // A call of the group has failed on this rank.
  void GiveUp() const;

  int depth_ = 0;
  std::set<Comm> others_;  // communicators with a collective that cannot be compressed
  std::vector<Recorded> recorded_;
  std::vector<Own> own_;                                       // made by this library
  std::map<std::pair<uint64_t, uint64_t>, uint32_t> tensors_;  // calls by communicator and tensor
  std::vector<Session::ScopeQuestion> exchanges_;
};

template <typename End>
Result OpenGroup::Finish(End end) {
  if (depth_ != 1) {
    if (depth_ > 0) --depth_;
    return end();
  }
  OpenGroup group = std::exchange(*this, OpenGroup());
  const Result decided = WithoutThrowing(
      "decide about an NCCL group", [&] { return group.Decide(); }, [&] { group.GiveUp(); });
  Result result = end();
  if (result == kSuccess) result = decided;
  if (result == kSuccess) result = group.ExchangeAll();
  if (result != kSuccess) return result;
  return WithoutThrowing(
      "make an NCCL group", [&] { return group.MakeOwn(); }, [&] { group.GiveUp(); });
}

}  // namespace onebit::preload
