// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/nccl_preload/open_group.h"

#include <chrono>

#include "plugins/nccl_preload/linked_onebit.h"
#include "plugins/nccl_preload/real_nccl.h"
#include "plugins/nccl_preload/real_reductions.h"

namespace onebit::preload {

OpenGroup& OpenGroup::OfThisThread() {
  static thread_local OpenGroup group;
  return group;
}

bool OpenGroup::Defer(const Session::Route& route, Comm native, const Reduction& call) {
  if (!tensors_.emplace(route.comm->number(), route.decision.tensor).second) return false;
  deferred_.push_back({.route = route, .native = native, .call = call});
  // The caller's configuration need not live as long, and asks for nothing but options.
  deferred_.back().call.config = nullptr;
  return true;
}

void OpenGroup::Exchange(const Session::ScopeQuestion& question) {
  if (is_open()) {
    exchanges_.push_back(question);
  } else {
    question.comm->BeginScopeExchange(question.stream, question.holds);
  }
}

// One thread may have several ranks, whose exchanges wait for each other.
Result OpenGroup::ExchangeAll() const {
  if (exchanges_.empty()) return kSuccess;
  static RealFunction<Result()> start("ncclGroupStart");
  static RealFunction<Result()> end("ncclGroupEnd");
  const Result started = start();
  if (started != kSuccess) return started;
  for (const Session::ScopeQuestion& each : exchanges_) {
    each.comm->BeginScopeExchange(each.stream, each.holds);
  }
  return end();
}

void OpenGroup::Drop() {
  if (depth_ > 1) {
    --depth_;
  } else {
    *this = OpenGroup();
  }
}

Result OpenGroup::PassAll(const std::vector<Deferred>& calls) {
  Result first = kSuccess;
  for (const Deferred& each : calls) {
    Session::Get().Count(*each.route.comm, each.call.facts, Reason::kForbidden);
    const Result result = MakeRealReduction(each.call, each.native);
    if (first == kSuccess) first = result;
  }
  return first;
}

Result OpenGroup::CompressAll(const std::vector<Deferred>& calls) {
  if (calls.empty()) return kSuccess;
  const auto begin = std::chrono::steady_clock::now();
  const LinkedOnebit& onebit = *LinkedOnebit::Get();
  Result first = NcclResultOf(onebit.group_start());
  if (first != kSuccess) return first;
  for (const Deferred& each : calls) {
    Session::Get().Count(*each.route.comm, each.call.facts, Reason::kCompressed);
    const Result result = each.route.comm->Compress(each.call, each.route.decision);
    if (first == kSuccess) first = result;
  }
  const Result ended = NcclResultOf(onebit.group_end());
  calls[0].route.comm->CountHostTime(std::chrono::steady_clock::now() - begin);
  return first == kSuccess ? ended : first;
}

}  // namespace onebit::preload
