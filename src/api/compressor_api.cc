// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Compressors of the C API.
#include <cmath>

#include "api/compressor_config.h"
#include "api/handles.h"
#include "api/host_stream_calls.h"
#include "api/scoped_host_residency.h"
#include "codec/packet.h"
#include "kernels/optimizer.h"
#include "state/rebind.h"

using onebit::CheckNonePending;
using onebit::Code;
using onebit::CompressorUse;
using onebit::Error;
using onebit::Guard;
using onebit::OkStatus;
using onebit::Result;
using onebit::Status;
using onebit::TensorIdUse;

Result<TensorIdUse> TensorIdUse::Begin(std::shared_ptr<CommLink> link, uint32_t id) {
  const std::lock_guard lock(link->mutex);
  if (!link->tensor_ids.insert(id).second) {
    return Error(Code::kInvalidArgument,
                 "compressor config: tensorId {} is taken by another compressor of this "
                 "communicator (the default is the number of compressors created before)",
                 id);
  }
  return TensorIdUse(std::move(link), id);
}

TensorIdUse::~TensorIdUse() {
  if (link_ == nullptr) return;
  const std::lock_guard lock(link_->mutex);
  link_->tensor_ids.erase(id_);
}

Result<CompressorUse> CompressorUse::Begin(onebitCompressor_t compressor) {
  if (compressor->is_in_use.exchange(true, std::memory_order_acquire)) {
    return Error(Code::kInvalidUsage,
                 "another call, or an open group, is using this compressor (tensor id {})",
                 compressor->planned.compressor.config().tensor_id);
  }
  return CompressorUse(compressor);
}

Result<std::optional<CompressorUse>> onebit::BeginUse(onebitCompressor_t compressor) {
  if (compressor == nullptr) return std::optional<CompressorUse>();
  ONEBIT_ASSIGN_OR_RETURN(CompressorUse use, CompressorUse::Begin(compressor));
  return std::optional<CompressorUse>(std::move(use));
}

namespace {

Status Create(onebitCompressor_t* handle, onebitComm_t comm, size_t count, onebitDataType_t type,
              const onebitCompressorConfig_t* config) {
  if (handle == nullptr) return Error(Code::kInvalidArgument, "compressor is NULL");
  ONEBIT_TRY(onebit::CheckHandle(comm, "comm"));
  ONEBIT_TRY(CheckNonePending(comm->pending, "communicator"));
  ONEBIT_TRY(comm->comm->Acquire());
  const onebit::CommUse use(*comm->comm);
  ONEBIT_ASSIGN_OR_RETURN(const auto parsed, onebit::ParseCompressorConfig(
                                                 config, count, type, comm->comm->next_tensor_id(),
                                                 static_cast<uint32_t>(comm->comm->ranks())));
  ONEBIT_ASSIGN_OR_RETURN(auto id, TensorIdUse::Begin(comm->link, parsed.tensor_id));
  ONEBIT_ASSIGN_OR_RETURN(auto planned, comm->engine.CreateCompressor(parsed));
  if (config != nullptr && config->mask != nullptr) {
    ONEBIT_TRY(planned.compressor.SetMask(config->mask));
  }
  std::optional<onebit::LosslessCopy> lossless;
  if (parsed.codec.is_lossless()) {
    ONEBIT_ASSIGN_OR_RETURN(lossless, onebit::LosslessCopy::Create(planned.compressor.config()));
  }
  *handle = new onebitCompressor_s{
      .planned = std::move(planned), .id = std::move(id), .lossless = std::move(lossless)};
  comm->comm->CountTensor();
  return OkStatus();
}

// Moves device residuals to the host for the rebind, and back. The other ranks learn of an
// obstacle.
Result<int> RebindOnHost(onebitComm_t comm, onebitCompressor_t compressor, Status obstacle) {
  const onebit::Compressor::Config& config = compressor->planned.compressor.config();
  const onebit::StreamEngine* const stream = comm->engine.stream();
  if (obstacle.ok() && stream != nullptr) obstacle = stream->CheckResidualLocation(config.location);
  // Memory for later calls is then allocated where kernels can reach it.
  if (obstacle.ok() && stream == nullptr && config.location.is_device()) {
    obstacle = comm->engine.UseDevice(*config.devices, config.location.device);
  }
  onebit::ScopedHostResidency stay(compressor);
  if (obstacle.ok()) obstacle = stay.Begin();
  auto source = onebit::Rebind(*comm->comm, comm->engine, &compressor->planned, obstacle);
  ONEBIT_TRY(stay.End());
  return source;
}

// Takes a compressor of a broadcast to another communicator. Local: its next call finds out which
// ranks hold the same.
Status RebindLossless(onebitCompressor_t compressor, onebitComm_t comm) {
  onebit::PlannedCompressor& planned = compressor->planned;
  const onebit::Compressor::Config& config = planned.compressor.config();
  if (config.collective != onebit::Collective::kBroadcast) {
    return Error(
        Code::kInvalidUsage,
        "compressor of tensor {} is for {}, whose parts are those of the ranks: make a new "
        "compressor for the other communicator",
        config.tensor_id, NameOf(config.collective));
  }
  if (compressor->id.comm() == comm) return OkStatus();
  ONEBIT_ASSIGN_OR_RETURN(auto use_of_id, TensorIdUse::Begin(comm->link, config.tensor_id));
  ONEBIT_TRY(comm->engine.TakeLocation(config));
  ONEBIT_ASSIGN_OR_RETURN(planned.plan, comm->engine.PlanCompressor(config));
  planned.comm_id = comm->comm->id();
  compressor->id = std::move(use_of_id);
  comm->comm->ReserveTensorId(config.tensor_id);
  return OkStatus();
}

Status Rebind(onebitCompressor_t compressor, onebitComm_t comm, int* source) {
  ONEBIT_TRY(onebit::CheckHandle(compressor, "compressor"));
  ONEBIT_TRY(onebit::CheckHandle(comm, "newcomm"));
  if (source == nullptr) return Error(Code::kInvalidArgument, "source is NULL");
  ONEBIT_TRY(CheckNonePending(compressor->pending, "compressor"));
  ONEBIT_TRY(CheckNonePending(comm->pending, "communicator"));
  ONEBIT_ASSIGN_OR_RETURN(const CompressorUse in_use, CompressorUse::Begin(compressor));
  ONEBIT_TRY(comm->comm->Enter());
  const onebit::CommUse use(*comm->comm);
  const uint32_t id = compressor->planned.compressor.config().tensor_id;
  if (compressor->lossless.has_value()) {
    *source = -1;  // its next call makes good what a rank lacks
    return RebindLossless(compressor, comm);
  }
  if (compressor->id.comm() == comm) {  // a repeated call
    ONEBIT_ASSIGN_OR_RETURN(*source, RebindOnHost(comm, compressor, OkStatus()));
    return OkStatus();
  }
  // Rebinds even with an obstacle, which it reports to the other ranks: they would wait for this
  // one.
  auto use_of_id = TensorIdUse::Begin(comm->link, id);
  ONEBIT_ASSIGN_OR_RETURN(const int newest, RebindOnHost(comm, compressor, use_of_id.status()));
  compressor->id = std::move(use_of_id).value();
  comm->comm->ReserveTensorId(id);
  *source = newest;
  return OkStatus();
}

Status CheckCanRevert(const onebitCompressor_s& compressor) {
  const onebit::Compressor::Config& config = compressor.planned.compressor.config();
  if (config.codec.is_lossless()) {
    return Error(Code::kInvalidUsage,
                 "compressor of tensor {} is lossless: to take a call back, call it again with the "
                 "elements from before",
                 config.tensor_id);
  }
  if (compressor.has_sync) {
    return Error(Code::kInvalidUsage,
                 "compressor of tensor {} belongs to a sync, which reverts steps itself",
                 config.tensor_id);
  }
  if (config.codec.has_feedback() && !config.is_transactional) {
    return Error(Code::kInvalidUsage,
                 "compressor of tensor {} is not transactional, so it has not kept the residuals "
                 "from before its last call",
                 config.tensor_id);
  }
  return OkStatus();
}

Status SetWeight(onebitCompressor_t compressor, float weight) {
  const onebit::Compressor& state = compressor->planned.compressor;
  const onebit::Compressor::Config& config = state.config();
  if (weight != 0 && !(weight >= onebit::kLeastWeight && weight <= onebit::kMostWeight)) {
    return Error(Code::kInvalidArgument, "weight is {}: it must be 0, or from 2^-64 to 2^64",
                 weight);
  }
  if (!onebit::HasOp(config.collective)) {
    return Error(
        Code::kInvalidUsage,
        "compressor of tensor {} is for {}: only an allreduce or a reduce-scatter supports weights",
        config.tensor_id, onebit::NameOf(config.collective));
  }
  if (config.location.is_device()) {
    return Error(Code::kInvalidUsage,
                 "compressor of tensor {} is for {}: weights work on host memory only",
                 config.tensor_id, Describe(config.location));
  }
  if (compressor->has_sync) {
    return Error(Code::kInvalidUsage,
                 "compressor of tensor {} belongs to a sync, whose steps have weights of their own",
                 config.tensor_id);
  }
  if (config.cuts != nullptr) {
    return Error(Code::kInvalidUsage,
                 "compressor of tensor {} has cuts, which calls with weights do not support",
                 config.tensor_id);
  }
  if (state.op() == onebit::ReduceOp::kSum) {
    return Error(Code::kInvalidUsage,
                 "compressor of tensor {} was used with onebitSum, but weights need onebitAvg; "
                 "call onebitCompressorReset first",
                 config.tensor_id);
  }
  onebitComm_t const comm = compressor->id.comm();
  if (comm == nullptr) {
    return Error(Code::kDetached,
                 "compressor of tensor {}: its communicator was destroyed; rebind it with "
                 "onebitCompressorRebind",
                 config.tensor_id);
  }
  if (!config.is_weighted) {
    ONEBIT_TRY(CheckNonePending(comm->pending, "communicator"));
    ONEBIT_TRY(comm->comm->Acquire());
    const onebit::CommUse in_use(*comm->comm);
    ONEBIT_TRY(comm->engine.PlanWeights(&compressor->planned));
  }
  compressor->planned.compressor.set_weight(weight == 0 ? 0 : weight);  // not -0
  return OkStatus();
}

uint32_t ExchangesOf(const onebit::Plan& plan) {
  if (plan.ranks == 1) return 0;
  if (plan.key.is_one_exchange) return 1;
  if (!plan.key.has_two_levels) return 2;  // the second one may be verdicts
  return onebit::LastExchangeOfLevels(plan.key.collective);
}

// The part of a plan's wire_bytes that goes to other hosts.
uint64_t NetworkBytesOf(const onebit::Plan& plan, const onebit::HostMap& hosts) {
  uint64_t bytes = 0;
  for (const onebit::Step& step : plan.steps) {
    if (step.kind != onebit::StepKind::kSend) continue;
    if (hosts.HostOf(step.peer) == hosts.HostOf(plan.rank)) continue;
    bytes += onebit::kHeaderBytes + step.region.bytes;
  }
  return bytes;
}

}  // namespace

onebitResult_t onebitCompressorCreate(onebitCompressor_t* compressor, onebitComm_t comm,
                                      size_t count, onebitDataType_t datatype,
                                      const onebitCompressorConfig_t* config) {
  return Guard([&] { return Create(compressor, comm, count, datatype, config); });
}

onebitResult_t onebitCompressorDestroy(onebitCompressor_t compressor) {
  return Guard([&]() -> Status {
    if (compressor == nullptr || !compressor->origin.is_here()) return OkStatus();
    ONEBIT_TRY(CheckNonePending(compressor->pending, "compressor"));
    if (compressor->is_in_use.load(std::memory_order_acquire)) {
      return Error(Code::kInvalidUsage, "a call is using this compressor");
    }
    if (compressor->has_sync) {
      return Error(Code::kInvalidUsage,
                   "a sync uses the compressor of tensor {}: call onebitSyncDestroy first",
                   compressor->planned.compressor.config().tensor_id);
    }
    // If it fails, nobody knows whether calls still use the compressor; freeing then waits for the
    // device.
    static_cast<void>(onebit::AwaitStreams(*compressor));
    delete compressor;
    return OkStatus();
  });
}

onebitResult_t onebitCompressorReset(onebitCompressor_t compressor) {
  return Guard([&]() -> Status {
    ONEBIT_TRY(onebit::CheckHandle(compressor, "compressor"));
    ONEBIT_TRY(CheckNonePending(compressor->pending, "compressor"));
    ONEBIT_ASSIGN_OR_RETURN(const CompressorUse use, CompressorUse::Begin(compressor));
    ONEBIT_TRY(onebit::AwaitStreams(*compressor));
    onebit::Compressor& state = compressor->planned.compressor;
    ONEBIT_TRY(state.Refresh());
    state.Reset();
    if (compressor->lossless.has_value()) compressor->lossless->Forget();
    compressor->planned.prepared.reset();
    return state.Publish();
  });
}

onebitResult_t onebitCompressorRevert(onebitCompressor_t compressor) {
  return Guard([&]() -> Status {
    ONEBIT_TRY(onebit::CheckHandle(compressor, "compressor"));
    ONEBIT_TRY(CheckNonePending(compressor->pending, "compressor"));
    ONEBIT_ASSIGN_OR_RETURN(const CompressorUse use, CompressorUse::Begin(compressor));
    onebit::Compressor& state = compressor->planned.compressor;
    ONEBIT_TRY(CheckCanRevert(*compressor));
    ONEBIT_TRY(onebit::AwaitStreams(*compressor));
    ONEBIT_TRY(state.Refresh());
    state.Revert();
    compressor->planned.prepared.reset();
    return state.Publish();
  });
}

onebitResult_t onebitCompressorRebind(onebitCompressor_t compressor, onebitComm_t newcomm,
                                      int* source) {
  return Guard([&] { return Rebind(compressor, newcomm, source); });
}

onebitResult_t onebitCompressorSetMask(onebitCompressor_t compressor, const uint8_t* mask) {
  return Guard([&]() -> Status {
    ONEBIT_TRY(onebit::CheckHandle(compressor, "compressor"));
    ONEBIT_TRY(CheckNonePending(compressor->pending, "compressor"));
    ONEBIT_ASSIGN_OR_RETURN(const CompressorUse use, CompressorUse::Begin(compressor));
    onebit::Compressor& state = compressor->planned.compressor;
    if (mask != nullptr && state.config().collective == onebit::Collective::kAllToAllv) {
      return Error(Code::kInvalidUsage, "mask must be NULL: an all-to-all-v has none");
    }
    if (mask != nullptr && state.config().codec.is_lossless()) {
      return Error(Code::kInvalidUsage,
                   "mask must be NULL: a lossless compressor sends all elements");
    }
    ONEBIT_TRY(onebit::AwaitStreams(*compressor));
    return state.SetMask(mask);
  });
}

onebitResult_t onebitCompressorSetWeight(onebitCompressor_t compressor, float weight) {
  return Guard([&]() -> Status {
    ONEBIT_TRY(onebit::CheckHandle(compressor, "compressor"));
    ONEBIT_TRY(CheckNonePending(compressor->pending, "compressor"));
    ONEBIT_ASSIGN_OR_RETURN(const CompressorUse use, CompressorUse::Begin(compressor));
    return SetWeight(compressor, weight);
  });
}

onebitResult_t onebitCompressorGetStats(onebitCompressor_t compressor,
                                        onebitCompressorStats_t* stats) {
  return Guard([&]() -> Status {
    ONEBIT_TRY(onebit::CheckHandle(compressor, "compressor"));
    if (stats == nullptr) return Error(Code::kInvalidArgument, "stats is NULL");
    ONEBIT_TRY(CheckNonePending(compressor->pending, "compressor"));
    onebit::Compressor& state = compressor->planned.compressor;
    // The first call sets the op. Before it there is nothing to wait for.
    const bool is_unused =
        state.config().collective == onebit::Collective::kAllReduce && !state.op().has_value();
    if (!is_unused) {
      ONEBIT_TRY(onebit::AwaitStreams(*compressor));
      ONEBIT_TRY(state.Refresh());
    }
    const onebit::Plan& plan = *compressor->planned.plan;
    onebitComm_t const comm = compressor->id.comm();
    const onebit::LosslessCopy* const lossless =
        compressor->lossless.has_value() ? &*compressor->lossless : nullptr;
    const onebitCompressorStats_t ours = {
        .size = sizeof(ours),
        .epoch = state.epoch(),
        .nonfinite_calls = state.nonfinite_calls(),
        .residual_resets = state.residual_resets(),
        .residual_bytes = lossless != nullptr ? lossless->bytes() : state.residual_bytes(),
        .exchanges = ExchangesOf(plan),
        .segments = plan.segments(),
        .wire_bytes = lossless != nullptr ? lossless->sent_bytes() : plan.wire_bytes,
        .is_detached = comm == nullptr ? uint64_t{1} : 0,
        .lost_elements = state.lost_elements(),
        .nonfinite_blocks = state.nonfinite_blocks(),
        .empty_rounds = state.empty_rounds(),
        .levels = plan.key.has_two_levels ? uint64_t{2} : 1,
        .network_bytes = lossless != nullptr ? lossless->network_bytes()
                         : comm == nullptr   ? 0
                                             : NetworkBytesOf(plan, comm->comm->hosts()),
        .full_calls = lossless != nullptr ? lossless->full_calls() : 0,
    };
    return onebit::CopyStats(&ours, sizeof(ours), stats);
  });
}

onebitResult_t onebitCompressorGetResidualNorm(onebitCompressor_t compressor, double* norm) {
  return Guard([&]() -> Status {
    ONEBIT_TRY(onebit::CheckHandle(compressor, "compressor"));
    if (norm == nullptr) return Error(Code::kInvalidArgument, "norm is NULL");
    ONEBIT_TRY(CheckNonePending(compressor->pending, "compressor"));
    ONEBIT_ASSIGN_OR_RETURN(const CompressorUse use, CompressorUse::Begin(compressor));
    onebit::ScopedHostResidency stay(compressor);
    ONEBIT_TRY(stay.Begin());
    const onebit::Compressor& state = compressor->planned.compressor;
    const double squares = onebit::kernels::cpu::SumOfSquares(
        state.worker_base(), state.config().residual_type, state.worker_elements());
    ONEBIT_TRY(stay.End());
    *norm = std::sqrt(squares);
    return OkStatus();
  });
}
