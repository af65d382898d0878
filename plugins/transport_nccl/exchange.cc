// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// One group of NCCL for the exchanges of one or several ranks.
#include "plugins/transport_nccl/exchange.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace onebit::nccl {

void Exchange::CountSends() {
  uint64_t bytes = bytes_sent();
  uint64_t count = messages_sent();
  for (const Operation& operation : operations_) {
    if (operation.kind != Operation::Kind::kSend) continue;
    bytes += operation.count;
    ++count;
  }
  bytes_sent_.store(bytes, std::memory_order_relaxed);
  messages_sent_.store(count, std::memory_order_relaxed);
}

// One start of exchanges that have something to do.
class JointStart {
 public:
  explicit JointStart(std::span<Exchange* const> exchanges) : exchanges_(exchanges) {}

  onebitResult_t Run() {
    const onebitResult_t result = Hold(0);
    if (result != onebitSuccess) return result;
    for (Exchange* exchange : exchanges_) exchange->CountSends();
    return onebitSuccess;
  }

 private:
  static bool IsEmpty(Exchange* exchange) { return exchange->operations().empty(); }

  // Uses the communicators from this one on, then starts all.
  onebitResult_t Hold(size_t next) {
    while (next < exchanges_.size() && (IsEmpty(exchanges_[next]) || IsHeld(next))) ++next;
    if (next == exchanges_.size()) return Start();
    return exchanges_[next]->communicator().Use([&](CommHandle) { return Hold(next + 1); });
  }
  // A communicator may have several endpoints.
  bool IsHeld(size_t index) const {
    const auto is_same = [&](Exchange* before) {
      return !IsEmpty(before) && &before->communicator() == &exchanges_[index]->communicator();
    };
    return std::any_of(exchanges_.begin(), exchanges_.begin() + static_cast<std::ptrdiff_t>(index),
                       is_same);
  }

  onebitResult_t Start() {
    const auto first = std::find_if_not(exchanges_.begin(), exchanges_.end(), IsEmpty);
    if (first == exchanges_.end()) return onebitSuccess;
    const NcclApi& nccl = (*first)->communicator().api();
    int code = nccl.GroupStart();
    if (code != kSuccess) return FinishAll("ncclGroupStart", code);
    const char* what = "";
    for (Exchange* exchange : exchanges_) {
      if (!IsEmpty(exchange)) code = Give(*exchange, &what);
      if (code != kSuccess && code != kInProgress) break;
    }
    // In any case, or the thread's later groups would be inside this one.
    const int end = nccl.GroupEnd();
    if (code != kSuccess && code != kInProgress) return FinishAll(what, code);
    return FinishAll("ncclGroupEnd", end);
  }

  int Give(Exchange& exchange, const char** what) const {
    const Communicator& communicator = exchange.communicator();
    const NcclApi& nccl = communicator.api();
    // The caller has made the device of the last one current.
    std::optional<CurrentContext> current;
    if (exchanges_.size() > 1) {
      current.emplace(*communicator.place().driver, communicator.place().device_context);
    }
    CommHandle handle = communicator.handle();
    for (const Operation& one : exchange.operations()) {
      int code = kSuccess;
      switch (one.kind) {
        case Operation::Kind::kSend:
          *what = "ncclSend";
          code = nccl.Send(one.input, one.count, kInt8, one.peer, handle, one.stream);
          break;
        case Operation::Kind::kReceive:
          *what = "ncclRecv";
          code = nccl.Recv(one.output, one.count, kInt8, one.peer, handle, one.stream);
          break;
        case Operation::Kind::kAllReduce:
          *what = "ncclAllReduce";
          code = nccl.AllReduce(one.input, one.output, one.count, static_cast<int>(one.type),
                                static_cast<int>(one.op), handle, one.stream);
          break;
      }
      if (code != kSuccess && code != kInProgress) return code;
    }
    return kSuccess;
  }

  // NCCL may work on each of them in the background yet.
  onebitResult_t FinishAll(const char* what, int code) const {
    onebitResult_t first = onebitSuccess;
    for (Exchange* exchange : exchanges_) {
      if (IsEmpty(exchange)) continue;
      const onebitResult_t result = exchange->communicator().Finish(what, code);
      if (first == onebitSuccess) first = result;
    }
    return first;
  }

  const std::span<Exchange* const> exchanges_;
};

onebitResult_t StartTogether(std::span<Exchange* const> exchanges) {
  for (const Exchange* exchange : exchanges) {
    const onebitResult_t state = exchange->communicator().state();
    if (state != onebitSuccess) return state;
  }
  return JointStart(exchanges).Run();
}

ThreadGroups& ThreadGroups::OfThisThread() {
  thread_local ThreadGroups groups;  // NOLINT: NCCL's groups are those of a thread
  return groups;
}

void ThreadGroups::Begin(Exchange* exchange) {
  exchanges_.push_back(exchange);
  ++open_;
}

onebitResult_t ThreadGroups::End() {
  if (--open_ != 0) return onebitSuccess;
  struct Clearing {
    std::vector<Exchange*>& exchanges;
    ~Clearing() { exchanges.clear(); }
  } const clearing{exchanges_};
  return StartTogether(exchanges_);
}

void ThreadGroups::Forget(const Exchange* exchange, bool has_begun) {
  if (std::erase(exchanges_, exchange) == 0) return;
  if (has_begun && --open_ == 0) exchanges_.clear();
}

}  // namespace onebit::nccl
