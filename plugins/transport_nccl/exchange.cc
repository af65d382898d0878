// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Hands the exchanges of one or several ranks to NCCL in groups.
#include "plugins/transport_nccl/exchange.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace onebit::nccl {

void Exchange::CountSends() {
  uint64_t bytes = bytes_sent();
  uint64_t count = messages_sent();
  for (const Operation& operation : operations_) {
    if (operation.kind != Operation::Kind::kSend) continue;
    bytes += operation.bytes;
    ++count;
  }
  bytes_sent_.store(bytes, std::memory_order_relaxed);
  messages_sent_.store(count, std::memory_order_relaxed);
}

// Starts those of several exchanges that are not empty.
class JointStart {
 public:
  explicit JointStart(std::span<Exchange* const> exchanges) : exchanges_(exchanges) {}

  onebitResult_t Run() {
    const onebitResult_t result = Hold(nullptr);
    if (result != onebitSuccess) return result;
    for (Exchange* exchange : exchanges_) exchange->CountSends();
    return onebitSuccess;
  }

 private:
  static bool IsEmpty(const Exchange* exchange) { return exchange->operations_.empty(); }

  // Locks the communicators after `last`, then starts all exchanges. The order is by address, so
  // that two threads that start the same ones cannot deadlock. A communicator may have several
  // endpoints.
  onebitResult_t Hold(const Communicator* last) {
    constexpr std::less<const Communicator*> is_before;
    Communicator* next = nullptr;
    for (Exchange* exchange : exchanges_) {
      Communicator* const one = &exchange->communicator();
      if (IsEmpty(exchange) || (last != nullptr && !is_before(last, one))) continue;
      if (next == nullptr || is_before(one, next)) next = one;
    }
    if (next == nullptr) return Start();
    return next->Use([&](CommHandle) { return Hold(next); });
  }

  // NCCL forbids a group with both blocking and non-blocking communicators. It checks this only
  // when communicators are created; calls in such a group have undefined effects, because the last
  // communicator decides if the end of the group waits. NCCL does not tell the kind of a joined
  // communicator. So each kind has a separate group. Every thread starts the groups in this order,
  // each when the one before has reached its streams: so no thread waits in one group for a thread
  // that waits in another, and the order is the same on every stream.
  enum class Kind { kNonBlocking, kJoined, kBlocking };
  static Kind KindOf(const Communicator& communicator) {
    if (communicator.is_joined()) return Kind::kJoined;
    return communicator.is_blocking() ? Kind::kBlocking : Kind::kNonBlocking;
  }

  onebitResult_t Start() {
    for (const Kind kind : {Kind::kNonBlocking, Kind::kJoined, Kind::kBlocking}) {
      const onebitResult_t result = StartKind(kind);
      if (result == onebitSuccess) continue;
      FailOthers(result);
      return result;
    }
    return onebitSuccess;
  }

  // An abort frees a communicator under its holder, but at the earliest one second after marking it
  // (communicator_end.cc). So after waiting for a lock or for the previous kind, a thread checks
  // for marks before it uses any handle.
  onebitResult_t StartKind(Kind kind) const {
    const onebitResult_t state = State();
    if (state != onebitSuccess) return state;
    const char* what = "";
    const int code = StartGroup(kind, &what);
    return Finish(kind, what, code);
  }

  // Returns onebitSuccess, or the error of a locked communicator.
  onebitResult_t State() const {
    for (const Exchange* exchange : exchanges_) {
      const onebitResult_t state = exchange->communicator().state();
      if (!IsEmpty(exchange) && state != onebitSuccess) return state;
    }
    return onebitSuccess;
  }

  bool IsOf(Kind kind, Exchange* exchange) const {
    return !IsEmpty(exchange) && KindOf(exchange->communicator()) == kind;
  }

  int StartGroup(Kind kind, const char** what) const {
    const auto first = std::find_if(exchanges_.begin(), exchanges_.end(),
                                    [&](Exchange* exchange) { return IsOf(kind, exchange); });
    if (first == exchanges_.end()) return kSuccess;
    const NcclApi& nccl = (*first)->communicator().api();
    *what = "ncclGroupStart";
    int code = nccl.GroupStart();
    if (code != kSuccess) return code;
    int end = kSuccess;
    {
      struct Ending {  // in any case, or the thread's later groups would nest in this one
        const NcclApi& nccl;
        int& end;
        ~Ending() { end = nccl.GroupEnd(); }
      } const ending{nccl, end};
      for (Exchange* exchange : exchanges_) {
        if (IsOf(kind, exchange)) code = Give(*exchange, what);
        if (code != kSuccess) break;
      }
    }
    if (code != kSuccess) return code;
    *what = "ncclGroupEnd";
    return end;
  }

  int Give(Exchange& exchange, const char** what) const {
    Communicator& communicator = exchange.communicator();
    const NcclApi& nccl = communicator.api();
    // The caller has made the device of the last exchange current.
    std::optional<cuda::CurrentContext> current;
    if (exchanges_.size() > 1) {
      current.emplace(*communicator.binding().driver, communicator.binding().device_context);
      *what = "cuCtxPushCurrent";
      if (!current->is_alive()) return kUnhandledCudaError;
    }
    // NCCL allows streams of one communicator in a group only if all are captured or none is.
    communicator.NoteCapture(exchange.operations().front().stream);
    CommHandle handle = communicator.handle();
    for (const Operation& one : exchange.operations()) {
      int code = kSuccess;
      switch (one.kind) {
        case Operation::Kind::kSend:
          *what = "ncclSend";
          code = nccl.Send(one.input, one.bytes, kInt8, one.peer, handle, one.stream);
          break;
        case Operation::Kind::kReceive:
          *what = "ncclRecv";
          code = nccl.Recv(one.output, one.bytes, kInt8, one.peer, handle, one.stream);
          break;
        case Operation::Kind::kCollective:
          code = GiveCollective(nccl, one.call, handle, one.stream, what);
          break;
      }
      if (code != kSuccess && code != kInProgress) return code;
    }
    return kSuccess;
  }

  static int GiveCollective(const NcclApi& nccl, const onebitTransportCollectiveCall& call,
                            CommHandle handle, onebitStream_t stream, const char** what) {
    const auto type = static_cast<int>(call.datatype);
    const auto op = static_cast<int>(call.op);
    switch (call.collective) {
      case onebitTransportAllReduce:
        *what = "ncclAllReduce";
        return nccl.AllReduce(call.send, call.recv, call.count, type, op, handle, stream);
      case onebitTransportReduceScatter:
        *what = "ncclReduceScatter";
        return nccl.ReduceScatter(call.send, call.recv, call.count, type, op, handle, stream);
      case onebitTransportAllGather:
        *what = "ncclAllGather";
        return nccl.AllGather(call.send, call.recv, call.count, type, handle, stream);
      case onebitTransportBroadcast:
        *what = "ncclBroadcast";
        return nccl.Broadcast(call.send == nullptr ? call.recv : call.send, call.recv, call.count,
                              type, call.root, handle, stream);
    }
    return kInvalidArgument;
  }

  // NCCL may still work on each of them in the background, until the peers have come. The others
  // end the wait for one: an error of any communicator is an error of all.
  onebitResult_t Finish(Kind kind, const char* what, int code) const {
    onebitResult_t first = onebitSuccess;
    for (Exchange* exchange : exchanges_) {
      if (!IsOf(kind, exchange)) continue;
      const onebitResult_t result =
          exchange->communicator().Finish(what, code, [this] { return State(); });
      if (first == onebitSuccess) first = result;
    }
    return first;
  }

  // Fails the other exchanges, because only a part of a joint start has reached the streams.
  void FailOthers(onebitResult_t result) const {
    for (Exchange* exchange : exchanges_) {
      Communicator& other = exchange->communicator();
      if (IsEmpty(exchange) || other.state() != onebitSuccess) continue;
      other.Fail(result, "another communicator of the group failed or was aborted");
    }
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
