// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// 1-bit sync of the C API.
#include <cstdint>
#include <utility>

#include "api/call.h"
#include "api/handles.h"
#include "api/host_stream_calls.h"
#include "api/memory_location.h"
#include "api/scoped_host_residency.h"
#include "api/state_export.h"
#include "base/config_head.h"
#include "base/group_depth.h"
#include "sync/one_bit_sync.h"

using onebit::CheckNonePending;
using onebit::Code;
using onebit::CompressorUse;
using onebit::Error;
using onebit::Guard;
using onebit::OkStatus;
using onebit::OneBitSync;
using onebit::Result;
using onebit::StateKind;
using onebit::Status;
using onebit::SyncSchedule;

// Guarded by holding its compressor.
struct onebitSync_s {
  onebitCompressor_t compressor;
  OneBitSync sync;
  const onebit::Origin origin = {};
};

namespace {

Status CheckAtLeast(const char* member, int64_t value, int64_t least) {
  if (value >= least) return OkStatus();
  return Error(Code::kInvalidArgument, "sync schedule: {} is {}, but must be {} or more", member,
               value, least);
}

Result<SyncSchedule> ReadSchedule(const onebitSyncSchedule_t* schedule) {
  const onebitSyncSchedule_t defaults = ONEBIT_SYNC_SCHEDULE_INIT;
  if (schedule == nullptr) schedule = &defaults;
  ONEBIT_TRY(onebit::CheckConfigHead("sync schedule", "ONEBIT_SYNC_SCHEDULE_INIT",
                                     {schedule->size, schedule->magic, schedule->version},
                                     {defaults.size, defaults.magic, defaults.version}));
  ONEBIT_TRY(CheckAtLeast("warmupSteps", schedule->warmupSteps, 0));
  ONEBIT_TRY(CheckAtLeast("baseInterval", schedule->baseInterval, 1));
  ONEBIT_TRY(CheckAtLeast("doubleEvery", schedule->doubleEvery, 0));
  ONEBIT_TRY(CheckAtLeast("maxInterval", schedule->maxInterval, schedule->baseInterval));
  return SyncSchedule{.warmup_steps = static_cast<uint64_t>(schedule->warmupSteps),
                      .base_interval = static_cast<uint64_t>(schedule->baseInterval),
                      .double_every = static_cast<uint64_t>(schedule->doubleEvery),
                      .max_interval = static_cast<uint64_t>(schedule->maxInterval)};
}

Status Create(onebitSync_t* handle, onebitCompressor_t compressor,
              const onebitSyncSchedule_t* api_schedule) {
  if (handle == nullptr) return Error(Code::kInvalidArgument, "sync is NULL");
  ONEBIT_TRY(onebit::CheckHandle(compressor, "compressor"));
  ONEBIT_ASSIGN_OR_RETURN(const SyncSchedule schedule, ReadSchedule(api_schedule));
  ONEBIT_TRY(CheckNonePending(compressor->pending, "compressor"));
  ONEBIT_ASSIGN_OR_RETURN(const CompressorUse use, CompressorUse::Begin(compressor));
  const onebit::Compressor& state = compressor->planned.compressor;
  const auto collective = compressor->planned.plan->key.collective;
  if (state.config().type != onebit::kernels::DataType::kF32 ||
      collective != onebit::Collective::kAllReduce) {
    return Error(Code::kInvalidArgument,
                 "compressor of tensor {} is for {} of {}: a sync needs allreduce of float32",
                 state.config().tensor_id, onebit::NameOf(collective),
                 onebit::NameOf(state.config().type));
  }
  if (!state.config().codec.has_verdict()) {
    return Error(Code::kInvalidArgument,
                 "compressor of tensor {} is plain {}: a sync needs onebitModeEf or "
                 "onebitCodecSign, whose calls tell every rank of a NaN",
                 state.config().tensor_id, state.config().codec.Name());
  }
  if (state.op() == onebit::ReduceOp::kSum) {
    return Error(
        Code::kInvalidUsage,
        "compressor of tensor {} was used with onebitSum; call onebitCompressorReset first",
        state.config().tensor_id);
  }
  if (state.config().is_weighted) {
    return Error(Code::kInvalidUsage,
                 "compressor of tensor {} has a weight (onebitCompressorSetWeight), but the steps "
                 "of a sync have weights of their own: make another compressor",
                 state.config().tensor_id);
  }
  if (compressor->has_sync) {
    return Error(Code::kInvalidUsage, "compressor of tensor {} already has a sync",
                 state.config().tensor_id);
  }
  ONEBIT_ASSIGN_OR_RETURN(OneBitSync sync, OneBitSync::Create(state.config(), schedule));
  *handle = new onebitSync_s{compressor, std::move(sync)};
  compressor->has_sync = true;
  return OkStatus();
}

// The buffers may be equal. Any other overlap would be overwritten while it is read.
Status CheckBuffers(const float* x, const float* out, size_t count) {
  if (count == 0) return OkStatus();
  if (x == nullptr) return Error(Code::kInvalidArgument, "x is NULL");
  if (out == nullptr) return Error(Code::kInvalidArgument, "out is NULL");
  const auto x_address = reinterpret_cast<uintptr_t>(x);
  const auto out_address = reinterpret_cast<uintptr_t>(out);
  if (x_address % sizeof(float) != 0 || out_address % sizeof(float) != 0) {
    return Error(Code::kInvalidArgument, "x or out is not aligned to its element size of 4 bytes");
  }
  const size_t distance =
      x_address < out_address ? out_address - x_address : x_address - out_address;
  if (distance != 0 && distance < count * sizeof(float)) {
    return Error(
        Code::kInvalidArgument,
        "x and out overlap, but are not equal: pass one buffer for both, or two separate ones");
  }
  return OkStatus();
}

// Checks the buffers and the stream of a sync on a device.
Status CheckLocations(const onebit::Compressor::Config& config, const float* x, const float* out,
                      onebitStream_t stream) {
  if (onebit::IsHostStream(stream)) {
    return Error(Code::kInvalidArgument,
                 "the residuals are {}, but stream was made by onebitStreamCreate and works on "
                 "host memory: pass a CUDA stream",
                 Describe(config.location));
  }
  if (config.count == 0) return OkStatus();
  for (const auto& [buffer, name] : {std::pair(x, "x"), std::pair(out, "out")}) {
    ONEBIT_ASSIGN_OR_RETURN(const onebit::MemoryLocation location,
                            config.devices->LocationOf(buffer));
    if (location == config.location) continue;
    return Error(Code::kInvalidArgument, "{} is {}, but the residuals of the compressor are {}",
                 name, Describe(location), Describe(config.location));
  }
  return OkStatus();
}

// The allreduce of a sync on a device, which runs on the stream of its step.
class AllReduceOnDevice final : public OneBitSync::AllReduce {
 public:
  explicit AllReduceOnDevice(onebit::ApiCall&& call) : call_(std::move(call)) {}

  Status Make(uint32_t weight_bits) override {
    call_.request.sync_weight = weight_bits;
    return onebit::RunOnDevice(call_, [](const onebit::ApiCall& call) {
      return onebit::RunCall(call.comm->engine, call.request).status();
    });
  }
  Status FindFailure() override {
    static_cast<void>(call_.comm->engine.CheckStreams());  // finds late failures
    return call_.comm->comm->FindFailure();
  }

 private:
  onebit::ApiCall call_;
};

Status StepOnDevice(onebitSync_t handle, const float* x, float weight, float* out, int* did_sync,
                    float* weight_sum, onebitStream_t stream) {
  const onebitCompressor_t compressor = handle->compressor;
  const onebit::Compressor::Config& config = compressor->planned.compressor.config();
  const onebitComm_t comm = compressor->id.comm();
  ONEBIT_TRY(CheckLocations(config, x, out, stream));
  ONEBIT_TRY(CheckNonePending(compressor->pending, "compressor"));
  ONEBIT_ASSIGN_OR_RETURN(const CompressorUse use, CompressorUse::Begin(compressor));
  ONEBIT_ASSIGN_OR_RETURN(const auto scope,
                          onebit::DeviceScope::Enter(*config.devices, config.location.device));
  AllReduceOnDevice call({comm,
                          compressor,
                          {.collective = onebit::Collective::kAllReduce,
                           .sendbuff = out,
                           .recvbuff = out,
                           .count = config.count,
                           .op = onebit::ReduceOp::kAvg,
                           .location = config.location,
                           .stream = stream,
                           .compressor = &compressor->planned}});
  ONEBIT_ASSIGN_OR_RETURN(const OneBitSync::Outcome outcome,
                          handle->sync.StepOnDevice(comm == nullptr ? nullptr : &call,
                                                    &compressor->planned, x, weight, out, stream));
  *did_sync = outcome.did_sync ? 1 : 0;
  if (outcome.did_sync) *weight_sum = outcome.weight_sum;
  return OkStatus();
}

Status Step(onebitSync_t handle, const float* x, float weight, float* out, int* did_sync,
            float* weight_sum, onebitStream_t stream) {
  ONEBIT_TRY(onebit::CheckHandle(handle, "sync"));
  if (did_sync == nullptr) return Error(Code::kInvalidArgument, "didSync is NULL");
  if (weight_sum == nullptr) return Error(Code::kInvalidArgument, "weightSum is NULL");
  if (onebit::IsInsideGroup()) {
    return Error(Code::kInvalidUsage,
                 "a sync cannot be part of a group: make its step before or after the group");
  }
  ONEBIT_TRY(CheckBuffers(x, out, handle->sync.count()));
  if (handle->sync.is_on_device()) {
    Status status = StepOnDevice(handle, x, weight, out, did_sync, weight_sum, stream);
    return FailOnDeviceError(handle->compressor->id.comm(), std::move(status));
  }
  ONEBIT_TRY(onebit::CheckHostMemory(out, "a sync whose compressor is of host memory"));
  const onebitCompressor_t compressor = handle->compressor;
  const onebitComm_t comm = compressor->id.comm();
  onebit::ApiCall call = {comm, compressor, {.stream = stream}};
  const auto step = [=](const onebit::ApiCall& made) -> Status {
    ONEBIT_ASSIGN_OR_RETURN(const CompressorUse use, CompressorUse::Begin(compressor));
    onebit::Engine* const engine = made.comm == nullptr ? nullptr : &made.comm->engine;
    ONEBIT_ASSIGN_OR_RETURN(const OneBitSync::Outcome outcome,
                            handle->sync.Step(engine, &compressor->planned, x, weight, out));
    *did_sync = outcome.did_sync ? 1 : 0;
    if (outcome.did_sync) *weight_sum = outcome.weight_sum;
    return OkStatus();
  };
  if (comm == nullptr) {  // a step that sends nothing needs no communicator
    if (stream == nullptr) return step(call);
    return Error(Code::kDetached,
                 "the communicator of the sync's compressor was destroyed: only steps that have no "
                 "stream and send nothing are still possible");
  }
  return onebit::RunOnHost(std::move(call), step);
}

Status Export(onebitSync_t handle, const onebitStateKind_t& api_kind, void* buffer, size_t* bytes) {
  ONEBIT_TRY(onebit::CheckHandle(handle, "sync"));
  if (bytes == nullptr) return Error(Code::kInvalidArgument, "bytes is NULL");
  ONEBIT_ASSIGN_OR_RETURN(const StateKind kind, onebit::StateKindOf(api_kind));
  const onebitCompressor_t compressor = handle->compressor;
  ONEBIT_TRY(CheckNonePending(compressor->pending, "compressor"));
  ONEBIT_ASSIGN_OR_RETURN(const CompressorUse use, CompressorUse::Begin(compressor));
  handle->sync.ResolveFailedSync(compressor->planned.compressor);
  const size_t needed = handle->sync.StateBytes(compressor->planned, kind);
  ONEBIT_TRY(onebit::CheckRoom("sync", needed, buffer, bytes));
  if (buffer == nullptr) return OkStatus();
  auto* const blob = static_cast<std::byte*>(buffer);
  onebit::ScopedHostResidency stay(compressor);
  ONEBIT_TRY(stay.Begin());
  Status status;
  if (kind == StateKind::kGlobal) {
    status = onebit::ExportGlobally(*compressor, [&](onebit::Comm& comm, onebit::Engine& engine) {
      return handle->sync.ExportGlobal(comm, engine, compressor->planned, blob);
    });
  } else {
    status = handle->sync.ExportRank(compressor->planned, blob);
  }
  ONEBIT_TRY(stay.End());
  return status;
}

}  // namespace

onebitResult_t onebitSyncCreate(onebitSync_t* sync, onebitCompressor_t compressor,
                                const onebitSyncSchedule_t* schedule) {
  return Guard([&] { return Create(sync, compressor, schedule); });
}

onebitResult_t onebitSyncDestroy(onebitSync_t sync) {
  return Guard([&]() -> Status {
    if (sync == nullptr || !sync->origin.is_here()) return OkStatus();
    // Holding the compressor keeps other threads from using the sync.
    ONEBIT_TRY(CheckNonePending(sync->compressor->pending, "compressor"));
    ONEBIT_ASSIGN_OR_RETURN(const CompressorUse use, CompressorUse::Begin(sync->compressor));
    // If the device cannot tell whether it still uses the sync, freeing waits for the device.
    static_cast<void>(sync->sync.Drain());
    sync->compressor->has_sync = false;
    delete sync;
    return OkStatus();
  });
}

onebitResult_t onebitSyncStep(onebitSync_t sync, const float* x, float weight, float* out,
                              int* didSync, float* weightSum, onebitStream_t stream) {
  return Guard([&] { return Step(sync, x, weight, out, didSync, weightSum, stream); });
}

onebitResult_t onebitSyncNext(onebitSync_t sync, size_t steps, char* text) {
  return Guard([&]() -> Status {
    ONEBIT_TRY(onebit::CheckHandle(sync, "sync"));
    if (text == nullptr) return Error(Code::kInvalidArgument, "text is NULL");
    ONEBIT_TRY(CheckNonePending(sync->compressor->pending, "compressor"));
    ONEBIT_ASSIGN_OR_RETURN(const CompressorUse use, CompressorUse::Begin(sync->compressor));
    sync->sync.ResolveFailedSync(sync->compressor->planned.compressor);
    sync->sync.Describe({text, steps});
    text[steps] = '\0';
    return OkStatus();
  });
}

onebitResult_t onebitSyncExport(onebitSync_t sync, onebitStateKind_t kind, void* buffer,
                                size_t* bytes) {
  return Guard([&] { return Export(sync, kind, buffer, bytes); });
}

onebitResult_t onebitSyncImport(onebitSync_t sync, const void* blob, size_t bytes) {
  return Guard([&]() -> Status {
    ONEBIT_TRY(onebit::CheckHandle(sync, "sync"));
    if (blob == nullptr) return Error(Code::kInvalidArgument, "blob is NULL");
    ONEBIT_TRY(CheckNonePending(sync->compressor->pending, "compressor"));
    ONEBIT_ASSIGN_OR_RETURN(const CompressorUse use, CompressorUse::Begin(sync->compressor));
    const std::span state(static_cast<const std::byte*>(blob), bytes);
    return onebit::ImportWithLevels(
        onebit::OneBitSync::CompressorStateOf(state), sync->compressor,
        [&] { return sync->sync.Import(state, &sync->compressor->planned); });
  });
}
