// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "sync/one_bit_sync.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/state_blob.h"
#include "exec/run_calls.h"
#include "state/compressor_state.h"

namespace onebit {
namespace {

// Members of the sync section, at their offsets in STATE.md.
struct SyncFields {
  uint64_t count = 0;
  uint64_t step = 0;
  uint64_t last_sync = UINT64_MAX;  // UINT64_MAX: none yet
  uint64_t warmup_steps = 0;
  uint64_t base_interval = 0;
  uint64_t double_every = 0;
  uint64_t max_interval = 0;
  float weight_sum = 0;
  uint32_t zero = 0;
};
static_assert(sizeof(SyncFields) == 64);

std::array<StateSection, 3> SectionsOf(size_t count, const PlannedCompressor& compressor,
                                       StateKind compressor_kind) {
  return {{{SectionTag::kSync, sizeof(SyncFields)},
           {SectionTag::kAccumulator, count * sizeof(float)},
           {SectionTag::kCompressor, StateBytesOf(compressor, compressor_kind)}}};
}

}  // namespace

Result<OneBitSync> OneBitSync::Create(const Compressor::Config& config,
                                      const SyncSchedule& schedule) {
  OneBitSync sync;
  sync.schedule_ = schedule;
  sync.count_ = config.count;
  if (config.location.is_device()) {
    ONEBIT_ASSIGN_OR_RETURN(
        sync.on_device_, DeviceSum::Create(*config.devices, config.location.device, config.count));
    return sync;
  }
  ONEBIT_ASSIGN_OR_RETURN(
      sync.accumulator_,
      Memory::Create({}, nullptr, config.count * sizeof(float), "the sum of a sync"));
  return sync;
}

Result<OneBitSync::Next> OneBitSync::LookAt(float weight, const Compressor& compressor,
                                            bool is_attached) {
  ResolveFailedSync(compressor);
  const float weight_sum = weight_sum_ + weight;
  if (!std::isfinite(weight) || weight < 0 || !std::isfinite(weight_sum)) {
    return Error(
        Code::kInvalidArgument,
        "weight of step {} is {}, but it and the sum of weights must be finite and not negative",
        step_, weight);
  }
  // A mean needs a weight sum other than zero: until then the sync is postponed to the next step.
  const Next next = {.is_sync = schedule_.IsSync(step_, last_sync_) && weight_sum != 0,
                     .weight_sum = weight_sum};
  if (!next.is_sync) return next;
  if (!is_attached) {
    return Error(Code::kDetached,
                 "sync of tensor {}: its communicator was destroyed; rebind the compressor to "
                 "another communicator with onebitCompressorRebind",
                 compressor.config().tensor_id);
  }
  if (compressor.op() == ReduceOp::kSum) {
    return Error(
        Code::kInvalidUsage,
        "compressor of tensor {} was used with onebitSum; call onebitCompressorReset first",
        compressor.config().tensor_id);
  }
  return next;
}

void OneBitSync::AddWeight(const Next& next) {
  weight_sum_ = next.weight_sum;
  ++step_;
}

Status OneBitSync::Failed(const Status& status, uint64_t epoch, float weight_sum) {
  if (!failed_epoch_) failed_epoch_ = epoch;  // another rank may have committed any of the tries
  return Error(status.code(), "{} (sync at step {}, weight sum here {})", status.text(), step_,
               weight_sum);
}

Result<OneBitSync::Outcome> OneBitSync::Step(Engine* engine, PlannedCompressor* compressor,
                                             const float* x, float weight, float* out) {
  ONEBIT_ASSIGN_OR_RETURN(const Next next,
                          LookAt(weight, compressor->compressor, engine != nullptr));
  auto* const sum = reinterpret_cast<float*>(accumulator_.data());
  if (!next.is_sync) {
    for (size_t i = 0; i < count_; ++i) sum[i] += x[i];
    AddWeight(next);
    return Outcome{};
  }
  const uint64_t epoch = compressor->compressor.epoch();
  // The sum is formed in `out`, so that an error leaves u as it is.
  for (size_t i = 0; i < count_; ++i) out[i] = sum[i] + x[i];
  const Status status = RunCall(*engine, {.collective = Collective::kAllReduce,
                                          .sendbuff = out,
                                          .recvbuff = out,
                                          .count = count_,
                                          .op = ReduceOp::kAvg,
                                          .compressor = compressor,
                                          .sync_weight = std::bit_cast<uint32_t>(next.weight_sum)})
                            .status();
  if (!status.ok()) return Failed(status, epoch, next.weight_sum);
  EndInterval();
  return Outcome{.did_sync = true, .weight_sum = next.weight_sum};
}

Result<OneBitSync::Outcome> OneBitSync::StepOnDevice(AllReduce* call, PlannedCompressor* compressor,
                                                     const float* x, float weight, float* out,
                                                     onebitStream_t stream) {
  Compressor& state = compressor->compressor;
  ONEBIT_ASSIGN_OR_RETURN(const Next next, LookAt(weight, state, call != nullptr));
  ONEBIT_TRY(on_device_->Begin(stream));
  if (!next.is_sync) {
    ONEBIT_TRY(on_device_->Add(x, stream));
    AddWeight(next);
    return Outcome{};
  }
  ONEBIT_TRY(state.Refresh());
  const uint64_t epoch = state.epoch();
  const uint64_t nonfinite_calls = state.nonfinite_calls();
  ONEBIT_TRY(on_device_->Join(x, out, stream));
  Status status = call->Make(std::bit_cast<uint32_t>(next.weight_sum));
  if (status.ok()) status = on_device_->Await(stream, [call] { return call->FindFailure(); });
  if (!status.ok()) {
    // A communicator may fail right after a call that has succeeded.
    const bool is_known = state.Refresh().ok();
    const bool has_ended = state.epoch() != epoch || state.nonfinite_calls() != nonfinite_calls;
    if (!is_known || !has_ended) return Failed(status, epoch, next.weight_sum);
  }
  EndInterval();
  return Outcome{.did_sync = true, .weight_sum = next.weight_sum};
}

Status OneBitSync::Drain() { return on_device_ ? on_device_->Drain() : OkStatus(); }

void OneBitSync::EndInterval() {
  if (on_device_) {
    on_device_->Forget();
  } else {
    static_cast<void>(accumulator_.Clear());  // which cannot fail on the host
  }
  weight_sum_ = 0;
  last_sync_ = step_++;
  failed_epoch_.reset();
}

void OneBitSync::ResolveFailedSync(const Compressor& compressor) {
  if (failed_epoch_ && compressor.epoch() > *failed_epoch_) EndInterval();
}

void OneBitSync::Describe(std::span<char> steps) const {
  std::optional<uint64_t> last_sync = last_sync_;
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool is_sync = schedule_.IsSync(step_ + i, last_sync);
    steps[i] = is_sync ? '1' : '.';
    if (is_sync) last_sync = step_ + i;
  }
}

size_t OneBitSync::StateBytes(const PlannedCompressor& compressor, StateKind kind) const {
  return onebit::StateBytes(SectionsOf(count_, compressor, kind));
}

void OneBitSync::WriteFields(std::span<std::byte> section) const {
  const SyncFields fields = {.count = count_,
                             .step = step_,
                             .last_sync = last_sync_.value_or(UINT64_MAX),
                             .warmup_steps = schedule_.warmup_steps,
                             .base_interval = schedule_.base_interval,
                             .double_every = schedule_.double_every,
                             .max_interval = schedule_.max_interval,
                             .weight_sum = weight_sum_};
  std::memcpy(section.data(), &fields, sizeof(fields));
}

Status OneBitSync::ExportRank(const PlannedCompressor& compressor, std::byte* blob) {
  StateWriter writer(StateKind::kSync, SectionsOf(count_, compressor, StateKind::kRank), blob);
  WriteFields(writer.section(SectionTag::kSync));
  const auto sum = writer.section(SectionTag::kAccumulator);
  if (on_device_) {
    ONEBIT_TRY(on_device_->Read(sum.data()));
  } else if (!sum.empty()) {
    std::memcpy(sum.data(), accumulator_.data(), sum.size());
  }
  ExportRankState(compressor, writer.section(SectionTag::kCompressor).data());
  writer.Seal();
  return OkStatus();
}

Status OneBitSync::ExportGlobal(Comm& comm, Engine& engine, const PlannedCompressor& compressor,
                                std::byte* blob) {
  Memory copy;
  if (on_device_) {
    // An error here is not reported to the other ranks, which run into their time-out instead.
    ONEBIT_ASSIGN_OR_RETURN(
        copy, Memory::Create({}, nullptr, count_ * sizeof(float), "the sum of a sync"));
    ONEBIT_TRY(on_device_->Read(copy.data()));
  }
  const Memory& sum = on_device_ ? copy : accumulator_;
  StateWriter writer(StateKind::kSync, SectionsOf(count_, compressor, StateKind::kGlobal), blob);
  WriteFields(writer.section(SectionTag::kSync));
  // If every rank had accumulated the mean, the next sync would have the same mean.
  const StateCompanion companion = {
      .values = {{"steps of the sync", Format("{}", step_)},
                 {"the weight sum of the sync", Format("{}", weight_sum_)},
                 {"the schedule of the sync",
                  Format("warmupSteps {}, baseInterval {}, doubleEvery {}, maxInterval {}",
                         schedule_.warmup_steps, schedule_.base_interval, schedule_.double_every,
                         schedule_.max_interval)}},
      .elements = reinterpret_cast<const float*>(sum.data()),
      .mean = writer.section(SectionTag::kAccumulator).data()};
  ONEBIT_TRY(ExportGlobalState(comm, engine, compressor,
                               writer.section(SectionTag::kCompressor).data(), &companion));
  writer.Seal();
  return OkStatus();
}

std::span<const std::byte> OneBitSync::CompressorStateOf(std::span<const std::byte> blob) {
  const auto reader = StateReader::Open(blob);
  if (!reader.ok() || reader.value().kind() != StateKind::kSync) return {};
  return reader.value().section(SectionTag::kCompressor).value_or(std::span<const std::byte>());
}

Status OneBitSync::Import(std::span<const std::byte> blob, PlannedCompressor* compressor) {
  ONEBIT_ASSIGN_OR_RETURN(const StateReader reader, StateReader::Open(blob));
  if (reader.kind() != StateKind::kSync) return WrongKind(reader.kind());
  const auto header = reader.section(SectionTag::kSync);
  const auto sum = reader.section(SectionTag::kAccumulator);
  const auto nested = reader.section(SectionTag::kCompressor);
  SyncFields fields;
  if (!header || header->size() != sizeof(fields)) {
    return Error(
        Code::kCorrupt,
        "the state is damaged: its section of settings is missing, or is not {} bytes long",
        sizeof(fields));
  }
  if (!sum || !nested || reader.section_count() != 3) {
    return Error(Code::kCorrupt,
                 "the state is damaged: it must have a sum and a compressor besides its settings, "
                 "but has {} sections",
                 reader.section_count());
  }
  std::memcpy(&fields, header->data(), sizeof(fields));
  if (fields.count != count_) {
    return Error(Code::kMismatch,
                 "the state belongs to another sync: count {} in the state, {} here", fields.count,
                 count_);
  }
  const SyncSchedule schedule = {.warmup_steps = fields.warmup_steps,
                                 .base_interval = fields.base_interval,
                                 .double_every = fields.double_every,
                                 .max_interval = fields.max_interval};
  if (schedule != schedule_) {
    return Error(Code::kMismatch,
                 "the state belongs to a sync with another schedule: warmupSteps {}, baseInterval "
                 "{}, doubleEvery {}, maxInterval {} in the state; {}, {}, {}, {} here",
                 schedule.warmup_steps, schedule.base_interval, schedule.double_every,
                 schedule.max_interval, schedule_.warmup_steps, schedule_.base_interval,
                 schedule_.double_every, schedule_.max_interval);
  }
  const bool has_synced = fields.last_sync != UINT64_MAX;
  if (has_synced && fields.last_sync >= fields.step) {
    return Error(Code::kCorrupt, "the state is damaged: step {} does not come after last_sync {}",
                 fields.step, fields.last_sync);
  }
  if (!std::isfinite(fields.weight_sum) || fields.weight_sum < 0) {
    return Error(Code::kCorrupt,
                 "the state is damaged: weight_sum is {}, but must be finite and not negative",
                 fields.weight_sum);
  }
  if (fields.zero != 0) {
    return Error(Code::kCorrupt, "the state is damaged: the word after weight_sum is {}, not 0",
                 fields.zero);
  }
  if (sum->size() != count_ * sizeof(float)) {
    return Error(Code::kCorrupt, "the state is damaged: its sum has {} bytes, but count is {}",
                 sum->size(), count_);
  }
  ONEBIT_ASSIGN_OR_RETURN(const StateReader inner, StateReader::Open(*nested));
  if (inner.kind() == StateKind::kSync) {
    return Error(Code::kCorrupt, "the state is damaged: its compressor is a sync");
  }
  ONEBIT_TRY(ImportState(*nested, compressor));
  if (on_device_) {
    ONEBIT_TRY(on_device_->Write(sum->data()));
  } else if (!sum->empty()) {
    std::memcpy(accumulator_.data(), sum->data(), sum->size());
  }
  weight_sum_ = fields.weight_sum;
  step_ = fields.step;
  last_sync_ = has_synced ? std::optional(fields.last_sync) : std::nullopt;
  failed_epoch_.reset();
  return OkStatus();
}

}  // namespace onebit
