// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Collectives of the C API: argument checks, then the engine.
#include <functional>
#include <optional>
#include <utility>

#include "api/group.h"
#include "api/handles.h"
#include "api/stream.h"

using onebit::BeginUse;
using onebit::CallTarget;
using onebit::Code;
using onebit::Engine;
using onebit::Error;
using onebit::Guard;
using onebit::MakeCall;
using onebit::OkStatus;
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
};

Status CheckComm(onebitComm_t comm) {
  return comm != nullptr ? OkStatus() : Error(Code::kInvalidArgument, "comm is NULL");
}

// Equal is in place; anything else that shares bytes would be overwritten while it is read.
bool PartlyOverlap(const void* a, const void* b, size_t bytes) {
  const auto begin_a = reinterpret_cast<uintptr_t>(a);
  const auto begin_b = reinterpret_cast<uintptr_t>(b);
  return a != b && begin_a < begin_b + bytes && begin_b < begin_a + bytes;
}

Result<Engine::Buffers> CheckBuffers(const Arguments& arguments) {
  ONEBIT_TRY(CheckComm(arguments.comm));
  const auto type = onebit::TypeOf(arguments.datatype);
  if (!type) {
    return Error(Code::kInvalidArgument,
                 "datatype {} is unknown: onebitFloat32, onebitFloat16 or onebitBfloat16",
                 static_cast<int>(arguments.datatype));
  }
  const size_t element_bytes = onebit::kernels::BytesOf(*type);
  if (arguments.count > SIZE_MAX / 2 / element_bytes) {
    return Error(Code::kInvalidArgument, "count is {}: more than memory can hold", arguments.count);
  }
  if (arguments.count > 0) {
    if (arguments.is_sender && arguments.sendbuff == nullptr) {
      return Error(Code::kInvalidArgument, "sendbuff is NULL, but count is {}", arguments.count);
    }
    if (arguments.recvbuff == nullptr) {
      return Error(Code::kInvalidArgument, "recvbuff is NULL, but count is {}", arguments.count);
    }
    if (arguments.is_sender &&
        PartlyOverlap(arguments.sendbuff, arguments.recvbuff, arguments.count * element_bytes)) {
      return Error(Code::kInvalidArgument,
                   "sendbuff and recvbuff overlap without being equal: use one buffer, or two");
    }
    for (const void* buffer : {arguments.sendbuff, static_cast<const void*>(arguments.recvbuff)}) {
      if (reinterpret_cast<uintptr_t>(buffer) % element_bytes != 0) {
        return Error(Code::kInvalidArgument, "buffer {} is not aligned to its element of {} bytes",
                     buffer, element_bytes);
      }
    }
  }
  return Engine::Buffers{arguments.sendbuff, arguments.recvbuff, arguments.count, *type};
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
                       onebitComm_t comm) {
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
  if (buffers.count != config.count || buffers.type != config.type) {
    return Error(Code::kInvalidArgument,
                 "call has {} {}, but the compressor of tensor {} was created for {} {}",
                 buffers.count, onebit::NameOf(buffers.type), config.tensor_id, config.count,
                 onebit::NameOf(config.type));
  }
  return OkStatus();
}

// When the call is made: those before it may be on a stream yet.
Status CheckRecordedOp(const onebit::Compressor& compressor, ReduceOp op) {
  if (!compressor.op().has_value() || *compressor.op() == op) return OkStatus();
  return Error(Code::kInvalidUsage,
               "compressor of tensor {} was used with another op; onebitCompressorReset first",
               compressor.config().tensor_id);
}

// Makes the call: at once, on a stream, or at the end of the group that the thread is in. `make`
// gives the request when it is the call's turn, or says why it cannot be made.
template <typename Make>
Status Submit(const CallTarget& target, Make make) {
  if (onebit::IsInsideGroup()) {
    onebit::Group& group = onebit::Group::OfThisThread();
    ONEBIT_TRY(group.CheckTarget(target));
    ONEBIT_ASSIGN_OR_RETURN(auto use, BeginUse(target.compressor));
    ONEBIT_ASSIGN_OR_RETURN(const Engine::Request request, make());
    return group.Add(target, request, std::move(use));
  }
  return MakeCall(target, [target, make]() -> Status {
    ONEBIT_ASSIGN_OR_RETURN(const auto use, BeginUse(target.compressor));
    ONEBIT_ASSIGN_OR_RETURN(const Engine::Request request, make());
    return target.comm->engine.Call(request);
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
  if (compressor != nullptr) ONEBIT_TRY(CheckCompressor(*compressor, buffers, comm));
  return Submit({comm, compressor, arguments.stream}, [=]() -> Result<Engine::Request> {
    if (compressor == nullptr) return comm->engine.AllReduceRequest(buffers, reduce_op, nullptr);
    ONEBIT_TRY(CheckRecordedOp(compressor->planned.compressor, reduce_op));
    return comm->engine.AllReduceRequest(buffers, reduce_op, &compressor->planned);
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
  return Submit({.comm = handle, .stream = arguments.stream}, [=]() -> Result<Engine::Request> {
    return handle->engine.BroadcastRequest(buffers, static_cast<uint32_t>(root));
  });
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
    return Submit({.comm = comm, .stream = stream},
                  [comm]() -> Result<Engine::Request> { return comm->engine.BarrierRequest(); });
  });
}

onebitResult_t onebitGroupStart(void) {
  return Guard([] { return onebit::Group::OfThisThread().Start(); });
}

onebitResult_t onebitGroupEnd(void) {
  return Guard([] { return onebit::Group::OfThisThread().End(); });
}
