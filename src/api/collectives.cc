// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Collectives of the C API: argument checks, then the engine.
#include <algorithm>
#include <memory>
#include <utility>

#include "api/group_calls.h"
#include "api/handles.h"
#include "api/make_call.h"
#include "api/memory_location.h"
#include "api/pair_checks.h"

using onebit::BeginUse;
using onebit::CallTarget;
using onebit::Code;
using onebit::Collective;
using onebit::Engine;
using onebit::Error;
using onebit::Guard;
using onebit::MakeCall;
using onebit::OkStatus;
using onebit::PairCounts;
using onebit::PairLists;
using onebit::PlannedCompressor;
using onebit::ReduceOp;
using onebit::Result;
using onebit::Status;

namespace {

// Arguments that every collective with buffers has.
struct Arguments {
  const void* sendbuff;
  void* recvbuff;
  size_t count;
  onebitDataType_t datatype;
  onebitComm_t comm;
  onebitStream_t stream;
  bool is_sender = true;  // sendbuff is read
  // One of the buffers may have a part of `count` elements for every rank, so many in all.
  size_t send_parts = 1;
  size_t receive_parts = 1;
  bool can_be_in_place = true;
};

Status CheckComm(onebitComm_t comm) {
  return comm != nullptr ? OkStatus() : Error(Code::kInvalidArgument, "comm is NULL");
}

bool Overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  const auto begin_a = reinterpret_cast<uintptr_t>(a);
  const auto begin_b = reinterpret_cast<uintptr_t>(b);
  return begin_a < begin_b + b_bytes && begin_b < begin_a + a_bytes;
}

// In place, the smaller buffer is this rank's part of the larger one. Anything else that shares
// bytes would be overwritten while it is read.
Status CheckOverlap(const Arguments& arguments, size_t part_bytes) {
  const size_t send_bytes = part_bytes * arguments.send_parts;
  const size_t receive_bytes = part_bytes * arguments.receive_parts;
  if (!Overlap(arguments.sendbuff, send_bytes, arguments.recvbuff, receive_bytes)) {
    return OkStatus();
  }
  if (!arguments.can_be_in_place) {
    return Error(Code::kInvalidArgument,
                 "sendbuff and recvbuff overlap: an all-to-all cannot work in place, use two "
                 "buffers");
  }
  const auto rank = static_cast<size_t>(arguments.comm->comm->rank());
  const size_t sent_from = arguments.receive_parts > 1 ? rank * part_bytes : 0;
  const size_t received_from = arguments.send_parts > 1 ? rank * part_bytes : 0;
  if (reinterpret_cast<uintptr_t>(arguments.sendbuff) + received_from ==
      reinterpret_cast<uintptr_t>(arguments.recvbuff) + sent_from) {
    return OkStatus();
  }
  if (arguments.send_parts == 1 && arguments.receive_parts == 1) {
    return Error(Code::kInvalidArgument,
                 "sendbuff and recvbuff overlap without being equal: use one buffer, or two");
  }
  return Error(Code::kInvalidArgument,
               "sendbuff and recvbuff overlap, but the smaller one is not part {} of the other, "
               "this rank's: use its address, or two buffers",
               rank);
}

Result<onebit::kernels::DataType> CheckType(onebitDataType_t datatype) {
  const auto type = onebit::TypeOf(datatype);
  if (type) return *type;
  return Error(Code::kInvalidArgument,
               "datatype {} is unknown: onebitFloat32, onebitFloat16 or onebitBfloat16",
               static_cast<int>(datatype));
}

Status CheckAlignment(const void* buffer, size_t element_bytes) {
  if (reinterpret_cast<uintptr_t>(buffer) % element_bytes == 0) return OkStatus();
  return Error(Code::kInvalidArgument, "buffer {} is not aligned to its element of {} bytes",
               buffer, element_bytes);
}

Result<onebit::MemoryLocation> LocationOrTell(onebitComm_t comm, onebitStream_t stream,
                                              const void* sendbuff, const void* recvbuff) {
  auto location = onebit::LocationOfCall(stream, sendbuff, recvbuff);
  if (!location.ok()) return TellOfDevice(comm, location.status());
  return location;
}

// Buffers without elements are not looked at.
Result<onebit::MemoryLocation> LocationOf(const Arguments& arguments) {
  const bool is_empty = arguments.count == 0;
  return LocationOrTell(arguments.comm, arguments.stream,
                        is_empty || !arguments.is_sender ? nullptr : arguments.sendbuff,
                        is_empty ? nullptr : arguments.recvbuff);
}

Result<Engine::Buffers> CheckBuffers(const Arguments& arguments) {
  ONEBIT_TRY(CheckComm(arguments.comm));
  ONEBIT_ASSIGN_OR_RETURN(const auto type, CheckType(arguments.datatype));
  const size_t element_bytes = onebit::kernels::BytesOf(type);
  const size_t parts = std::max(arguments.send_parts, arguments.receive_parts);
  if (arguments.count > SIZE_MAX / 2 / element_bytes / parts) {
    return Error(Code::kInvalidArgument, "count is {}: more than memory can hold", arguments.count);
  }
  if (arguments.count > 0) {
    if (arguments.is_sender && arguments.sendbuff == nullptr) {
      return Error(Code::kInvalidArgument, "sendbuff is NULL, but count is {}", arguments.count);
    }
    if (arguments.recvbuff == nullptr) {
      return Error(Code::kInvalidArgument, "recvbuff is NULL, but count is {}", arguments.count);
    }
    if (arguments.is_sender) {
      ONEBIT_TRY(CheckOverlap(arguments, arguments.count * element_bytes));
    }
    ONEBIT_TRY(CheckAlignment(arguments.sendbuff, element_bytes));
    ONEBIT_TRY(CheckAlignment(arguments.recvbuff, element_bytes));
  }
  ONEBIT_ASSIGN_OR_RETURN(const onebit::MemoryLocation location, LocationOf(arguments));
  return Engine::Buffers{arguments.sendbuff, arguments.recvbuff, arguments.count, type, location};
}

Result<ReduceOp> CheckOp(onebitRedOp_t op) {
  switch (op) {
    case onebitSum:
      return ReduceOp::kSum;
    case onebitAvg:
      return ReduceOp::kAvg;
  }
  return Error(Code::kInvalidArgument, "op {} is unknown: onebitSum or onebitAvg",
               static_cast<int>(op));
}

Status CheckCompressor(const onebitCompressor_s& handle, const Engine::Buffers& buffers,
                       Collective collective, onebitComm_t comm) {
  const onebit::Compressor& compressor = handle.planned.compressor;
  const auto& config = compressor.config();
  const onebitComm_t owner = handle.id.comm();
  if (owner == nullptr) {
    return Error(Code::kDetached,
                 "compressor of tensor {}: its communicator was destroyed; take it over to "
                 "another one by onebitCompressorRebind",
                 config.tensor_id);
  }
  if (owner != comm) {
    return Error(Code::kInvalidUsage, "compressor of tensor {} belongs to another communicator",
                 config.tensor_id);
  }
  if (handle.has_sync) {
    return Error(Code::kInvalidUsage,
                 "compressor of tensor {} serves a sync, and only onebitSyncStep may use it",
                 config.tensor_id);
  }
  if (collective != config.collective) {
    return Error(Code::kInvalidArgument,
                 "call is {}, but the compressor of tensor {} was created for {}; set `collective` "
                 "in its config",
                 onebit::NameOf(collective), config.tensor_id, onebit::NameOf(config.collective));
  }
  if (buffers.count != config.count || buffers.type != config.type) {
    return Error(Code::kInvalidArgument,
                 "call has {} {}, but the compressor of tensor {} was created for {} {}",
                 buffers.count, onebit::NameOf(buffers.type), config.tensor_id, config.count,
                 onebit::NameOf(config.type));
  }
  // Without elements there is no buffer that would lie anywhere.
  if (buffers.count != 0 && buffers.location != config.location) {
    return Error(Code::kInvalidArgument,
                 "the buffers are {}, but the compressor of tensor {} was created for {}; set "
                 "`memory` and `device` in its config",
                 Describe(buffers.location), config.tensor_id, Describe(config.location));
  }
  return OkStatus();
}

// When the call is made: those before it may be on a stream yet. Ok without a compressor.
Status CheckRecordedOp(onebitCompressor_t handle, ReduceOp op) {
  if (handle == nullptr) return OkStatus();
  const onebit::Compressor& compressor = handle->planned.compressor;
  if (!compressor.op().has_value() || *compressor.op() == op) return OkStatus();
  return Error(Code::kInvalidUsage,
               "compressor of tensor {} was used with another op; onebitCompressorReset first",
               compressor.config().tensor_id);
}

PlannedCompressor* PlannedOf(onebitCompressor_t compressor) {
  return compressor == nullptr ? nullptr : &compressor->planned;
}

// Where a call is made. Without elements: with the residuals, or on the communicator's device.
onebit::MemoryLocation LocationOf(const Engine::Buffers& buffers, onebitCompressor_t compressor,
                                  onebitComm_t comm) {
  if (buffers.count != 0) return buffers.location;
  if (compressor != nullptr) return compressor->planned.compressor.config().location;
  onebit::MemoryLocation location = buffers.location;
  if (location.is_device()) location.device = comm->engine.device().value_or(location.device);
  return location;
}

// Makes the call: at once, on a stream, or at the end of the group that the thread is in. `make`
// gives the request when it is the call's turn, or says why it cannot be made.
template <typename Make>
Status Submit(const CallTarget& target, Make make) {
  const auto make_there = [target, make]() -> Result<Engine::Request> {
    ONEBIT_ASSIGN_OR_RETURN(Engine::Request request, make());
    request.buffers.location = target.location;
    if (target.location.is_device()) request.buffers.stream = target.stream;
    return request;
  };
  if (onebit::IsInsideGroup()) {
    onebit::Group& group = onebit::Group::OfThisThread();
    ONEBIT_TRY(group.CheckTarget(target));
    ONEBIT_ASSIGN_OR_RETURN(auto use, BeginUse(target.compressor));
    ONEBIT_ASSIGN_OR_RETURN(const Engine::Request request, make_there());
    return group.Add(target, request, std::move(use));
  }
  if (target.compressor == nullptr && onebit::UsesProxy(target)) {
    ONEBIT_ASSIGN_OR_RETURN(const Engine::Request request, make_there());
    ONEBIT_TRY(onebit::PrepareOnProxy(target, request));
  }
  return MakeCall(
      target,
      [compressor = target.compressor, engine = &target.comm->engine, make_there]() -> Status {
        ONEBIT_ASSIGN_OR_RETURN(const auto use, BeginUse(compressor));
        ONEBIT_ASSIGN_OR_RETURN(const Engine::Request request, make_there());
        return engine->Call(request);
      });
}

// In a group the end of it returns the error, too.
template <typename Body>
onebitResult_t GuardCall(Body&& body) {
  return Guard([&] { return onebit::Group::Watch(body); });
}

Status AllReduce(const Arguments& arguments, onebitRedOp_t op, onebitCompressor_t compressor) {
  ONEBIT_ASSIGN_OR_RETURN(const Engine::Buffers buffers, CheckBuffers(arguments));
  ONEBIT_ASSIGN_OR_RETURN(const ReduceOp reduce_op, CheckOp(op));
  const onebitComm_t comm = arguments.comm;
  if (compressor != nullptr) {
    ONEBIT_TRY(CheckCompressor(*compressor, buffers, Collective::kAllReduce, comm));
  }
  const CallTarget target{comm, compressor, arguments.stream,
                          LocationOf(buffers, compressor, comm)};
  return Submit(target, [=]() -> Result<Engine::Request> {
    ONEBIT_TRY(CheckRecordedOp(compressor, reduce_op));
    return comm->engine.AllReduceRequest(buffers, reduce_op, PlannedOf(compressor));
  });
}

Status Broadcast(Arguments arguments, int root) {
  ONEBIT_TRY(CheckComm(arguments.comm));
  const onebitComm_t handle = arguments.comm;
  const onebit::Comm& comm = *handle->comm;
  if (root < 0 || root >= comm.ranks()) {
    return Error(Code::kInvalidArgument, "root is {}, but ranks are 0 to {}", root,
                 comm.ranks() - 1);
  }
  arguments.is_sender = comm.rank() == root;
  if (!arguments.is_sender) arguments.sendbuff = nullptr;  // not even looked at
  ONEBIT_ASSIGN_OR_RETURN(const Engine::Buffers buffers, CheckBuffers(arguments));
  const CallTarget target{
      .comm = handle, .stream = arguments.stream, .location = LocationOf(buffers, nullptr, handle)};
  return Submit(target, [=]() -> Result<Engine::Request> {
    return handle->engine.BroadcastRequest(buffers, static_cast<uint32_t>(root));
  });
}

size_t RanksOf(onebitComm_t comm) {
  return comm == nullptr ? 1 : static_cast<size_t>(comm->comm->ranks());
}

// Calls of the collectives whose tensor is one part per rank.
Status MakeChunksCall(Collective collective, const Arguments& arguments, ReduceOp op,
                      onebitCompressor_t compressor) {
  ONEBIT_ASSIGN_OR_RETURN(const Engine::Buffers buffers, CheckBuffers(arguments));
  const onebitComm_t comm = arguments.comm;
  if (compressor != nullptr) ONEBIT_TRY(CheckCompressor(*compressor, buffers, collective, comm));
  const CallTarget target{comm, compressor, arguments.stream,
                          LocationOf(buffers, compressor, comm)};
  return Submit(target, [=]() -> Result<Engine::Request> {
    if (onebit::HasOp(collective)) ONEBIT_TRY(CheckRecordedOp(compressor, op));
    return comm->engine.ChunksRequest(collective, buffers, op, PlannedOf(compressor));
  });
}

Status ReduceScatter(Arguments arguments, onebitRedOp_t op, onebitCompressor_t compressor) {
  arguments.send_parts = RanksOf(arguments.comm);
  ONEBIT_ASSIGN_OR_RETURN(const ReduceOp reduce_op, CheckOp(op));
  return MakeChunksCall(Collective::kReduceScatter, arguments, reduce_op, compressor);
}

Status AllGather(Arguments arguments, onebitCompressor_t compressor) {
  arguments.receive_parts = RanksOf(arguments.comm);
  return MakeChunksCall(Collective::kAllGather, arguments, {}, compressor);
}

Status AllToAll(Arguments arguments, onebitCompressor_t compressor) {
  arguments.send_parts = arguments.receive_parts = RanksOf(arguments.comm);
  arguments.can_be_in_place = false;
  return MakeChunksCall(Collective::kAllToAll, arguments, {}, compressor);
}

// The caller's lists are read before the call returns; one that is made later has copies of them.
Status AllToAllv(const Arguments& arguments, const PairCounts& pairs,
                 onebitCompressor_t compressor) {
  const onebitComm_t comm = arguments.comm;
  ONEBIT_TRY(CheckComm(comm));
  ONEBIT_ASSIGN_OR_RETURN(const auto type, CheckType(arguments.datatype));
  ONEBIT_ASSIGN_OR_RETURN(
      const auto location,
      LocationOrTell(comm, arguments.stream, arguments.sendbuff, arguments.recvbuff));
  const Engine::Buffers buffers{arguments.sendbuff, arguments.recvbuff, 0, type, location};
  ONEBIT_TRY(onebit::CheckPairs(*comm->comm, buffers, pairs));
  if (compressor != nullptr) {
    ONEBIT_TRY(CheckCompressor(*compressor, buffers, Collective::kAllToAllv, comm));
  }
  const auto request_of = [=](const PairCounts& lists) {
    return comm->engine.AllToAllvRequest(buffers, lists, PlannedOf(compressor));
  };
  const CallTarget target{comm, compressor, arguments.stream, location};
  // One that is made before this returns reads the caller's own.
  const bool is_enqueued_now = location.is_device() && comm->engine.is_stream_ordered();
  const bool is_made_now = target.is_blocking() || is_enqueued_now;
  if (!onebit::IsInsideGroup() && is_made_now) {
    return Submit(target, [=]() -> Result<Engine::Request> { return request_of(pairs); });
  }
  auto lists = std::make_unique<PairLists>(pairs, RanksOf(comm));
  if (onebit::IsInsideGroup()) {
    const PairCounts copies = lists->pairs();
    ONEBIT_TRY(Submit(target, [=]() -> Result<Engine::Request> { return request_of(copies); }));
    onebit::Group::OfThisThread().Keep(comm, std::move(lists));
    return OkStatus();
  }
  if (onebit::UsesProxy(target)) {
    Engine::Request request = request_of(pairs);
    request.buffers.location = location;
    ONEBIT_TRY(onebit::PrepareOnProxy(target, request));
  }
  PairLists* const owned = lists.get();
  bool is_taken = false;
  Status status = MakeCall(
      target,
      [=]() -> Status {
        const std::unique_ptr<PairLists> copies(owned);
        ONEBIT_ASSIGN_OR_RETURN(const auto use, BeginUse(compressor));
        Engine::Request request = request_of(copies->pairs());
        if (location.is_device()) request.buffers.stream = target.stream;
        return comm->engine.Call(request);
      },
      &is_taken);
  if (is_taken) static_cast<void>(lists.release());  // the call's now
  return status;
}

}  // namespace

onebitResult_t onebitAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                               onebitDataType_t datatype, onebitRedOp_t op,
                               onebitCompressor_t compressor, onebitComm_t comm,
                               onebitStream_t stream) {
  return GuardCall([&] {
    return AllReduce({sendbuff, recvbuff, count, datatype, comm, stream}, op, compressor);
  });
}

onebitResult_t onebitBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                               onebitDataType_t datatype, int root, onebitComm_t comm,
                               onebitStream_t stream) {
  return GuardCall([&] {
    return Broadcast({sendbuff, recvbuff, count, datatype, comm, stream}, root);
  });
}

onebitResult_t onebitBarrier(onebitComm_t comm, onebitStream_t stream) {
  return GuardCall([&]() -> Status {
    ONEBIT_TRY(CheckComm(comm));
    ONEBIT_ASSIGN_OR_RETURN(const auto location, LocationOrTell(comm, stream, nullptr, nullptr));
    const Engine::Buffers buffers{.location = location};
    return Submit({.comm = comm, .stream = stream, .location = LocationOf(buffers, nullptr, comm)},
                  [comm]() -> Result<Engine::Request> { return comm->engine.BarrierRequest(); });
  });
}

onebitResult_t onebitReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                   onebitDataType_t datatype, onebitRedOp_t op,
                                   onebitCompressor_t compressor, onebitComm_t comm,
                                   onebitStream_t stream) {
  return GuardCall([&] {
    return ReduceScatter({sendbuff, recvbuff, recvcount, datatype, comm, stream}, op, compressor);
  });
}

onebitResult_t onebitAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                               onebitDataType_t datatype, onebitCompressor_t compressor,
                               onebitComm_t comm, onebitStream_t stream) {
  return GuardCall([&] {
    return AllGather({sendbuff, recvbuff, sendcount, datatype, comm, stream}, compressor);
  });
}

onebitResult_t onebitAllToAll(const void* sendbuff, void* recvbuff, size_t count,
                              onebitDataType_t datatype, onebitCompressor_t compressor,
                              onebitComm_t comm, onebitStream_t stream) {
  return GuardCall([&] {
    return AllToAll({sendbuff, recvbuff, count, datatype, comm, stream}, compressor);
  });
}

onebitResult_t onebitAllToAllv(const void* sendbuff, const size_t* sendcounts,
                               const size_t* sdispls, void* recvbuff, const size_t* recvcounts,
                               const size_t* rdispls, onebitDataType_t datatype,
                               onebitCompressor_t compressor, onebitComm_t comm,
                               onebitStream_t stream) {
  return GuardCall([&]() -> Status {
    return AllToAllv({sendbuff, recvbuff, 0, datatype, comm, stream},
                     {sendcounts, sdispls, recvcounts, rdispls}, compressor);
  });
}
