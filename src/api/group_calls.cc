// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "api/group_calls.h"

#include <algorithm>
#include <iterator>
#include <memory>

#include "api/call.h"
#include "base/guard.h"

namespace onebit {

Group& Group::OfThisThread() {
  thread_local Group group;  // NOLINT: NCCL's groups are those of a thread
  return group;
}

Status Group::Start() {
  ++GroupDepth();
  return OkStatus();
}

Status Group::End() {
  if (GroupDepth() == 0) {
    return Error(Code::kInvalidUsage,
                 "onebitGroupEnd without onebitGroupStart: this thread is in no group");
  }
  if (--GroupDepth() != 0) return OkStatus();
  struct Clearing {
    Group& group;
    ~Clearing() { group.Clear(); }
  } const clearing{*this};
  if (!error_.ok()) return error_;
  if (used_parts_ == 0) return OkStatus();
  for (size_t i = 0; i < used_parts_; ++i) {
    ONEBIT_TRY(CheckHandle(parts_[i].comm, "comm"));  // the group may be the parent's
    ONEBIT_TRY(ArrangePairs(&parts_[i]));
  }
  const Part& first = parts_[0];
  if (!first.comm->engine.is_stream_ordered() && !first.location.is_device()) {
    return first.stream == nullptr ? Run() : Enqueue();
  }
  Status status = EnqueueOnDevice();
  for (const GroupMember& member : members_) {
    static_cast<void>(FailOnDeviceError(member.engine->comm(), status));
  }
  return status;
}

Status Group::ArrangePairs(Part* part) {
  const auto rank = static_cast<uint32_t>(part->comm->comm->rank());
  std::vector<CallRequest>& pairs = part->pairs;
  // The next call of this rank with itself, from `index` on.
  const auto next = [&](size_t index, bool is_receive) {
    while (index < pairs.size() &&
           (pairs[index].root != rank || pairs[index].is_receive != is_receive)) {
      ++index;
    }
    return index;
  };
  size_t send = next(0, false);
  size_t receive = next(0, true);
  for (; send < pairs.size() && receive < pairs.size();
       send = next(send + 1, false), receive = next(receive + 1, true)) {
    const CallRequest& sent = pairs[send];
    if (sent.count != pairs[receive].count || sent.type != pairs[receive].type) {
      return Error(
          Code::kInvalidArgument, "rank {} sends itself {} {}, but receives {} {} with that call",
          rank, sent.count, NameOf(sent.type), pairs[receive].count, NameOf(pairs[receive].type));
    }
    const size_t bytes = sent.count * kernels::BytesOf(sent.type);
    const auto from = reinterpret_cast<uintptr_t>(sent.sendbuff);
    const auto to = reinterpret_cast<uintptr_t>(pairs[receive].recvbuff);
    if (from != to && from < to + bytes && to < from + bytes) {
      return Error(Code::kInvalidArgument,
                   "rank {} sends itself a buffer that overlaps the one it receives into, but is "
                   "not equal to it: pass one buffer for both, or two separate ones",
                   rank);
    }
    pairs[receive].sendbuff = sent.sendbuff;
  }
  if (send < pairs.size() || receive < pairs.size()) {
    return Error(
        Code::kInvalidUsage, "the group has a {} of rank {} with itself without a {}: add it",
        send < pairs.size() ? "send" : "receive", rank, send < pairs.size() ? "receive" : "send");
  }
  std::ranges::move(pairs, std::back_inserter(part->requests));
  return OkStatus();
}

void Group::NoteMembers() {
  members_.clear();
  for (size_t i = 0; i < used_parts_; ++i) {
    const Part& part = parts_[i];
    members_.push_back({.engine = &part.comm->engine, .requests = part.requests});
  }
}

Status Group::Run() {
  NoteMembers();
  return RunCalls(members_);
}

// Calls of a group that run on a stream, with everything they hold until then.
struct Group::Queued {
  std::vector<PendingTicket> pending;  // of every communicator and compressor
  Group group;                         // last: its compressors are released first
};

Result<std::unique_ptr<Group::Queued>> Group::Queue(HostStream* thread) {
  auto queued = std::make_unique<Queued>();
  const auto begin = [&](onebitComm_t comm, onebitCompressor_t compressor) -> Status {
    ONEBIT_ASSIGN_OR_RETURN(PendingTicket pending, PendingTicket::Begin(comm, compressor, thread));
    queued->pending.push_back(std::move(pending));
    return OkStatus();
  };
  for (size_t i = 0; i < used_parts_; ++i) {
    const Part& part = parts_[i];
    ONEBIT_TRY(begin(part.comm, nullptr));
    for (const onebitCompressor_t compressor : part.compressors) {
      ONEBIT_TRY(begin(part.comm, compressor));
    }
  }
  std::swap(queued->group.parts_, parts_);
  queued->group.used_parts_ = std::exchange(used_parts_, 0);
  return queued;
}

Status Group::Enqueue() {
  ONEBIT_ASSIGN_OR_RETURN(HostStream* const stream, FindStream(parts_[0].stream));
  ONEBIT_ASSIGN_OR_RETURN(auto queued, Queue(stream));
  return stream->Enqueue(HostStream::AfterFailure::kRun,
                         [queued = std::move(queued)]() -> Status { return queued->group.Run(); });
}

Status Group::EnqueueOnDevice() {
  NoteMembers();
  for (size_t i = 0; i < used_parts_; ++i) {
    if (parts_[i].location.is_device()) {
      ONEBIT_TRY(UseDeviceOf(parts_[i].comm, parts_[i].location));
    }
  }
  return RunCalls(members_);
}

void Group::Clear() {
  for (size_t i = 0; i < used_parts_; ++i) {
    parts_[i].comm = nullptr;
    parts_[i].requests.clear();
    parts_[i].pairs.clear();
    parts_[i].uses.clear();
    parts_[i].compressors.clear();
  }
  used_parts_ = 0;
  members_.clear();
  error_ = OkStatus();
}

Status Group::CheckTarget(const ApiCall& call) const {
  for (size_t part = 0; part < used_parts_; ++part) ONEBIT_TRY(CheckStream(call, parts_[part]));
  if (call.is_blocking() || call.request.location.is_device()) {
    ONEBIT_TRY(CheckNonePending(call.comm->pending, "communicator"));
  } else {
    ONEBIT_TRY(FindStream(call.request.stream).status());
  }
  if (call.compressor == nullptr) return OkStatus();
  ONEBIT_TRY(CheckNotUsed(call.compressor));
  return CheckNonePending(call.compressor->pending, "compressor");
}

// With stream-ordered messages each communicator has its own stream, because one thread may drive
// several devices.
Status Group::CheckStream(const ApiCall& call, const Part& part) {
  if (call.comm != part.comm && call.comm->engine.is_stream_ordered() &&
      part.comm->engine.is_stream_ordered()) {
    return OkStatus();
  }
  if (call.comm->engine.is_stream_ordered() != part.comm->engine.is_stream_ordered()) {
    return Error(Code::kInvalidUsage,
                 "the calls of a group use transport nccl and another one: make two "
                 "groups");
  }
  if (call.request.stream != part.stream) {
    return Error(Code::kInvalidUsage,
                 "the calls of a group have different streams: give all of them the same one");
  }
  if (call.request.location == part.location) return OkStatus();
  return Error(Code::kInvalidUsage, "the calls of a group work on {} and on {}: make two groups",
               Describe(part.location), Describe(call.request.location));
}

Status Group::Add(ApiCall&& call, std::optional<CompressorUse> use) {
  ONEBIT_TRY(call.comm->comm->CheckUsable());
  Part& part = PartOf(call.comm);
  if (use.has_value()) {
    part.uses.push_back(*std::move(use));
    part.compressors.push_back(call.compressor);
  }
  const bool is_pair = call.request.collective == Collective::kSendRecv;
  part.stream = call.request.stream;
  part.location = call.request.location;
  (is_pair ? part.pairs : part.requests).push_back(std::move(call.request));
  return OkStatus();
}

Group::Part& Group::PartOf(onebitComm_t comm) {
  for (size_t i = 0; i < used_parts_; ++i) {
    if (parts_[i].comm == comm) return parts_[i];
  }
  if (used_parts_ == parts_.size()) parts_.emplace_back();
  Part& part = parts_[used_parts_++];
  part.comm = comm;
  return part;
}

bool Group::Has(onebitComm_t comm) const {
  return std::any_of(parts_.begin(), parts_.begin() + static_cast<std::ptrdiff_t>(used_parts_),
                     [comm](const Part& part) { return part.comm == comm; });
}

Status Group::CheckNotUsed(onebitCompressor_t compressor) const {
  if (!compressor->is_in_use.load(std::memory_order_acquire)) return OkStatus();
  for (size_t i = 0; i < used_parts_; ++i) {
    const std::vector<onebitCompressor_t>& used = parts_[i].compressors;
    if (std::ranges::find(used, compressor) == used.end()) continue;
    return Error(Code::kInvalidUsage,
                 "the compressor of tensor {} already has a call in this group: each tensor needs "
                 "a compressor of its own",
                 compressor->planned.compressor.config().tensor_id);
  }
  return OkStatus();
}

}  // namespace onebit

onebitResult_t onebitGroupStart(void) {
  return onebit::Guard([] { return onebit::Group::OfThisThread().Start(); });
}

onebitResult_t onebitGroupEnd(void) {
  return onebit::Guard([] { return onebit::Group::OfThisThread().End(); });
}
