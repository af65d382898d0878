// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/nccl_preload/open_group.h"

#include "plugins/nccl_preload/linked_onebit.h"
#include "plugins/nccl_preload/preload_log.h"
#include "plugins/nccl_preload/real_calls.h"
#include "plugins/nccl_preload/real_nccl.h"

namespace onebit::preload {

OpenGroup& OpenGroup::OfThisThread() {
  static thread_local OpenGroup group;
  return group;
}

void OpenGroup::Record(std::shared_ptr<PreloadComm> comm, Comm native, const DataCall& call,
                       const CallOptions& options) {
  recorded_.push_back(
      {.comm = std::move(comm), .native = native, .call = call, .options = options});
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
  Result first = kSuccess;
  for (const Recorded& each : recorded_) {
    if (!each.comm->can_compress()) {  // another thread has aborted it
      first = kRemoteError;
      continue;
    }
    Session::Route route = session.Choose(each.comm, each.call, each.options);
    Result result = route.error;
    if (route.exchange.comm != nullptr) exchanges_.push_back(route.exchange);
    if (MayStand(route, each)) {
      own_.push_back({.route = std::move(route), .call = each.call});
      continue;
    }
    if (route.comm != nullptr) session.Count(*route.comm, each.call.facts, Reason::kForbidden);
    if (result == kSuccess) result = MakeRealCall(each.call, each.native);
    if (first == kSuccess) first = result;
  }
  return first;
}

// True if this library makes the call. A tensor has one call in a group, unless it keeps no state.
bool OpenGroup::MayStand(const Session::Route& route, const Recorded& recorded) {
  if (route.comm == nullptr) return false;
  if (IsPair(recorded.call.facts.operation)) return true;
  if (others_.contains(recorded.native)) return false;
  uint32_t& calls = tensors_[{route.comm->number(), route.decision.tensor}];
  return calls++ < (route.decision.may_repeat ? kSlots : 1);
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
  for (const Recorded& each : recorded_) each.comm->GiveUp();
}

// NCCL lets the calls of a communicator use several streams, onebit does not. Other ranks may use
// one, so this must not go unnoticed.
Result OpenGroup::CheckStreams() const {
  std::map<PreloadComm*, Stream> streams;
  for (const Own& each : own_) {
    PreloadComm& comm = *each.route.comm;
    const auto [known, is_first] = streams.try_emplace(&comm, each.call.stream);
    if (known->second == each.call.stream) continue;
    Log(LogLevel::kWarn,
        "NCCL communicator \"%.*s\": a group has compressed calls or messages on several streams: "
        "use one stream for them, or several groups",
        static_cast<int>(comm.facts().name.size()), comm.facts().name.data());
    GiveUp();
    return kInvalidUsage;
  }
  return kSuccess;
}

Result OpenGroup::MakeOwn() const {
  if (own_.empty()) return kSuccess;
  if (const Result checked = CheckStreams(); checked != kSuccess) return checked;
  std::map<PreloadComm*, PreloadComm::Entered> entered;
  for (const Own& each : own_) entered.try_emplace(each.route.comm.get(), *each.route.comm);
  const LinkedOnebit& onebit = *LinkedOnebit::Get();
  Result first = NcclResultOf(onebit.group_start());
  if (first != kSuccess) return first;
  for (const Own& each : own_) {
    Session::Get().Count(*each.route.comm, each.call.facts, each.route.decision.reason);
    // The group of onebit must end.
    const Result result = WithoutThrowing(
        "make an NCCL call", [&] { return each.route.comm->Make(each.call, each.route.decision); },
        [&] { each.route.comm->GiveUp(); });
    if (first == kSuccess) first = result;
  }
  const onebitResult_t end = onebit.group_end();
  Result ended = kSuccess;
  for (const auto& [comm, within] : entered) ended = comm->Settle(end);
  return first == kSuccess ? ended : first;
}

}  // namespace onebit::preload
