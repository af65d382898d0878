// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Implements optim.h: argument checks, one thread at a time, Status to onebitResult_t.
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "base/fork.h"
#include "base/group_depth.h"
#include "base/guard.h"
#include "base/state_request.h"
#include "base/status.h"
#include "kernels/types.h"
#include "onebit/optim.h"
#include "optim/create.h"
#include "optim/optimizer_base.h"
#include "optim/options.h"
#include "optim/parameter_location.h"

struct onebitOptimizer_s {
  std::unique_ptr<onebit::optim::Optimizer> impl;
  onebitStream_t cuda_stream = nullptr;  // the last stream that was checked
  std::atomic_flag is_in_use;
  const onebit::Origin origin = {};
};

namespace onebit::optim {
namespace {

// Marks a handle as in use for the duration of a call.
class Use {
 public:
  explicit Use(onebitOptimizer_t optimizer)
      : optimizer_(optimizer), is_ours_(!optimizer->is_in_use.test_and_set()) {}
  ~Use() {
    if (is_ours_) optimizer_->is_in_use.clear();
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  Status status() const {
    if (is_ours_) return OkStatus();
    return Error(Code::kInvalidUsage, "another call is using the optimizer");
  }

 private:
  const onebitOptimizer_t optimizer_;
  const bool is_ours_;
};

Status CheckNotNull(const void* pointer, const char* name) {
  if (pointer != nullptr) return OkStatus();
  return Error(Code::kInvalidArgument, "{} is NULL", name);
}

Status CheckAligned(const void* pointer, size_t alignment, const char* name) {
  if (reinterpret_cast<uintptr_t>(pointer) % alignment == 0) return OkStatus();
  return Error(Code::kInvalidArgument, "{} is not aligned to its element type", name);
}

// The structure must have at least all members of the first version.
template <typename T>
Status CheckSize(const T* structure, const char* name) {
  if (structure->size >= sizeof(T)) return OkStatus();
  return Error(Code::kInvalidArgument, "{}->size is {}, but must be its sizeof", name,
               structure->size);
}

Status Create(onebitOptimizer_t* optimizer, onebitComm_t comm, size_t count, float* parameters,
              const onebitOptimizerConfig_t* config) {
  ONEBIT_TRY(CheckNotNull(optimizer, "optimizer"));
  ONEBIT_TRY(CheckNotNull(comm, "comm"));
  ONEBIT_TRY(CheckAligned(parameters, sizeof(float), "parameters"));
  ONEBIT_ASSIGN_OR_RETURN(auto impl, CreateOptimizer(comm, count, parameters, config));
  *optimizer =
      new onebitOptimizer_s{.impl = std::move(impl), .cuda_stream = nullptr, .is_in_use = {}};
  return OkStatus();
}

Status Destroy(onebitOptimizer_t optimizer) {
  if (optimizer == nullptr || !optimizer->origin.is_here()) return OkStatus();
  if (optimizer->is_in_use.test_and_set()) {
    return Error(Code::kInvalidUsage, "another call is using the optimizer");
  }
  optimizer->impl->Drain();
  delete optimizer;
  return OkStatus();
}

Status CheckSegment(const Optimizer& impl, size_t segment) {
  const size_t segment_count = impl.table().segments().size();
  if (segment < segment_count) return OkStatus();
  return Error(Code::kInvalidArgument, "segment is {}, but there are {} segments, counted from 0",
               segment, segment_count);
}

Result<kernels::DataType> CheckGradient(const Optimizer& impl, const char* name, void* gradient,
                                        onebitDataType_t datatype) {
  ONEBIT_ASSIGN_OR_RETURN(const kernels::DataType type, ReadDataType("datatype", datatype));
  ONEBIT_TRY(CheckAligned(gradient, kernels::BytesOf(type), name));
  ONEBIT_TRY(CheckLocation(name, gradient, impl.arithmetic().location()));
  return type;
}

Status AddGradient(onebitOptimizer_t optimizer, size_t segment, void* gradient,
                   onebitDataType_t datatype) {
  ONEBIT_TRY(CheckHandle(optimizer, "optimizer"));
  const Use use(optimizer);
  ONEBIT_TRY(use.status());
  Optimizer& impl = *optimizer->impl;
  if (segment == ONEBIT_ALL_SEGMENTS && gradient == nullptr) {
    impl.gradients().Forget();
    return OkStatus();
  }
  ONEBIT_TRY(CheckSegment(impl, segment));
  ONEBIT_ASSIGN_OR_RETURN(const kernels::DataType type,
                          CheckGradient(impl, "gradient", gradient, datatype));
  return impl.gradients().Add(segment, gradient, type);
}

// Completes the list of the step's gradients: from one buffer, or as they were handed over.
Status FindGradients(Optimizer& impl, void* buffer, onebitDataType_t datatype) {
  if (buffer == nullptr) return impl.gradients().CheckComplete();
  ONEBIT_ASSIGN_OR_RETURN(const kernels::DataType type,
                          CheckGradient(impl, "gradients", buffer, datatype));
  return impl.gradients().SetBuffer(buffer, type);
}

// Forgets, at the end of a scope, the gradients of the step that was made in it.
class GradientScope {
 public:
  explicit GradientScope(GradientList& gradients) : gradients_(gradients) {}
  ~GradientScope() { gradients_.Forget(); }
  GradientScope(const GradientScope&) = delete;
  GradientScope& operator=(const GradientScope&) = delete;

 private:
  GradientList& gradients_;
};

// Checks the numbers of a step.
Result<StepInput> ReadStep(double learning_rate, double grad_scale, double max_grad_norm) {
  const auto is_finite_f32 = [](double value) { return std::isfinite(static_cast<float>(value)); };
  if (!(learning_rate >= 0) || !is_finite_f32(learning_rate)) {
    return Error(Code::kInvalidArgument, "learning_rate is {}, but must be finite and >= 0",
                 learning_rate);
  }
  if (!(static_cast<float>(grad_scale) > 0) || !is_finite_f32(grad_scale)) {
    return Error(Code::kInvalidArgument,
                 "grad_scale is {}, but must be finite and positive in fp32", grad_scale);
  }
  if (!(max_grad_norm >= 0)) {
    return Error(Code::kInvalidArgument,
                 "max_grad_norm is {}, but must be positive, or 0 for no clipping", max_grad_norm);
  }
  return StepInput{{learning_rate, grad_scale, max_grad_norm}, {}};
}

// Rejects calls that need the results of their collectives at once.
Status CheckNoGroup(const char* function) {
  if (!IsInsideGroup()) return OkStatus();
  return Error(Code::kInvalidUsage, "{} was called inside a group: call onebitGroupEnd first",
               function);
}

// Rejects streams of onebitStreamCreate, whose handles CUDA would dereference.
Status CheckStream(const onebitOptimizer_s& optimizer, onebitStream_t stream) {
  if (stream == nullptr) return OkStatus();
  if (!optimizer.impl->arithmetic().is_deferred()) {
    return Error(Code::kInvalidArgument,
                 "stream must be NULL: on a stream, make this call from a function queued with "
                 "onebitStreamLaunchHostFunc");
  }
  if (stream == optimizer.cuda_stream || onebitStreamQuery(stream) == onebitInvalidArgument) {
    return OkStatus();
  }
  return Error(Code::kInvalidArgument,
               "the parameters are {}, but stream was made by onebitStreamCreate and works on host "
               "memory: pass a CUDA stream",
               Describe(optimizer.impl->arithmetic().location()));
}

Status Step(onebitOptimizer_t optimizer, void* gradients, onebitDataType_t datatype,
            double learning_rate, double grad_scale, double max_grad_norm,
            onebitStepResult_t* result, onebitStream_t stream) {
  ONEBIT_TRY(CheckHandle(optimizer, "optimizer"));
  const Use use(optimizer);
  ONEBIT_TRY(use.status());
  ONEBIT_TRY(CheckNoGroup("onebitOptimizerStep"));
  Optimizer& impl = *optimizer->impl;
  ONEBIT_TRY(CheckStream(*optimizer, stream));
  optimizer->cuda_stream = stream;
  if (result != nullptr) ONEBIT_TRY(CheckSize(result, "result"));
  ONEBIT_ASSIGN_OR_RETURN(const StepInput input,
                          ReadStep(learning_rate, grad_scale, max_grad_norm));
  ONEBIT_TRY(FindGradients(impl, gradients, datatype));

  const GradientScope taken(impl.gradients());
  ONEBIT_TRY(impl.arithmetic().Begin(stream));
  const ArithmeticScope scope(impl.arithmetic());
  StepOutcome outcome;
  ONEBIT_TRY(impl.Step(input, &outcome));
  if (result != nullptr) {
    result->skipped = outcome.is_skipped ? 1 : 0;
    result->stage = outcome.stage;
    result->step = impl.step();
    result->grad_norm = outcome.grad_norm;
    result->bytes_sent = outcome.bytes_sent;
  }
  return OkStatus();
}

Status Rebind(onebitOptimizer_t optimizer, onebitComm_t newcomm, int* source) {
  ONEBIT_TRY(CheckHandle(optimizer, "optimizer"));
  ONEBIT_TRY(CheckNotNull(newcomm, "newcomm"));
  ONEBIT_TRY(CheckNotNull(source, "source"));
  const Use use(optimizer);
  ONEBIT_TRY(use.status());
  ONEBIT_TRY(CheckNoGroup("onebitOptimizerRebind"));
  ONEBIT_TRY(optimizer->impl->arithmetic().BeginAlone());
  const ArithmeticScope scope(optimizer->impl->arithmetic());
  ONEBIT_ASSIGN_OR_RETURN(*source, optimizer->impl->Rebind(newcomm));
  return OkStatus();
}

Status GetStats(onebitOptimizer_t optimizer, onebitOptimizerStats_t* stats) {
  ONEBIT_TRY(CheckHandle(optimizer, "optimizer"));
  ONEBIT_TRY(CheckNotNull(stats, "stats"));
  ONEBIT_TRY(CheckSize(stats, "stats"));
  const Use use(optimizer);
  ONEBIT_TRY(use.status());
  optimizer->impl->GetStats(stats);
  return OkStatus();
}

Status GetTrustRatio(onebitOptimizer_t optimizer, size_t segment, onebitTrustRatio_t* out) {
  ONEBIT_TRY(CheckHandle(optimizer, "optimizer"));
  ONEBIT_TRY(CheckNotNull(out, "ratio"));
  ONEBIT_TRY(CheckSize(out, "ratio"));
  const Use use(optimizer);
  ONEBIT_TRY(use.status());
  ONEBIT_TRY(CheckSegment(*optimizer->impl, segment));
  const std::optional<TrustRatio> ratio = optimizer->impl->trust_ratio(segment);
  if (!ratio) {
    return Error(
        Code::kInvalidUsage,
        "only onebitAlgorithmOneBitLamb has trust ratios; this optimizer has another algorithm");
  }
  out->coefficient = ratio->coefficient;
  out->average = ratio->average;
  out->factor = ratio->factor;
  out->momentumScale = ratio->momentum_scale;
  return OkStatus();
}

Status SetRates(onebitOptimizer_t optimizer, size_t segment, double lr_scale, double weight_decay) {
  ONEBIT_TRY(CheckHandle(optimizer, "optimizer"));
  const Use use(optimizer);
  ONEBIT_TRY(use.status());
  ONEBIT_TRY(CheckSegment(*optimizer->impl, segment));
  return optimizer->impl->SetRates(segment, lr_scale, weight_decay);
}

Status Sync(onebitOptimizer_t optimizer) {
  ONEBIT_TRY(CheckHandle(optimizer, "optimizer"));
  const Use use(optimizer);
  ONEBIT_TRY(use.status());
  ONEBIT_TRY(CheckNoGroup("onebitOptimizerSync"));
  ONEBIT_TRY(optimizer->impl->arithmetic().BeginAlone());
  const ArithmeticScope scope(optimizer->impl->arithmetic());
  return optimizer->impl->Sync();
}

Status Export(onebitOptimizer_t optimizer, const onebitStateKind_t& api_kind, void* buffer,
              size_t* bytes) {
  ONEBIT_TRY(CheckHandle(optimizer, "optimizer"));
  ONEBIT_TRY(CheckNotNull(bytes, "bytes"));
  ONEBIT_ASSIGN_OR_RETURN(const bool is_global, IsGlobalKind(api_kind));
  const StateKind kind = is_global ? StateKind::kOptimizerGlobal : StateKind::kOptimizerRank;
  const Use use(optimizer);
  ONEBIT_TRY(use.status());
  ONEBIT_TRY(CheckNoGroup("onebitOptimizerExport"));
  Optimizer& impl = *optimizer->impl;
  ONEBIT_ASSIGN_OR_RETURN(const size_t needed, impl.StateBytes(kind));
  ONEBIT_TRY(CheckRoom("optimizer", needed, buffer, bytes));
  if (buffer == nullptr) return OkStatus();
  ONEBIT_TRY(impl.arithmetic().BeginAlone());
  const ArithmeticScope scope(impl.arithmetic());
  return impl.Export(kind, {static_cast<std::byte*>(buffer), needed});
}

Status Import(onebitOptimizer_t optimizer, const void* blob, size_t bytes) {
  ONEBIT_TRY(CheckHandle(optimizer, "optimizer"));
  ONEBIT_TRY(CheckNotNull(blob, "blob"));
  const Use use(optimizer);
  ONEBIT_TRY(use.status());
  ONEBIT_TRY(CheckNoGroup("onebitOptimizerImport"));
  ONEBIT_TRY(optimizer->impl->arithmetic().BeginAlone());
  const ArithmeticScope scope(optimizer->impl->arithmetic());
  return optimizer->impl->Import({static_cast<const std::byte*>(blob), bytes});
}

Status Rewarm(onebitOptimizer_t optimizer, int64_t steps) {
  ONEBIT_TRY(CheckHandle(optimizer, "optimizer"));
  const Use use(optimizer);
  ONEBIT_TRY(use.status());
  ONEBIT_TRY(CheckNoGroup("onebitOptimizerRewarm"));
  ONEBIT_TRY(optimizer->impl->arithmetic().BeginAlone());
  const ArithmeticScope scope(optimizer->impl->arithmetic());
  return optimizer->impl->Rewarm(steps);
}

// Finds a moment of a segment, or of all, and calls `body` with it and the optimizer.
template <typename Body>
Status WithMoment(onebitOptimizer_t optimizer, size_t segment, const char* name,
                  const float* values, Body body) {
  ONEBIT_TRY(CheckHandle(optimizer, "optimizer"));
  ONEBIT_TRY(CheckNotNull(name, "name"));
  const Use use(optimizer);
  ONEBIT_TRY(use.status());
  Optimizer& impl = *optimizer->impl;
  if (segment != ONEBIT_ALL_SEGMENTS) ONEBIT_TRY(CheckSegment(impl, segment));
  ONEBIT_ASSIGN_OR_RETURN(const Moment moment, impl.FindMoment(name, segment));
  if (!moment.elements.empty()) ONEBIT_TRY(CheckNotNull(values, "values"));
  ONEBIT_TRY(impl.arithmetic().BeginAlone());
  const ArithmeticScope scope(impl.arithmetic());
  return body(impl, moment);
}

}  // namespace
}  // namespace onebit::optim

namespace {

template <typename Body>
onebitResult_t Guard(Body&& body) noexcept {
  return onebit::GuardAs<onebitResult_t>(std::forward<Body>(body));
}

}  // namespace

onebitResult_t onebitOptimizerCreate(onebitOptimizer_t* optimizer, onebitComm_t comm, size_t count,
                                     float* parameters, const onebitOptimizerConfig_t* config) {
  return Guard([&] { return onebit::optim::Create(optimizer, comm, count, parameters, config); });
}

onebitResult_t onebitOptimizerDestroy(onebitOptimizer_t optimizer) {
  return Guard([&] { return onebit::optim::Destroy(optimizer); });
}

onebitResult_t onebitOptimizerAddGradient(onebitOptimizer_t optimizer, size_t segment,
                                          void* gradient, onebitDataType_t datatype) {
  return Guard([&] { return onebit::optim::AddGradient(optimizer, segment, gradient, datatype); });
}

onebitResult_t onebitOptimizerStep(onebitOptimizer_t optimizer, void* gradients,
                                   onebitDataType_t datatype, double learning_rate,
                                   double grad_scale, double max_grad_norm,
                                   onebitStepResult_t* result, onebitStream_t stream) {
  return Guard([&] {
    return onebit::optim::Step(optimizer, gradients, datatype, learning_rate, grad_scale,
                               max_grad_norm, result, stream);
  });
}

onebitResult_t onebitOptimizerRebind(onebitOptimizer_t optimizer, onebitComm_t newcomm,
                                     int* source) {
  return Guard([&] { return onebit::optim::Rebind(optimizer, newcomm, source); });
}

onebitResult_t onebitOptimizerGetStats(onebitOptimizer_t optimizer, onebitOptimizerStats_t* stats) {
  return Guard([&] { return onebit::optim::GetStats(optimizer, stats); });
}

onebitResult_t onebitOptimizerGetTrustRatio(onebitOptimizer_t optimizer, size_t segment,
                                            onebitTrustRatio_t* ratio) {
  return Guard([&] { return onebit::optim::GetTrustRatio(optimizer, segment, ratio); });
}

onebitResult_t onebitOptimizerSync(onebitOptimizer_t optimizer) {
  return Guard([&] { return onebit::optim::Sync(optimizer); });
}

onebitResult_t onebitOptimizerGetMoment(onebitOptimizer_t optimizer, size_t segment,
                                        const char* name, float* values) {
  return Guard([&] {
    return onebit::optim::WithMoment(
        optimizer, segment, name, values,
        [values](auto& impl, const auto& moment) { return impl.ReadMoment(moment, values); });
  });
}

onebitResult_t onebitOptimizerSetRates(onebitOptimizer_t optimizer, size_t segment, double lr_scale,
                                       double weight_decay) {
  return Guard([&] { return onebit::optim::SetRates(optimizer, segment, lr_scale, weight_decay); });
}

onebitResult_t onebitOptimizerSetMoment(onebitOptimizer_t optimizer, size_t segment,
                                        const char* name, const float* values) {
  return Guard([&] {
    return onebit::optim::WithMoment(
        optimizer, segment, name, values,
        [values](auto& impl, const auto& moment) { return impl.WriteMoment(moment, values); });
  });
}

onebitResult_t onebitOptimizerExport(onebitOptimizer_t optimizer, onebitStateKind_t kind,
                                     void* buffer, size_t* bytes) {
  return Guard([&] { return onebit::optim::Export(optimizer, kind, buffer, bytes); });
}

onebitResult_t onebitOptimizerImport(onebitOptimizer_t optimizer, const void* blob, size_t bytes) {
  return Guard([&] { return onebit::optim::Import(optimizer, blob, bytes); });
}

onebitResult_t onebitOptimizerRewarm(onebitOptimizer_t optimizer, int64_t steps) {
  return Guard([&] { return onebit::optim::Rewarm(optimizer, steps); });
}
