// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/nccl_preload/open_group.h"

#include <cstdint>
#include <map>
#include <set>

#include "plugins/nccl_preload/linked_onebit.h"
#include "plugins/nccl_preload/real_calls.h"
#include "plugins/nccl_preload/real_nccl.h"

namespace onebit::preload {

OpenGroup& OpenGroup::OfThisThread() {
  static thread_local OpenGroup group;
  return group;
}

void OpenGroup::Record(Comm native, const DataCall& call, const CallOptions& options) {
  recorded_.push_back({.native = native, .call = call, .options = options});
  // The caller's configuration need not live as long, and asks for nothing but options.
  recorded_.back().call.config = nullptr;
}

Result OpenGroup::Simulate() {
  if (depth_ != 1) {
    if (depth_ > 0) --depth_;
    return kSuccess;
  }
  const OpenGroup group = std::exchange(*this, OpenGroup());
  Result first = kSuccess;
  for (const Recorded& each : group.recorded_) {
    const Result result = MakeRealCall(each.call, each.native);
    if (first == kSuccess) first = result;
  }
  return first;
}

// Makes the calls that go to NCCL.
Result OpenGroup::Decide() {
  Session& session = Session::Get();
  std::set<std::pair<uint64_t, uint64_t>> tensors;  // of own_: communicator, tensor
  Result first = kSuccess;
  for (const Recorded& each : recorded_) {
    Session::Route route = session.Choose(each.native, each.call, each.options);
    Result result = route.error;
    if (route.exchange.comm != nullptr) exchanges_.push_back(route.exchange);
    // The ranks of a message do not know what else the other's group has.
    const bool may_stand = IsPair(each.call.facts.operation) || !has_other_;
    if (route.comm != nullptr && may_stand &&
        (route.decision.may_repeat ||
         tensors.emplace(route.comm->number(), route.decision.tensor).second)) {
      own_.push_back({.route = std::move(route), .call = each.call});
      continue;
    }
    if (route.comm != nullptr) session.Count(*route.comm, each.call.facts, Reason::kForbidden);
    if (result == kSuccess) result = MakeRealCall(each.call, each.native);
    if (first == kSuccess) first = result;
  }
  return first;
}

// One thread may have several ranks, whose exchanges wait for each other.
Result OpenGroup::ExchangeAll() const {
  if (exchanges_.empty()) return kSuccess;
  static RealFunction<Result()> start("ncclGroupStart");
  static RealFunction<Result()> end("ncclGroupEnd");
  Result first = start();
  for (const Session::ScopeQuestion& each : exchanges_) {
    const Result begun =
        first == kSuccess ? each.comm->BeginScopeExchange(each.stream, each.holds) : first;
    if (first == kSuccess) first = begun;
  }
  const Result ended = end();
  if (first == kSuccess) first = ended;
  if (first != kSuccess) {
    for (const Session::ScopeQuestion& each : exchanges_) each.comm->GiveUp();
  }
  return first;
}

void OpenGroup::GiveUp() const {
  for (const Recorded& each : recorded_) Session::Get().GiveUp(each.native);
}

Result OpenGroup::MakeOwn() const {
  if (own_.empty()) return kSuccess;
  std::map<PreloadComm*, PreloadComm::Entered> entered;
  for (const Own& each : own_) {
    entered.try_emplace(each.route.comm.get(), *each.route.comm);
  }
  const LinkedOnebit& onebit = *LinkedOnebit::Get();
  Result first = NcclResultOf(onebit.group_start());
  if (first != kSuccess) return first;
  for (const Own& each : own_) {
    Session::Get().Count(*each.route.comm, each.call.facts, each.route.decision.reason);
    // The group of onebit must end.
    const Result result =
        WithoutThrowing([&] { return each.route.comm->Make(each.call, each.route.decision); },
                        [&] { each.route.comm->GiveUp(); });
    if (first == kSuccess) first = result;
  }
  const onebitResult_t end = onebit.group_end();
  Result ended = kSuccess;
  for (const auto& [comm, within] : entered) ended = comm->Settle(end);
  return first == kSuccess ? ended : first;
}

}  // namespace onebit::preload
