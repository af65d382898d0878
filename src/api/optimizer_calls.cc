// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "api/optimizer_calls.h"

#include <chrono>
#include <utility>

#include "api/call.h"
#include "api/handles.h"
#include "api/host_stream_calls.h"
#include "api/scoped_host_residency.h"
#include "base/guard.h"
#include "wait/backoff.h"

namespace onebit {

CommObserver::CommObserver(onebitComm_t comm) : link_(comm->link) {}

bool CommObserver::is_alive() const {
  return link_ != nullptr && link_->comm.load(std::memory_order_acquire) != nullptr;
}

uint32_t ReserveTensorId(onebitComm_t comm) {
  const uint32_t id = comm->comm->next_tensor_id();
  ReserveTensorId(comm, id);
  return id;
}

void ReserveTensorId(onebitComm_t comm, uint32_t id) { comm->comm->ReserveTensorId(id); }

Result<CallOutcome> CompressedAverage(float* values, size_t count, onebitCompressor_t compressor,
                                      onebitComm_t comm, onebitStream_t stream) {
  CallOutcome outcome = CallOutcome::kOnStream;
  ONEBIT_TRY(CatchNoMemory([&]() -> Status {
    ApiCall call = {comm,
                    compressor,
                    {.collective = Collective::kAllReduce,
                     .sendbuff = values,
                     .recvbuff = values,
                     .count = count,
                     .stream = stream}};
    ONEBIT_TRY(CheckCall(&call, onebitFloat32, onebitAvg));
    const auto run = [&outcome](const ApiCall& made) -> Status {
      ONEBIT_ASSIGN_OR_RETURN(outcome, RunChecked(made));
      return OkStatus();
    };
    // Never on a stream of the host, where the call would outlive `outcome`.
    if (call.request.location.is_device()) return RunOnDevice(call, run);
    ONEBIT_TRY(CheckNonePending(call));
    return run(call);
  }));
  return outcome;
}

Status EnqueueTotals(const onebitCompressor_s& compressor, onebitStream_t stream,
                     kernels::cuda::CompressorWords* words) {
  const Compressor& state = compressor.planned.compressor;
  return state.config().devices->Copy(words, state.words(), sizeof(*words), stream);
}

Result<DeviceTotals> AwaitTotals(onebitCompressor_t compressor) {
  ONEBIT_TRY(CheckNonePending(compressor->pending, "compressor"));
  Compressor& state = compressor->planned.compressor;
  ONEBIT_TRY(AwaitStreams(*compressor));
  ONEBIT_TRY(state.Refresh());
  return DeviceTotals{state.epoch(), state.nonfinite_calls()};
}

Result<DeviceTotals> TotalsNow(onebitCompressor_t compressor) {
  if (const onebitComm_t comm = compressor->id.comm(); comm != nullptr) {
    ONEBIT_ASSIGN_OR_RETURN(const bool is_idle, comm->engine.AreStreamsIdle());
    if (!is_idle) return Error(Code::kInProgress, "a call on a stream has not finished");
  }
  return AwaitTotals(compressor);
}

onebitResult_t OwnAllReduce(void* values, size_t count, onebitDataType_t datatype, onebitRedOp_t op,
                            onebitComm_t comm, onebitStream_t stream) {
  return MakeCall({comm,
                   nullptr,
                   {.collective = Collective::kAllReduce,
                    .sendbuff = values,
                    .recvbuff = values,
                    .count = count,
                    .stream = stream,
                    .can_be_native = false}},
                  datatype, op);
}

void DestroyAfterCalls(onebitCompressor_t compressor) {
  if (compressor == nullptr) return;
  const bool is_idle = PollUntil(DeadlineAfter(10'000), [&] {
    return compressor->pending.count.load(std::memory_order_acquire) == 0;
  });
  if (is_idle) static_cast<void>(onebitCompressorDestroy(compressor));
}

}  // namespace onebit
