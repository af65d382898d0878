// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The functions of NCCL that this library has in front of NCCL's own.
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plugins/nccl_preload/call_options.h"
#include "plugins/nccl_preload/nccl_types.h"
#include "plugins/nccl_preload/open_group.h"
#include "plugins/nccl_preload/preload_log.h"
#include "plugins/nccl_preload/preload_session.h"
#include "plugins/nccl_preload/real_calls.h"
#include "plugins/nccl_preload/real_nccl.h"
#include "plugins/nccl_preload/without_throwing.h"

namespace onebit::preload {
namespace {

// NCCL calls some of its own functions by their public names, and so ends up here again. Such a
// call goes on to NCCL and is counted nowhere.
class Entry {
 public:
  Entry() { ++depth; }
  ~Entry() { --depth; }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
  bool is_nested() const { return depth > 1; }

 private:
  static thread_local int depth;
};
thread_local int Entry::depth = 0;

// Reads the options of a call. Without rules a program runs as with NCCL alone, whatever they are.
bool ReadOptions(const DataCall& call, CallOptions* options) {
  if (call.config == nullptr || !Session::Get().has_rules()) return true;
  const std::optional<std::string> error =
      ReadCallOptions(*call.config, call.facts.operation, options);
  if (!error) return true;
  const std::string_view operation = kOperationNames[static_cast<size_t>(call.facts.operation)];
  Log(LogLevel::kWarn, "configuration of an NCCL %.*s: %s", static_cast<int>(operation.size()),
      operation.data(), error->c_str());
  return false;
}

Result DecideAndMake(std::shared_ptr<PreloadComm> known, const DataCall& call,
                     const CallOptions& options, Comm comm) {
  Session& session = Session::Get();
  const Session::Route route = session.Choose(std::move(known), call, options);
  if (route.error != kSuccess) return route.error;
  Result result = kSuccess;
  if (route.comm == nullptr) {
    result = MakeRealCall(call, comm);
  } else {
    session.Count(*route.comm, call.facts, route.decision.reason);
    const PreloadComm::Entered entered(*route.comm);
    result = route.comm->Make(call, route.decision);
  }
  if (result != kSuccess || route.exchange.comm == nullptr) return result;
  return route.exchange.comm->BeginScopeExchange(route.exchange.stream, route.exchange.holds);
}

// Makes a call by the real NCCL, which is not asked about rules.
Result PassOn(const DataCall& call, Reason reason, Comm comm) {
  OpenGroup& group = OpenGroup::OfThisThread();
  Session& session = Session::Get();
  const bool is_other = session.has_rules() && reason != Reason::kOption;
  if (group.is_open() && is_other) group.NoteOther(comm, call.facts.operation);
  session.Pass(comm, call.facts, reason);
  return MakeRealCall(call, comm);
}

Result MakeOrRecord(const DataCall& call, Comm comm) {
  CallOptions options;
  if (!ReadOptions(call, &options)) return kInvalidArgument;
  if (!options.is_plain) return PassOn(call, Reason::kForbidden, comm);
  if (options.is_off) return PassOn(call, Reason::kOption, comm);
  std::shared_ptr<PreloadComm> known = Session::Get().FindForCandidate(comm, call.facts, options);
  if (known == nullptr) return PassOn(call, Reason::kNoRule, comm);
  OpenGroup& group = OpenGroup::OfThisThread();
  if (group.is_open() && known->can_compress()) {
    group.Record(std::move(known), comm, call, options);
    return kSuccess;
  }
  return DecideAndMake(std::move(known), call, options, comm);
}

// Makes a call of an operation that rules may select. Other ranks may have what this one lacks, and
// would wait for it.
Result Make(const DataCall& call, Comm comm) {
  const Entry entry;
  if (entry.is_nested()) return MakeRealCall(call, comm);
  return WithoutThrowing(
      "make an NCCL call", [&] { return MakeOrRecord(call, comm); },
      [&] { Session::Get().GiveUp(comm); });
}

DataCall CallOf(Operation operation, const void* send, void* recv, size_t count, int type,
                Stream stream, const CollConfig* config = nullptr) {
  return {.send = send,
          .recv = recv,
          .facts = {.operation = operation, .type = static_cast<DataType>(type), .count = count},
          .stream = stream,
          .config = config};
}

DataCall ReductionOf(Operation operation, const void* send, void* recv, size_t count, int type,
                     int op, Stream stream, const CollConfig* config = nullptr) {
  DataCall call = CallOf(operation, send, recv, count, type, stream, config);
  call.facts.reduction = op;
  return call;
}

DataCall MessageOf(Operation operation, const void* send, void* recv, size_t count, int type,
                   int peer, Stream stream) {
  DataCall call = CallOf(operation, send, recv, count, type, stream);
  call.peer = peer;
  return call;
}

// Makes a call of an operation that no rule selects.
template <typename Function, typename... Arguments>
Result PassBecause(Reason reason, RealFunction<Function>& real, Comm comm, Operation operation,
                   size_t count, int type, Arguments... arguments) {
  const Entry entry;
  const auto pass = [&] {
    Session& session = Session::Get();
    OpenGroup& group = OpenGroup::OfThisThread();
    if (group.is_open() && session.has_rules()) group.NoteOther(comm, operation);
    session.Pass(comm,
                 {.operation = operation, .type = static_cast<DataType>(type), .count = count},
                 reason);
    return kSuccess;
  };
  if (!entry.is_nested()) WithoutThrowing("observe an NCCL call", pass, [] {});
  return real(arguments...);
}

template <typename Function, typename... Arguments>
Result Pass(RealFunction<Function>& real, Comm comm, Operation operation, size_t count, int type,
            Arguments... arguments) {
  return PassBecause(Reason::kNoRule, real, comm, operation, count, type, arguments...);
}

// A configuration may ask for what a call in phases cannot do, so NCCL makes the call.
template <typename Function, typename... Arguments>
Result PassConfigured(RealFunction<Function>& real, Comm comm, Operation operation, size_t count,
                      int type, Arguments... arguments) {
  return PassBecause(Reason::kForbidden, real, comm, operation, count, type, arguments...);
}

// The origin of a new communicator.
struct Making {
  const Config* config = nullptr;
  Comm parent = nullptr;
  bool has_shared_rules = false;
};

// Makes a communicator by the real NCCL, in *made. One that is made in a group is not joined: its
// thread may make those of other ranks, too, for which it would wait.
template <typename Function, typename... Arguments>
Result MakeComm(RealFunction<Function>& real, Comm* made, const Making& making,
                Arguments... arguments) {
  const Entry entry;
  const Result result = real(arguments...);
  if (result != kSuccess || made == nullptr || entry.is_nested() ||
      OpenGroup::OfThisThread().is_open()) {
    return result;
  }
  const auto add = [&] {
    return Session::Get().Add(*made, making.config, making.parent, making.has_shared_rules)
               ? kSuccess
               : kSystemError;
  };
  if (WithoutThrowing("join an NCCL communicator", add, [] {}) == kSuccess) return kSuccess;
  Session::Get().Remove(*made);
  static RealFunction<Result(Comm)> abort("ncclCommAbort");
  abort(std::exchange(*made, nullptr));
  return kSystemError;
}

// The same from unique ids.
template <typename Function, typename... Arguments>
Result MakeCommFrom(UniqueId* ids, int count, RealFunction<Function>& real, Comm* made,
                    const Config* config, const Arguments&... arguments) {
  Making making{.config = config};
  if (!Session::Get().CheckMarks(ids, count, &making.has_shared_rules)) return kInvalidUsage;
  return MakeComm(real, made, making, arguments...);
}

// Makes a communicator from those ranks of another one that have made it with the same rules.
template <typename Function, typename... Arguments>
Result DeriveComm(Comm parent, RealFunction<Function>& real, Comm* made, const Config* config,
                  Arguments... arguments) {
  const Making making{.config = config,
                      .parent = parent,
                      .has_shared_rules = Session::Get().HasSharedRules(parent)};
  return MakeComm(real, made, making, arguments...);
}

}  // namespace
}  // namespace onebit::preload

using namespace onebit::preload;  // NOLINT: the functions below are NCCL's

#define ONEBIT_NCCL_FUNCTION extern "C" __attribute__((visibility("default")))
// The real function of the same name.
#define ONEBIT_REAL(function) static RealFunction<decltype(function)> real(#function)

// -------------------------------------------------------------------- operations that rules name

ONEBIT_NCCL_FUNCTION Result ncclAllReduce(const void* send, void* recv, size_t count, int type,
                                          int op, Comm comm, Stream stream) {
  return Make(ReductionOf(Operation::kAllReduce, send, recv, count, type, op, stream), comm);
}

ONEBIT_NCCL_FUNCTION Result ncclReduceScatter(const void* send, void* recv, size_t count, int type,
                                              int op, Comm comm, Stream stream) {
  return Make(ReductionOf(Operation::kReduceScatter, send, recv, count, type, op, stream), comm);
}

ONEBIT_NCCL_FUNCTION Result ncclAllReduceConfig(const void* send, void* recv, size_t count,
                                                int type, int op, Comm comm, Stream stream,
                                                const CollConfig* config) {
  return Make(ReductionOf(Operation::kAllReduce, send, recv, count, type, op, stream, config),
              comm);
}

ONEBIT_NCCL_FUNCTION Result ncclReduceScatterConfig(const void* send, void* recv, size_t count,
                                                    int type, int op, Comm comm, Stream stream,
                                                    const CollConfig* config) {
  return Make(ReductionOf(Operation::kReduceScatter, send, recv, count, type, op, stream, config),
              comm);
}

ONEBIT_NCCL_FUNCTION Result ncclAllGather(const void* send, void* recv, size_t count, int type,
                                          Comm comm, Stream stream) {
  return Make(CallOf(Operation::kAllGather, send, recv, count, type, stream), comm);
}

ONEBIT_NCCL_FUNCTION Result ncclAllGatherConfig(const void* send, void* recv, size_t count,
                                                int type, Comm comm, Stream stream,
                                                const CollConfig* config) {
  return Make(CallOf(Operation::kAllGather, send, recv, count, type, stream, config), comm);
}

ONEBIT_NCCL_FUNCTION Result ncclAlltoAll(const void* send, void* recv, size_t count, int type,
                                         Comm comm, Stream stream) {
  return Make(CallOf(Operation::kAllToAll, send, recv, count, type, stream), comm);
}

ONEBIT_NCCL_FUNCTION Result ncclAlltoAllConfig(const void* send, void* recv, size_t count, int type,
                                               Comm comm, Stream stream, const CollConfig* config) {
  return Make(CallOf(Operation::kAllToAll, send, recv, count, type, stream, config), comm);
}

ONEBIT_NCCL_FUNCTION Result ncclSend(const void* buffer, size_t count, int type, int peer,
                                     Comm comm, Stream stream) {
  return Make(MessageOf(Operation::kSend, buffer, nullptr, count, type, peer, stream), comm);
}

ONEBIT_NCCL_FUNCTION Result ncclRecv(void* buffer, size_t count, int type, int peer, Comm comm,
                                     Stream stream) {
  return Make(MessageOf(Operation::kRecv, nullptr, buffer, count, type, peer, stream), comm);
}

// ----------------------------------------------------------------------------------- other calls

ONEBIT_NCCL_FUNCTION Result ncclReduce(const void* send, void* recv, size_t count, int type, int op,
                                       int root, Comm comm, Stream stream) {
  ONEBIT_REAL(ncclReduce);
  return Pass(real, comm, Operation::kReduce, count, type, send, recv, count, type, op, root, comm,
              stream);
}

ONEBIT_NCCL_FUNCTION Result ncclReduceConfig(const void* send, void* recv, size_t count, int type,
                                             int op, int root, Comm comm, Stream stream,
                                             const void* config) {
  ONEBIT_REAL(ncclReduceConfig);
  return PassConfigured(real, comm, Operation::kReduce, count, type, send, recv, count, type, op,
                        root, comm, stream, config);
}

ONEBIT_NCCL_FUNCTION Result ncclBroadcast(const void* send, void* recv, size_t count, int type,
                                          int root, Comm comm, Stream stream) {
  ONEBIT_REAL(ncclBroadcast);
  return Pass(real, comm, Operation::kBroadcast, count, type, send, recv, count, type, root, comm,
              stream);
}

ONEBIT_NCCL_FUNCTION Result ncclBroadcastConfig(const void* send, void* recv, size_t count,
                                                int type, int root, Comm comm, Stream stream,
                                                const void* config) {
  ONEBIT_REAL(ncclBroadcastConfig);
  return PassConfigured(real, comm, Operation::kBroadcast, count, type, send, recv, count, type,
                        root, comm, stream, config);
}

ONEBIT_NCCL_FUNCTION Result ncclBcast(void* buffer, size_t count, int type, int root, Comm comm,
                                      Stream stream) {
  ONEBIT_REAL(ncclBcast);
  return Pass(real, comm, Operation::kBroadcast, count, type, buffer, count, type, root, comm,
              stream);
}

ONEBIT_NCCL_FUNCTION Result ncclGather(const void* send, void* recv, size_t count, int type,
                                       int root, Comm comm, Stream stream) {
  ONEBIT_REAL(ncclGather);
  return Pass(real, comm, Operation::kGather, count, type, send, recv, count, type, root, comm,
              stream);
}

ONEBIT_NCCL_FUNCTION Result ncclGatherConfig(const void* send, void* recv, size_t count, int type,
                                             int root, Comm comm, Stream stream,
                                             const void* config) {
  ONEBIT_REAL(ncclGatherConfig);
  return PassConfigured(real, comm, Operation::kGather, count, type, send, recv, count, type, root,
                        comm, stream, config);
}

ONEBIT_NCCL_FUNCTION Result ncclScatter(const void* send, void* recv, size_t count, int type,
                                        int root, Comm comm, Stream stream) {
  ONEBIT_REAL(ncclScatter);
  return Pass(real, comm, Operation::kScatter, count, type, send, recv, count, type, root, comm,
              stream);
}

ONEBIT_NCCL_FUNCTION Result ncclScatterConfig(const void* send, void* recv, size_t count, int type,
                                              int root, Comm comm, Stream stream,
                                              const void* config) {
  ONEBIT_REAL(ncclScatterConfig);
  return PassConfigured(real, comm, Operation::kScatter, count, type, send, recv, count, type, root,
                        comm, stream, config);
}

// ---------------------------------------------------------------------------------------- groups

ONEBIT_NCCL_FUNCTION Result ncclGroupStart() {
  ONEBIT_REAL(ncclGroupStart);
  const Entry entry;
  const Result result = real();
  if (!entry.is_nested() && result == kSuccess) OpenGroup::OfThisThread().Begin();
  return result;
}

ONEBIT_NCCL_FUNCTION Result ncclGroupEnd() {
  ONEBIT_REAL(ncclGroupEnd);
  const Entry entry;
  return entry.is_nested() ? real() : OpenGroup::OfThisThread().Finish([] { return real(); });
}

ONEBIT_NCCL_FUNCTION Result ncclGroupSimulateEnd(void* info) {
  ONEBIT_REAL(ncclGroupSimulateEnd);
  const Entry entry;
  const Result made = entry.is_nested() ? kSuccess : OpenGroup::OfThisThread().Simulate();
  const Result result = real(info);
  return made == kSuccess ? result : made;
}

// --------------------------------------------------------------------------------- communicators

// NCCL calls this itself, in ncclCommInitAll, for ids of its own.
ONEBIT_NCCL_FUNCTION Result ncclGetUniqueId(UniqueId* id) {
  ONEBIT_REAL(ncclGetUniqueId);
  const Entry entry;
  const Result result = real(id);
  if (result == kSuccess && !entry.is_nested()) Session::Get().MarkId(id);
  return result;
}

// The id is for ranks that join those of `comm`.
ONEBIT_NCCL_FUNCTION Result ncclCommGetUniqueId(Comm comm, UniqueId* id) {
  ONEBIT_REAL(ncclCommGetUniqueId);
  const Entry entry;
  const Result result = real(comm, id);
  if (result == kSuccess && !entry.is_nested() && Session::Get().HasSharedRules(comm)) {
    Session::Get().MarkId(id);
  }
  return result;
}

ONEBIT_NCCL_FUNCTION Result ncclCommInitAll(Comm* comms, int count, const int* devices) {
  ONEBIT_REAL(ncclCommInitAll);
  const Entry entry;
  return real(comms, count, devices);
}

ONEBIT_NCCL_FUNCTION Result ncclCommInitRank(Comm* comm, int ranks, UniqueId id, int rank) {
  ONEBIT_REAL(ncclCommInitRank);
  return MakeCommFrom(&id, 1, real, comm, nullptr, comm, ranks, id, rank);
}

ONEBIT_NCCL_FUNCTION Result ncclCommInitRankConfig(Comm* comm, int ranks, UniqueId id, int rank,
                                                   Config* config) {
  ONEBIT_REAL(ncclCommInitRankConfig);
  return MakeCommFrom(&id, 1, real, comm, config, comm, ranks, id, rank, config);
}

ONEBIT_NCCL_FUNCTION Result ncclCommInitRankScalable(Comm* comm, int ranks, int rank, int count,
                                                     UniqueId* ids, Config* config) {
  ONEBIT_REAL(ncclCommInitRankScalable);
  if (ids == nullptr || count <= 0) return real(comm, ranks, rank, count, ids, config);
  const auto make = [&] {
    std::vector<UniqueId> unstamped(ids, ids + count);
    return MakeCommFrom(unstamped.data(), count, real, comm, config, comm, ranks, rank, count,
                        unstamped.data(), config);
  };
  return WithoutThrowing("make an NCCL communicator", make, [] {});
}

ONEBIT_NCCL_FUNCTION Result ncclCommSplit(Comm comm, int color, int key, Comm* made,
                                          Config* config) {
  ONEBIT_REAL(ncclCommSplit);
  return DeriveComm(comm, real, made, config, comm, color, key, made, config);
}

ONEBIT_NCCL_FUNCTION Result ncclCommShrink(Comm comm, int* excluded, int excluded_count, Comm* made,
                                           Config* config, int flags) {
  ONEBIT_REAL(ncclCommShrink);
  return DeriveComm(comm, real, made, config, comm, excluded, excluded_count, made, config, flags);
}

// Ranks that are new have an id, and no communicator.
ONEBIT_NCCL_FUNCTION Result ncclCommGrow(Comm comm, int ranks, const UniqueId* id, int rank,
                                         Comm* made, Config* config) {
  ONEBIT_REAL(ncclCommGrow);
  if (id == nullptr)
    return DeriveComm(comm, real, made, config, comm, ranks, id, rank, made, config);
  UniqueId unstamped = *id;
  const UniqueId* const passed = &unstamped;
  if (comm == nullptr) {
    return MakeCommFrom(&unstamped, 1, real, made, config, comm, ranks, passed, rank, made, config);
  }
  bool are_shared = false;
  if (!Session::Get().CheckMarks(&unstamped, 1, &are_shared)) return kInvalidUsage;
  return DeriveComm(comm, real, made, config, comm, ranks, passed, rank, made, config);
}

ONEBIT_NCCL_FUNCTION Result ncclCommDestroy(Comm comm) {
  ONEBIT_REAL(ncclCommDestroy);
  const Entry entry;
  if (!entry.is_nested()) {
    Session::Get().MeasureResiduals(comm);
    Session::Get().Remove(comm);
  }
  return real(comm);
}

// NCCL's abort frees what the other communicator uses, and ends the work on the device, for which
// residuals wait.
ONEBIT_NCCL_FUNCTION Result ncclCommAbort(Comm comm) {
  ONEBIT_REAL(ncclCommAbort);
  const Entry entry;
  if (entry.is_nested()) return real(comm);
  const std::shared_ptr<PreloadComm> removed = Session::Get().Remove(comm);
  if (removed != nullptr) removed->Leave();
  return real(comm);
}

// NCCL revokes a communicator once, and the end of the other one does it as well: its warning that
// this was in vain is to be expected.
ONEBIT_NCCL_FUNCTION Result ncclCommRevoke(Comm comm, int flags) {
  ONEBIT_REAL(ncclCommRevoke);
  const Entry entry;
  const Result result = real(comm, flags);
  if (entry.is_nested()) return result;
  if (const std::shared_ptr<PreloadComm> known = Session::Get().Find(comm)) known->Revoke();
  return result;
}

ONEBIT_NCCL_FUNCTION Result ncclCommGetAsyncError(Comm comm, Result* error) {
  ONEBIT_REAL(ncclCommGetAsyncError);
  const Entry entry;
  const Result result = real(comm, error);
  if (entry.is_nested() || result != kSuccess || error == nullptr || *error != kSuccess) {
    return result;
  }
  if (const std::shared_ptr<PreloadComm> known = Session::Get().Find(comm)) {
    *error = known->AsyncError();
  }
  return result;
}
