// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/nccl_preload/open_group.h"

#include <cstring>

#include "plugins/nccl_preload/linked_onebit.h"
#include "plugins/nccl_preload/real_reductions.h"

namespace onebit::preload {

OpenGroup& OpenGroup::OfThisThread() {
  static thread_local OpenGroup group;
  return group;
}

bool OpenGroup::Defer(const Session::Route& route, Comm native, const Reduction& call) {
  if (!tensors_.emplace(route.comm->number(), route.decision.tensor).second) return false;
  deferred_.push_back({.route = route, .native = native, .call = call});
  return true;
}

void OpenGroup::NoteNew(Comm* made, const Config* config) {
  New added{.made = made, .config = {}};
  if (config != nullptr && config->size >= sizeof(Config)) {
    const auto* const bytes = reinterpret_cast<const char*>(config);
    added.config.assign(bytes, bytes + sizeof(Config));
  }
  new_.push_back(std::move(added));
}

void OpenGroup::Drop() { *this = OpenGroup(); }

// A thread that makes several communicators at once has several devices, whose ranks would wait for
// each other in it: their calls go to NCCL.
void OpenGroup::AddAll(const std::vector<New>& comms) {
  if (comms.size() != 1) return;
  Config config{};
  const std::vector<char>& bytes = comms[0].config;
  if (!bytes.empty()) std::memcpy(&config, bytes.data(), sizeof config);
  Session::Get().Add(*comms[0].made, bytes.empty() ? nullptr : &config);
}

Result OpenGroup::PassAll(const std::vector<Deferred>& calls) {
  Result first = kSuccess;
  for (const Deferred& each : calls) {
    const Result result = MakeRealReduction(each.call, each.native);
    if (first == kSuccess) first = result;
  }
  return first;
}

Result OpenGroup::CompressAll(const std::vector<Deferred>& calls) {
  if (calls.empty()) return kSuccess;
  const LinkedOnebit& onebit = *LinkedOnebit::Get();
  Result first = NcclResultOf(onebit.group_start());
  if (first != kSuccess) return first;
  for (const Deferred& each : calls) {
    const Result result = each.route.comm->Compress(each.call, each.route.decision);
    if (first == kSuccess) first = result;
  }
  const Result ended = NcclResultOf(onebit.group_end());
  return first == kSuccess ? ended : first;
}

}  // namespace onebit::preload
