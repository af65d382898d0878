// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "api/call.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "api/group_calls.h"
#include "api/lossless_calls.h"
#include "api/memory_location.h"
#include "api/pair_checks.h"

namespace onebit {
namespace {

size_t RanksOf(const ApiCall& call) { return static_cast<size_t>(call.comm->comm->ranks()); }

// The number of parts in a buffer, of `count` elements each: one, or one per rank.
size_t SendParts(const ApiCall& call) {
  const Collective collective = call.request.collective;
  const bool has_parts =
      collective == Collective::kReduceScatter || collective == Collective::kAllToAll;
  return has_parts ? RanksOf(call) : 1;
}
size_t ReceiveParts(const ApiCall& call) {
  const Collective collective = call.request.collective;
  const bool has_parts =
      collective == Collective::kAllGather || collective == Collective::kAllToAll;
  return has_parts ? RanksOf(call) : 1;
}

bool Overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  const auto begin_a = reinterpret_cast<uintptr_t>(a);
  const auto begin_b = reinterpret_cast<uintptr_t>(b);
  return begin_a < begin_b + b_bytes && begin_b < begin_a + a_bytes;
}

// In place, the smaller buffer must be this rank's part of the larger one. Any other overlap would
// be overwritten while it is read.
Status CheckOverlap(const ApiCall& call, size_t part_bytes) {
  const void* const sendbuff = call.request.sendbuff;
  const void* const recvbuff = call.request.recvbuff;
  const size_t send_parts = SendParts(call);
  const size_t receive_parts = ReceiveParts(call);
  if (!Overlap(sendbuff, part_bytes * send_parts, recvbuff, part_bytes * receive_parts)) {
    return OkStatus();
  }
  if (call.request.collective == Collective::kAllToAll) {
    return Error(
        Code::kInvalidArgument,
        "sendbuff and recvbuff overlap: an all-to-all cannot work in place; use two buffers");
  }
  const auto rank = static_cast<size_t>(call.comm->comm->rank());
  const size_t sent_from = receive_parts > 1 ? rank * part_bytes : 0;
  const size_t received_from = send_parts > 1 ? rank * part_bytes : 0;
  if (reinterpret_cast<uintptr_t>(sendbuff) + received_from ==
      reinterpret_cast<uintptr_t>(recvbuff) + sent_from) {
    return OkStatus();
  }
  if (send_parts == 1 && receive_parts == 1) {
    return Error(Code::kInvalidArgument,
                 "sendbuff and recvbuff overlap, but are not equal: pass one buffer for both, or "
                 "two separate ones");
  }
  return Error(Code::kInvalidArgument,
               "sendbuff and recvbuff overlap, but the smaller one is not this rank's part of the "
               "larger one, part {}: pass the address of that part, or use two buffers",
               rank);
}

Result<kernels::DataType> CheckType(onebitDataType_t datatype) {
  const auto type = TypeOf(datatype);
  if (type) return *type;
  return Error(Code::kInvalidArgument,
               "datatype {} is unknown: use onebitFloat32, onebitFloat16, onebitBfloat16, "
               "onebitFloat64, onebitInt32, onebitInt64 or onebitUint8",
               static_cast<int>(datatype));
}

Status CheckAlignment(const void* buffer, size_t element_bytes) {
  if (reinterpret_cast<uintptr_t>(buffer) % element_bytes == 0) return OkStatus();
  return Error(Code::kInvalidArgument, "buffer {} is not aligned to its element size of {} bytes",
               buffer, element_bytes);
}

Result<ReduceOp> CheckOp(onebitRedOp_t op) {
  switch (op) {
    case onebitSum:
      return ReduceOp::kSum;
    case onebitAvg:
      return ReduceOp::kAvg;
    case onebitMax:
      return ReduceOp::kMax;
    case onebitMin:
      return ReduceOp::kMin;
  }
  return Error(Code::kInvalidArgument,
               "op {} is unknown: use onebitSum, onebitAvg, onebitMax or onebitMin",
               static_cast<int>(op));
}

// Only the root of a broadcast has a sendbuff. On other ranks the argument is ignored.
Status CheckRoot(ApiCall* call) {
  const Comm& comm = *call->comm->comm;
  const auto root = static_cast<int>(call->request.root);
  if (root < 0 || root >= comm.ranks()) {
    return Error(Code::kInvalidArgument, "root is {}, but ranks are 0 to {}", root,
                 comm.ranks() - 1);
  }
  if (comm.rank() != root) call->request.sendbuff = nullptr;
  return OkStatus();
}

Status CheckPeer(const ApiCall& call) {
  const Comm& comm = *call.comm->comm;
  const auto peer = static_cast<int>(call.request.root);
  if (peer < 0 || peer >= comm.ranks()) {
    return Error(Code::kInvalidArgument, "peer is {}, but ranks are 0 to {}", peer,
                 comm.ranks() - 1);
  }
  if (peer != comm.rank() || IsInsideGroup()) return OkStatus();
  return Error(Code::kInvalidUsage,
               "peer is {}, this rank itself: put the send and the receive into one group", peer);
}

Status CheckBuffers(const ApiCall& call) {
  const CallRequest& request = call.request;
  const size_t element_bytes = kernels::BytesOf(request.type);
  const size_t parts = std::max(SendParts(call), ReceiveParts(call));
  if (request.count > SIZE_MAX / 2 / element_bytes / parts) {
    return Error(Code::kInvalidArgument, "count is {}: more than memory can hold", request.count);
  }
  if (request.count == 0) return OkStatus();
  const bool is_pairs = request.collective == Collective::kSendRecv;
  const bool is_sender = is_pairs
                             ? !request.is_receive
                             : request.collective != Collective::kBroadcast ||
                                   static_cast<uint32_t>(call.comm->comm->rank()) == request.root;
  const bool is_receiver = !is_pairs || request.is_receive;
  if (is_sender && request.sendbuff == nullptr) {
    return Error(Code::kInvalidArgument, "sendbuff is NULL, but count is {}", request.count);
  }
  if (is_receiver && request.recvbuff == nullptr) {
    return Error(Code::kInvalidArgument, "recvbuff is NULL, but count is {}", request.count);
  }
  if (is_sender && is_receiver) ONEBIT_TRY(CheckOverlap(call, request.count * element_bytes));
  ONEBIT_TRY(CheckAlignment(request.sendbuff, element_bytes));
  return CheckAlignment(request.recvbuff, element_bytes);
}

// Ignores buffers without elements.
Status Locate(ApiCall* call) {
  CallRequest& request = call->request;
  const bool is_empty = request.count == 0 && request.collective != Collective::kAllToAllv;
  auto location = LocationOfCall(request.stream, is_empty ? nullptr : request.sendbuff,
                                 is_empty ? nullptr : request.recvbuff);
  if (!location.ok()) return FailOnDeviceError(call->comm, location.status());
  request.location = location.value();
  return OkStatus();
}

Status CheckCompressor(const ApiCall& call) {
  const CallRequest& request = call.request;
  ONEBIT_TRY(CheckHandle(call.compressor, "compressor"));
  const onebitCompressor_s& handle = *call.compressor;
  const Compressor& compressor = handle.planned.compressor;
  const auto& config = compressor.config();
  const onebitComm_t owner = handle.id.comm();
  if (owner == nullptr) {
    return Error(Code::kDetached,
                 "compressor of tensor {}: its communicator was destroyed; rebind it to "
                 "another one with onebitCompressorRebind",
                 config.tensor_id);
  }
  if (owner != call.comm) {
    return Error(Code::kInvalidUsage,
                 "compressor of tensor {} belongs to another communicator: pass that one, or "
                 "another compressor",
                 config.tensor_id);
  }
  if (handle.has_sync) {
    return Error(Code::kInvalidUsage,
                 "compressor of tensor {} belongs to a sync: only onebitSyncStep may use it",
                 config.tensor_id);
  }
  if (request.collective != config.collective) {
    return Error(Code::kInvalidArgument,
                 "call is {}, but the compressor of tensor {} was created for {}; set `collective` "
                 "in its config",
                 NameOf(request.collective), config.tensor_id, NameOf(config.collective));
  }
  if (request.count != config.count || request.type != config.type) {
    return Error(Code::kInvalidArgument,
                 "call has {} {}, but the compressor of tensor {} was created for {} {}",
                 request.count, NameOf(request.type), config.tensor_id, config.count,
                 NameOf(config.type));
  }
  if (request.op == ReduceOp::kMax || request.op == ReduceOp::kMin) {
    return Error(
        Code::kInvalidArgument,
        "op is {}, but a compressor takes onebitSum or onebitAvg: call without a compressor",
        request.op == ReduceOp::kMax ? "onebitMax" : "onebitMin");
  }
  // A call without elements has no buffer whose location could be wrong.
  if (request.count != 0 && request.location != config.location) {
    return Error(Code::kInvalidArgument,
                 "the buffers are {}, but the compressor of tensor {} was created for {}; set "
                 "`memory` and `device` in its config",
                 Describe(request.location), config.tensor_id, Describe(config.location));
  }
  return OkStatus();
}

// Places a call without elements where the residuals are, or on the communicator's device.
void LocateEmpty(ApiCall* call) {
  CallRequest& request = call->request;
  if (request.count != 0 || request.collective == Collective::kAllToAllv) return;
  if (call->compressor != nullptr) {
    request.location = call->compressor->planned.compressor.config().location;
  } else if (request.location.is_device()) {
    request.location.device = call->comm->engine.device().value_or(request.location.device);
  }
}

}  // namespace

Status CheckCall(ApiCall* call, onebitDataType_t datatype, onebitRedOp_t op) {
  CallRequest& request = call->request;
  ONEBIT_TRY(CheckHandle(call->comm, "comm"));
  if (request.collective == Collective::kBroadcast) ONEBIT_TRY(CheckRoot(call));
  if (request.collective == Collective::kSendRecv) ONEBIT_TRY(CheckPeer(*call));
  ONEBIT_ASSIGN_OR_RETURN(request.type, CheckType(datatype));
  ONEBIT_TRY(CheckBuffers(*call));
  ONEBIT_TRY(Locate(call));
  if (request.collective == Collective::kAllToAllv) {
    ONEBIT_TRY(CheckPairs(*call->comm->comm, request));
  }
  if (HasOp(request.collective)) {
    ONEBIT_ASSIGN_OR_RETURN(request.op, CheckOp(op));
  }
  if (call->compressor != nullptr) {
    ONEBIT_TRY(CheckCompressor(*call));
    request.compressor = &call->compressor->planned;
  }
  LocateEmpty(call);
  return OkStatus();
}

Result<std::optional<CompressorUse>> BeginUse(const ApiCall& call) {
  ONEBIT_ASSIGN_OR_RETURN(auto use, BeginUse(call.compressor));
  if (call.compressor == nullptr) return use;
  const Compressor& compressor = call.compressor->planned.compressor;
  const Compressor::PairEnd end = {call.request.root, call.request.is_receive};
  if (const auto& bound = compressor.pair_end(); bound.has_value() && *bound != end) {
    return Error(
        Code::kInvalidUsage,
        "call is a {} rank {}, but the compressor of tensor {} was used to {} rank {}: use one "
        "compressor for each, or call onebitCompressorReset on both ranks of that pair first",
        end.is_receiver ? "receive from" : "send to", end.peer, compressor.config().tensor_id,
        bound->is_receiver ? "receive from" : "send to", bound->peer);
  }
  if (!HasOp(call.request.collective)) return use;
  if (compressor.config().is_weighted && call.request.op != ReduceOp::kAvg) {
    return Error(Code::kInvalidUsage,
                 "compressor of tensor {} has a weight (onebitCompressorSetWeight): op must be "
                 "onebitAvg",
                 compressor.config().tensor_id);
  }
  if (!compressor.op().has_value() || *compressor.op() == call.request.op) return use;
  return Error(Code::kInvalidUsage,
               "compressor of tensor {} was used with another op; call onebitCompressorReset first",
               compressor.config().tensor_id);
}

namespace {

Status AddToGroup(ApiCall&& call) {
  Group& group = Group::OfThisThread();
  ONEBIT_TRY(group.CheckTarget(call));
  ONEBIT_ASSIGN_OR_RETURN(auto use, BeginUse(call));
  return group.Add(std::move(call), std::move(use));
}

Status Submit(ApiCall&& call) {
  if (call.compressor != nullptr && call.compressor->lossless.has_value()) {
    return SubmitLossless(std::move(call));
  }
  const bool is_made_now = call.is_blocking() || call.request.location.is_device();
  // The caller may free its lists when the function returns.
  if (IsInsideGroup() || !is_made_now) call.request.pairs.Own(RanksOf(call));
  if (IsInsideGroup()) return AddToGroup(std::move(call));
  if (call.is_blocking()) {
    ONEBIT_TRY(CheckNonePending(call));
    return RunChecked(call).status();
  }
  return RunInOrder(std::move(call), [](const ApiCall& made) { return RunChecked(made).status(); });
}

}  // namespace

Status UseDeviceOf(onebitComm_t comm, const MemoryLocation& location) {
  Engine& engine = comm->engine;
  if (engine.is_stream_ordered() || engine.proxy() != nullptr) return OkStatus();
  ONEBIT_ASSIGN_OR_RETURN(const Devices* const devices, GetDevices());
  ONEBIT_TRY(comm->comm->Acquire());
  const CommUse use(*comm->comm);
  return engine.UseDevice(*devices, location.device);
}

onebitResult_t MakeCall(ApiCall&& call, onebitDataType_t datatype, onebitRedOp_t op) noexcept {
  return Guard([&] {
    return Group::Watch([&]() -> Status {
      ONEBIT_TRY(CheckCall(&call, datatype, op));
      return Submit(std::move(call));
    });
  });
}

}  // namespace onebit
