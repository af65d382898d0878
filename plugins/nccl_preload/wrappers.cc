// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The functions of NCCL that this library has in front of NCCL's own.
#include <initializer_list>

#include "plugins/nccl_preload/nccl_types.h"
#include "plugins/nccl_preload/open_group.h"
#include "plugins/nccl_preload/preload_session.h"
#include "plugins/nccl_preload/real_nccl.h"
#include "plugins/nccl_preload/real_reductions.h"

namespace onebit::preload {
namespace {

// NCCL calls some of its own functions by their public names, and so ends up here again; so does
// onebit while it makes a call. Such a call goes on to NCCL and is counted nowhere.
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

// The state of a call whose arguments forbid compression.
void Observe(Comm comm, const CallFacts& call, Reason reason = Reason::kNoRule) {
  OpenGroup& group = OpenGroup::OfThisThread();
  if (group.is_open()) group.NoteOther();
  Session::Get().Pass(comm, call, reason);
}

Result Reduce(const Reduction& call, Comm comm) {
  const Entry entry;
  if (entry.is_nested()) return MakeRealReduction(call, comm);
  const Session::Route route = Session::Get().Choose(comm, call.facts, call.stream);
  if (route.comm == nullptr) return MakeRealReduction(call, comm);
  OpenGroup& group = OpenGroup::OfThisThread();
  if (!group.is_open()) return route.comm->Compress(call, route.decision);
  return group.Defer(route, comm, call) ? kSuccess : MakeRealReduction(call, comm);
}

// A new communicator, in `*made` now or when the group ends.
Result Created(Result result, Comm* made, const Config* config) {
  // A communicator that does not block is not ready yet; its calls go to NCCL.
  if (result != kSuccess || made == nullptr) return result;
  OpenGroup& group = OpenGroup::OfThisThread();
  if (group.is_open()) {
    group.NoteNew(made, config);
  } else {
    Session::Get().Add(*made, config);
  }
  return result;
}

}  // namespace
}  // namespace onebit::preload

using namespace onebit::preload;  // NOLINT: the functions below are NCCL's

#define ONEBIT_NCCL_FUNCTION extern "C" __attribute__((visibility("default")))
// The real function of the same name.
#define ONEBIT_REAL(function) static RealFunction<decltype(function)> real(#function)

// ------------------------------------------------------------------------------------ reductions

ONEBIT_NCCL_FUNCTION Result ncclAllReduce(const void* send, void* recv, size_t count, int type,
                                          int op, Comm comm, Stream stream) {
  return Reduce({.send = send,
                 .recv = recv,
                 .facts = {.operation = Operation::kAllReduce,
                           .reduction = op,
                           .type = static_cast<DataType>(type),
                           .count = count},
                 .stream = stream},
                comm);
}

ONEBIT_NCCL_FUNCTION Result ncclReduceScatter(const void* send, void* recv, size_t count, int type,
                                              int op, Comm comm, Stream stream) {
  return Reduce({.send = send,
                 .recv = recv,
                 .facts = {.operation = Operation::kReduceScatter,
                           .reduction = op,
                           .type = static_cast<DataType>(type),
                           .count = count},
                 .stream = stream},
                comm);
}

// ------------------------------------------------------------------------------------ other calls

ONEBIT_NCCL_FUNCTION Result ncclAllGather(const void* send, void* recv, size_t count, int type,
                                          Comm comm, Stream stream) {
  ONEBIT_REAL(ncclAllGather);
  const Entry entry;
  if (!entry.is_nested()) {
    Observe(comm, {Operation::kAllGather, kSum, static_cast<DataType>(type), count});
  }
  return real(send, recv, count, type, comm, stream);
}

ONEBIT_NCCL_FUNCTION Result ncclAlltoAll(const void* send, void* recv, size_t count, int type,
                                         Comm comm, Stream stream) {
  ONEBIT_REAL(ncclAlltoAll);
  const Entry entry;
  if (!entry.is_nested()) {
    Observe(comm, {Operation::kAllToAll, kSum, static_cast<DataType>(type), count});
  }
  return real(send, recv, count, type, comm, stream);
}

ONEBIT_NCCL_FUNCTION Result ncclReduce(const void* send, void* recv, size_t count, int type, int op,
                                       int root, Comm comm, Stream stream) {
  ONEBIT_REAL(ncclReduce);
  const Entry entry;
  if (!entry.is_nested()) {
    Observe(comm, {Operation::kReduce, op, static_cast<DataType>(type), count});
  }
  return real(send, recv, count, type, op, root, comm, stream);
}

ONEBIT_NCCL_FUNCTION Result ncclBroadcast(const void* send, void* recv, size_t count, int type,
                                          int root, Comm comm, Stream stream) {
  ONEBIT_REAL(ncclBroadcast);
  const Entry entry;
  if (!entry.is_nested()) {
    Observe(comm, {Operation::kBroadcast, kSum, static_cast<DataType>(type), count});
  }
  return real(send, recv, count, type, root, comm, stream);
}

ONEBIT_NCCL_FUNCTION Result ncclBcast(void* buffer, size_t count, int type, int root, Comm comm,
                                      Stream stream) {
  ONEBIT_REAL(ncclBcast);
  const Entry entry;
  if (!entry.is_nested()) {
    Observe(comm, {Operation::kBroadcast, kSum, static_cast<DataType>(type), count});
  }
  return real(buffer, count, type, root, comm, stream);
}

ONEBIT_NCCL_FUNCTION Result ncclGather(const void* send, void* recv, size_t count, int type,
                                       int root, Comm comm, Stream stream) {
  ONEBIT_REAL(ncclGather);
  const Entry entry;
  if (!entry.is_nested()) {
    Observe(comm, {Operation::kGather, kSum, static_cast<DataType>(type), count});
  }
  return real(send, recv, count, type, root, comm, stream);
}

ONEBIT_NCCL_FUNCTION Result ncclScatter(const void* send, void* recv, size_t count, int type,
                                        int root, Comm comm, Stream stream) {
  ONEBIT_REAL(ncclScatter);
  const Entry entry;
  if (!entry.is_nested()) {
    Observe(comm, {Operation::kScatter, kSum, static_cast<DataType>(type), count});
  }
  return real(send, recv, count, type, root, comm, stream);
}

ONEBIT_NCCL_FUNCTION Result ncclSend(const void* buffer, size_t count, int type, int peer,
                                     Comm comm, Stream stream) {
  ONEBIT_REAL(ncclSend);
  const Entry entry;
  if (!entry.is_nested()) {
    Observe(comm, {Operation::kSend, kSum, static_cast<DataType>(type), count});
  }
  return real(buffer, count, type, peer, comm, stream);
}

ONEBIT_NCCL_FUNCTION Result ncclRecv(void* buffer, size_t count, int type, int peer, Comm comm,
                                     Stream stream) {
  ONEBIT_REAL(ncclRecv);
  const Entry entry;
  if (!entry.is_nested()) {
    Observe(comm, {Operation::kRecv, kSum, static_cast<DataType>(type), count});
  }
  return real(buffer, count, type, peer, comm, stream);
}

// ------------------------------------------------------------------- calls with a configuration

// Without one they are the plain calls. One may ask for what a call in phases cannot do, so NCCL
// makes the call.

ONEBIT_NCCL_FUNCTION Result ncclAllReduceConfig(const void* send, void* recv, size_t count,
                                                int type, int op, Comm comm, Stream stream,
                                                const void* config) {
  ONEBIT_REAL(ncclAllReduceConfig);
  if (config == nullptr) return ncclAllReduce(send, recv, count, type, op, comm, stream);
  const Entry entry;
  if (!entry.is_nested()) {
    Observe(comm, {Operation::kAllReduce, op, static_cast<DataType>(type), count},
            Reason::kForbidden);
  }
  return real(send, recv, count, type, op, comm, stream, config);
}

ONEBIT_NCCL_FUNCTION Result ncclReduceScatterConfig(const void* send, void* recv, size_t count,
                                                    int type, int op, Comm comm, Stream stream,
                                                    const void* config) {
  ONEBIT_REAL(ncclReduceScatterConfig);
  if (config == nullptr) return ncclReduceScatter(send, recv, count, type, op, comm, stream);
  const Entry entry;
  if (!entry.is_nested()) {
    Observe(comm, {Operation::kReduceScatter, op, static_cast<DataType>(type), count},
            Reason::kForbidden);
  }
  return real(send, recv, count, type, op, comm, stream, config);
}

ONEBIT_NCCL_FUNCTION Result ncclAllGatherConfig(const void* send, void* recv, size_t count,
                                                int type, Comm comm, Stream stream,
                                                const void* config) {
  ONEBIT_REAL(ncclAllGatherConfig);
  if (config == nullptr) return ncclAllGather(send, recv, count, type, comm, stream);
  const Entry entry;
  if (!entry.is_nested()) {
    Observe(comm, {Operation::kAllGather, kSum, static_cast<DataType>(type), count},
            Reason::kForbidden);
  }
  return real(send, recv, count, type, comm, stream, config);
}

ONEBIT_NCCL_FUNCTION Result ncclAlltoAllConfig(const void* send, void* recv, size_t count, int type,
                                               Comm comm, Stream stream, const void* config) {
  ONEBIT_REAL(ncclAlltoAllConfig);
  if (config == nullptr) return ncclAlltoAll(send, recv, count, type, comm, stream);
  const Entry entry;
  if (!entry.is_nested()) {
    Observe(comm, {Operation::kAllToAll, kSum, static_cast<DataType>(type), count},
            Reason::kForbidden);
  }
  return real(send, recv, count, type, comm, stream, config);
}

ONEBIT_NCCL_FUNCTION Result ncclReduceConfig(const void* send, void* recv, size_t count, int type,
                                             int op, int root, Comm comm, Stream stream,
                                             const void* config) {
  ONEBIT_REAL(ncclReduceConfig);
  if (config == nullptr) return ncclReduce(send, recv, count, type, op, root, comm, stream);
  const Entry entry;
  if (!entry.is_nested()) {
    Observe(comm, {Operation::kReduce, op, static_cast<DataType>(type), count}, Reason::kForbidden);
  }
  return real(send, recv, count, type, op, root, comm, stream, config);
}

ONEBIT_NCCL_FUNCTION Result ncclBroadcastConfig(const void* send, void* recv, size_t count,
                                                int type, int root, Comm comm, Stream stream,
                                                const void* config) {
  ONEBIT_REAL(ncclBroadcastConfig);
  if (config == nullptr) return ncclBroadcast(send, recv, count, type, root, comm, stream);
  const Entry entry;
  if (!entry.is_nested()) {
    Observe(comm, {Operation::kBroadcast, kSum, static_cast<DataType>(type), count},
            Reason::kForbidden);
  }
  return real(send, recv, count, type, root, comm, stream, config);
}

ONEBIT_NCCL_FUNCTION Result ncclGatherConfig(const void* send, void* recv, size_t count, int type,
                                             int root, Comm comm, Stream stream,
                                             const void* config) {
  ONEBIT_REAL(ncclGatherConfig);
  if (config == nullptr) return ncclGather(send, recv, count, type, root, comm, stream);
  const Entry entry;
  if (!entry.is_nested()) {
    Observe(comm, {Operation::kGather, kSum, static_cast<DataType>(type), count},
            Reason::kForbidden);
  }
  return real(send, recv, count, type, root, comm, stream, config);
}

ONEBIT_NCCL_FUNCTION Result ncclScatterConfig(const void* send, void* recv, size_t count, int type,
                                              int root, Comm comm, Stream stream,
                                              const void* config) {
  ONEBIT_REAL(ncclScatterConfig);
  if (config == nullptr) return ncclScatter(send, recv, count, type, root, comm, stream);
  const Entry entry;
  if (!entry.is_nested()) {
    Observe(comm, {Operation::kScatter, kSum, static_cast<DataType>(type), count},
            Reason::kForbidden);
  }
  return real(send, recv, count, type, root, comm, stream, config);
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
  OpenGroup& group = OpenGroup::OfThisThread();
  if (entry.is_nested() || !group.is_open()) return real();
  if (group.is_outermost()) return group.Finish([] { return real(); });
  group.EndInner();
  return real();
}

ONEBIT_NCCL_FUNCTION Result ncclGroupSimulateEnd(void* info) {
  ONEBIT_REAL(ncclGroupSimulateEnd);
  const Entry entry;
  if (!entry.is_nested()) OpenGroup::OfThisThread().Drop();
  return real(info);
}

// --------------------------------------------------------------------------------- communicators

ONEBIT_NCCL_FUNCTION Result ncclCommInitRank(Comm* comm, int ranks, UniqueId id, int rank) {
  ONEBIT_REAL(ncclCommInitRank);
  const Entry entry;
  const Result result = real(comm, ranks, id, rank);
  return entry.is_nested() ? result : Created(result, comm, nullptr);
}

ONEBIT_NCCL_FUNCTION Result ncclCommInitRankConfig(Comm* comm, int ranks, UniqueId id, int rank,
                                                   Config* config) {
  ONEBIT_REAL(ncclCommInitRankConfig);
  const Entry entry;
  const Result result = real(comm, ranks, id, rank, config);
  return entry.is_nested() ? result : Created(result, comm, config);
}

ONEBIT_NCCL_FUNCTION Result ncclCommInitRankScalable(Comm* comm, int ranks, int rank, int ids,
                                                     UniqueId* unique_ids, Config* config) {
  ONEBIT_REAL(ncclCommInitRankScalable);
  const Entry entry;
  const Result result = real(comm, ranks, rank, ids, unique_ids, config);
  return entry.is_nested() ? result : Created(result, comm, config);
}

ONEBIT_NCCL_FUNCTION Result ncclCommSplit(Comm comm, int color, int key, Comm* made,
                                          Config* config) {
  ONEBIT_REAL(ncclCommSplit);
  const Entry entry;
  const Result result = real(comm, color, key, made, config);
  return entry.is_nested() ? result : Created(result, made, config);
}

ONEBIT_NCCL_FUNCTION Result ncclCommShrink(Comm comm, int* excluded, int excluded_count, Comm* made,
                                           Config* config, int flags) {
  ONEBIT_REAL(ncclCommShrink);
  const Entry entry;
  const Result result = real(comm, excluded, excluded_count, made, config, flags);
  return entry.is_nested() ? result : Created(result, made, config);
}

ONEBIT_NCCL_FUNCTION Result ncclCommGrow(Comm comm, int ranks, const UniqueId* id, int rank,
                                         Comm* made, Config* config) {
  ONEBIT_REAL(ncclCommGrow);
  const Entry entry;
  const Result result = real(comm, ranks, id, rank, made, config);
  return entry.is_nested() ? result : Created(result, made, config);
}

ONEBIT_NCCL_FUNCTION Result ncclCommDestroy(Comm comm) {
  ONEBIT_REAL(ncclCommDestroy);
  const Entry entry;
  if (!entry.is_nested()) Session::Get().Remove(comm);
  return real(comm);
}

ONEBIT_NCCL_FUNCTION Result ncclCommAbort(Comm comm) {
  ONEBIT_REAL(ncclCommAbort);
  const Entry entry;
  if (!entry.is_nested()) {
    Session::Get().Abort(comm);
    Session::Get().Remove(comm);
  }
  return real(comm);
}

ONEBIT_NCCL_FUNCTION Result ncclCommRevoke(Comm comm, int flags) {
  ONEBIT_REAL(ncclCommRevoke);
  const Entry entry;
  if (!entry.is_nested()) Session::Get().Abort(comm);
  return real(comm, flags);
}

ONEBIT_NCCL_FUNCTION Result ncclCommGetAsyncError(Comm comm, Result* error) {
  ONEBIT_REAL(ncclCommGetAsyncError);
  const Entry entry;
  const Result result = real(comm, error);
  if (!entry.is_nested() && result == kSuccess && error != nullptr && *error == kSuccess) {
    *error = Session::Get().AsyncError(comm);
  }
  return result;
}
