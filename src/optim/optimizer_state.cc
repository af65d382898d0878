// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer_state.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "base/aligned_buffer.h"
#include "base/digest.h"
#include "optim/api_status.h"
#include "optim/gather_numbers.h"
#include "optim/gradient_elements.h"

namespace onebit::optim {
namespace {

onebitStateKind_t CompressorKind(StateKind kind) {
  return kind == StateKind::kOptimizerGlobal ? onebitStateGlobal : onebitStateRank;
}

// Restores replaced values at the end of a scope, unless the new ones are kept.
class FormerValues {
 public:
  explicit FormerValues(const StateList& list) : list_(list), bytes_(list.value_bytes()) {
    list_.ReadValues(bytes_.data());
  }
  ~FormerValues() {
    if (!is_replaced_) list_.WriteValues(bytes_.data());
  }
  FormerValues(const FormerValues&) = delete;
  FormerValues& operator=(const FormerValues&) = delete;

  void KeepNewOnes() { is_replaced_ = true; }

 private:
  const StateList& list_;
  std::vector<std::byte> bytes_;
  bool is_replaced_ = false;
};

Status BroadcastBytes(StateList::Bytes bytes, int source, onebitComm_t comm,
                      onebitStream_t stream) {
  return FromApi(
      onebitBroadcast(bytes.data(), bytes.data(), bytes.size(), onebitUint8, source, comm, stream));
}

}  // namespace

OptimizerState::OptimizerState(Setup setup)
    : options_(setup.options),
      table_(std::move(setup.table)),
      arithmetic_(std::move(setup.arithmetic)),
      averages_(table_, *arithmetic_, setup.comm) {}

Status OptimizerState::AllocateMoments() {
  ONEBIT_ASSIGN_OR_RETURN(m_, arithmetic_->Allocate(count() * sizeof(float), "momentum"));
  ONEBIT_ASSIGN_OR_RETURN(v_, arithmetic_->Allocate(count() * sizeof(float), "variance"));
  ONEBIT_TRY(averages_.Allocate());
  if (!arithmetic_->is_deferred()) return OkStatus();
  const std::span<const uint8_t> masks = table_.user_masks();
  ONEBIT_ASSIGN_OR_RETURN(user_masks_, arithmetic_->Allocate(masks.size(), "masks"));
  arithmetic_->Copy(user_masks_.data(), masks.data(), masks.size());
  return arithmetic_->Await(nullptr);
}

void OptimizerState::ListState(StateList* list) {
  list->AddReplicated(v_);
  list->AddValue(step_);
  list->AddValue(skipped_steps_);
  list->AddValue(dense_steps_);
  list->AddValue(compressed_steps_);
  list->AddValue(local_steps_);
  list->AddValue(beta1_power_);
  list->AddValue(beta2_power_);
  list->AddValue(first_learning_rate_);
}

// Code that replaces parameters does not replace their low-precision copy, which follows from them.
Status OptimizerState::WriteParameterCopy() const {
  for (const ParameterRun& run : table_.runs()) {
    if (run.copy == nullptr) continue;
    ONEBIT_TRY(arithmetic_->Round(run.x, run.count, options_.parameter_copy_type, run.copy));
  }
  return OkStatus();
}

Status OptimizerState::CheckWhole() const {
  if (!is_torn_ && !awaits_residual_) return OkStatus();
  return Error(Code::kInvalidUsage,
               "the optimizer's state was left half rebound by onebitOptimizerRebind, or half "
               "updated by a device that failed: call onebitOptimizerRebind again, or load a "
               "checkpoint");
}

Status OptimizerState::Torn(Status status) {
  is_torn_ = true;
  return status;
}

// ---------------------------------------------------------------------------------------------
// save

Result<std::vector<StateSection>> OptimizerState::StateSections(StateKind kind) {
  StateList state;
  ListState(&state);
  std::vector<StateSection> sections;
  if (averages_.compressor() != nullptr) {
    size_t bytes = 0;
    ONEBIT_TRY(FromApi(
        onebitCompressorExport(averages_.compressor(), CompressorKind(kind), nullptr, &bytes)));
    sections.push_back({SectionTag::kCompressor, bytes});
  }
  sections.push_back({SectionTag::kOptimizer, OptimizerSectionBytes(table_)});
  sections.push_back({SectionTag::kValues, state.value_bytes()});
  sections.push_back({SectionTag::kElements, state.element_bytes()});
  return sections;
}

Result<size_t> OptimizerState::StateBytes(StateKind kind) {
  ONEBIT_ASSIGN_OR_RETURN(const std::vector<StateSection> sections, StateSections(kind));
  return onebit::StateBytes(sections);
}

Status OptimizerState::Export(StateKind kind, std::span<std::byte> blob) {
  ONEBIT_TRY(CheckWhole());
  if (kind == StateKind::kOptimizerRank) return WriteState(kind, blob);
  ONEBIT_TRY(Sync());
  ONEBIT_TRY(WriteState(kind, blob));
  return CompareState(DigestOf(blob, 0));
}

SavedHead OptimizerState::HeadOfState(StateKind kind) const {
  SavedHead head = HeadOf(options_, table_, count());
  head.ranks = static_cast<uint32_t>(averages_.ranks());
  head.rank = kind == StateKind::kOptimizerGlobal ? 0 : static_cast<uint32_t>(rank());
  head.freeze_rule = freeze_rule();
  return head;
}

Status OptimizerState::WriteState(StateKind kind, std::span<std::byte> blob) {
  ONEBIT_ASSIGN_OR_RETURN(const std::vector<StateSection> sections, StateSections(kind));
  StateList state;
  ListState(&state);
  StateWriter writer(kind, sections, blob.data());
  if (averages_.compressor() != nullptr) {
    const std::span<std::byte> section = writer.section(SectionTag::kCompressor);
    size_t bytes = section.size();
    ONEBIT_TRY(FromApi(onebitCompressorExport(averages_.compressor(), CompressorKind(kind),
                                              section.data(), &bytes)));
  }
  WriteOptimizerSection(HeadOfState(kind), table_, writer.section(SectionTag::kOptimizer).data());
  state.ReadValues(writer.section(SectionTag::kValues).data());
  state.ReadElements(arithmetic_.get(), writer.section(SectionTag::kElements).data());
  ONEBIT_TRY(arithmetic_->Await(nullptr));
  writer.Seal();
  return OkStatus();
}

// One state will stand for those of all ranks, so they must be bit-identical.
Status OptimizerState::CompareState(uint64_t digest) const {
  ONEBIT_ASSIGN_OR_RETURN(const RankNumbers all,
                          GatherNumbers(averages_.comm(), rank(),
                                        std::array<uint64_t, 3>{step_, skipped_steps_, digest}));
  for (size_t r = 0; r < all.ranks(); ++r) {
    if (all.At(r, 0) != all.At(0, 0) || all.At(r, 1) != all.At(0, 1)) {
      return Error(Code::kMismatch,
                   "rank {}: the optimizer of rank 0 has made {} steps and skipped {}, that of "
                   "rank {} {} and {}: export between the same two calls of onebitOptimizerStep",
                   rank(), all.At(0, 0), all.At(0, 1), r, all.At(r, 0), all.At(r, 1));
    }
    if (all.At(r, 2) != all.At(0, 2)) {
      return Error(Code::kMismatch,
                   "rank {}: the optimizers of rank 0 and rank {} are at the same step, but differ "
                   "in configuration, parameters or moments: did all ranks start with equal "
                   "parameters, and does only the optimizer write them?",
                   rank(), r);
    }
  }
  return OkStatus();
}

// ---------------------------------------------------------------------------------------------
// load

Status OptimizerState::Import(std::span<const std::byte> blob) {
  ONEBIT_ASSIGN_OR_RETURN(const SavedOptimizer saved, SavedOptimizer::Read(blob));
  const std::string difference =
      saved.DescribeDifference(HeadOfState(StateKind::kOptimizerRank), table_);
  if (!difference.empty()) {
    return Error(Code::kMismatch, "rank {}: the state belongs to another optimizer: {}", rank(),
                 difference);
  }
  return Adopt(saved);
}

// Tries out the values, and restores the old ones unless the compressor's state, the last part that
// can be rejected, is loaded, too.
Status OptimizerState::Adopt(const SavedOptimizer& saved) {
  StateList state;
  ListState(&state);
  if (saved.values.size() != state.value_bytes() ||
      saved.elements.size() != state.element_bytes() ||
      saved.compressor.has_value() != (averages_.compressor() != nullptr)) {
    return Damaged("the lengths of its sections do not match its settings");
  }
  FormerValues former(state);
  state.WriteValues(saved.values.data());
  if (!state.AreValuesFinite()) return Damaged("a value is not finite");
  ONEBIT_TRY(CheckState());
  ONEBIT_TRY(AdoptCompressor(saved));
  former.KeepNewOnes();
  state.WriteElements(arithmetic_.get(), saved.elements.data());
  Status status = arithmetic_->Await(nullptr);
  if (status.ok()) status = WriteParameterCopy();
  if (!status.ok()) return Torn(std::move(status));
  ForgetDerivedState();
  commits_ = residual_commits_ = 0;
  awaits_residual_ = false;
  is_torn_ = false;
  BeginAnew();
  return OkStatus();
}

Status OptimizerState::AdoptCompressor(const SavedOptimizer& saved) {
  if (averages_.compressor() == nullptr) return OkStatus();
  ONEBIT_ASSIGN_OR_RETURN(const StateReader inner, StateReader::Open(*saved.compressor));
  if (inner.kind() != (saved.is_global ? StateKind::kGlobal : StateKind::kRank)) {
    return Damaged("its compressor's state is of another kind");
  }
  return averages_.ImportCompressor(*saved.compressor);
}

Status OptimizerState::CheckState() const {
  const auto is_power = [](double power) { return power >= 0 && power <= 1; };
  if (is_power(beta1_power_) && is_power(beta2_power_)) return OkStatus();
  return Damaged("a power of beta is not between 0 and 1");
}

// -------------------------------------------------------------------------------------------
// rebind

Result<int> OptimizerState::Rebind(onebitComm_t comm) {
  int rank = 0;
  ONEBIT_TRY(FromApi(onebitCommUserRank(comm, &rank)));
  const RankProgress mine = {.commits = commits_,
                             .residual_commits = residual_commits_,
                             .step = step_,
                             .skipped_steps = skipped_steps_,
                             .freeze_rule = static_cast<uint64_t>(freeze_rule()),
                             .is_torn = is_torn_};
  ONEBIT_ASSIGN_OR_RETURN(const std::vector<RankProgress> progress,
                          GatherProgress(comm, rank, mine));
  ONEBIT_ASSIGN_OR_RETURN(const int source, ChooseSource(progress, rank));
  ONEBIT_TRY(TakeNewest(comm, progress, rank, source));
  if (averages_.compressor() != nullptr) {
    // The rebind compares masks, which some ranks may not have computed yet.
    ONEBIT_TRY(PrepareCompressor());
    ONEBIT_TRY(RebindCompressor(comm, rank));
  }
  averages_.MoveTo(comm, rank, static_cast<int>(progress.size()));
  BeginAnew();
  return source;
}

// Brings every rank to the state of the newest, from `source`.
Status OptimizerState::TakeNewest(onebitComm_t comm, const std::vector<RankProgress>& progress,
                                  int rank, int source) {
  const RankProgress& newest = progress[static_cast<size_t>(source)];
  const auto is_behind = [&](const RankProgress& other) {
    return other.is_torn || other.IsBehind(newest);
  };
  if (std::ranges::any_of(progress, is_behind)) {
    ONEBIT_TRY(
        TakeState(comm, source, rank == source, is_behind(progress[static_cast<size_t>(rank)])));
    awaits_residual_ |=
        averages_.compressor() != nullptr && residual_commits_ != newest.residual_commits;
    commits_ = newest.commits;
    residual_commits_ = newest.residual_commits;
    is_torn_ = false;
  }
  skipped_steps_ = std::ranges::max(progress, {}, &RankProgress::skipped_steps).skipped_steps;
  return OkStatus();
}

Status OptimizerState::TakeState(onebitComm_t comm, int source, bool is_source, bool is_behind) {
  StateList state;
  ListState(&state);
  const bool takes_part = is_source || is_behind;
  size_t most_bytes = 0;
  for (const StateList::Part& local : state.local()) {
    most_bytes = std::max(most_bytes, local.bytes.size());
  }
  // Buffers for values, which are replaced all at once, and for data that ranks with the newest
  // state receive and ignore.
  ONEBIT_ASSIGN_OR_RETURN(
      const AlignedBuffer values,
      AlignedBuffer::Create(RoundUp(state.value_bytes(), sizeof(float)), "state"));
  ONEBIT_ASSIGN_OR_RETURN(const Memory ignored,
                          arithmetic_->Allocate(takes_part ? 0 : most_bytes, "state"));
  is_torn_ = is_behind;
  for (const StateList::Part& part : state.replicated()) {
    ONEBIT_TRY(BroadcastPart(part, source, comm));
  }
  for (const StateList::Part& part : state.local()) {
    const StateList::Bytes target =
        takes_part ? part.bytes : StateList::Bytes(ignored.data(), part.bytes.size());
    ONEBIT_TRY(BroadcastPart({.bytes = target}, source, comm));
  }
  state.ReadValues(values.data());
  ONEBIT_TRY(BroadcastBytes({values.data(), values.size()}, source, comm, nullptr));
  if (is_behind) {
    state.WriteValues(values.data());
    ONEBIT_TRY(WriteParameterCopy());
    ForgetDerivedState();
  }
  return OkStatus();
}

// Waits for each broadcast: the next may use host memory, for which no call may be pending.
Status OptimizerState::BroadcastPart(const StateList::Part& part, int source, onebitComm_t comm) {
  ONEBIT_TRY(
      BroadcastBytes(part.bytes, source, comm, part.is_on_host ? nullptr : arithmetic_->stream()));
  return arithmetic_->Await(comm);
}

// A rank that receives a compressed step also needs the residuals it left, which are specific to
// each rank: the rebind rolls forward to them if a rank that committed the step is present.
Status OptimizerState::RebindCompressor(onebitComm_t comm, int rank) {
  ONEBIT_ASSIGN_OR_RETURN(const bool has_rolled_forward, averages_.RebindCompressor(comm));
  if (awaits_residual_ && !has_rolled_forward) {
    return Torn(Error(Code::kRemoteError,
                      "rank {}: the only rank that had made the last step was lost before all had "
                      "its residuals: load a checkpoint",
                      rank));
  }
  awaits_residual_ = false;
  return OkStatus();
}

// ------------------------------------------------------------------------------------------
// moments

std::vector<Moment> OptimizerState::Moments() const {
  return {{"m", {Floats(m_), count()}}, {"v", {Floats(v_), count()}, false}};
}

Result<Moment> OptimizerState::FindMoment(std::string_view name, size_t segment) {
  const std::vector<Moment> moments = Moments();
  const auto found = std::ranges::find(moments, name, &Moment::name);
  if (found == moments.end()) {
    std::string names;
    for (const Moment& moment : moments) AppendFormat(&names, " \"{}\"", moment.name);
    return Error(Code::kInvalidArgument, "name is \"{}\", but the moments of this {} are{}", name,
                 NameOf(options_.policy.algorithm), names);
  }
  Moment moment = *found;
  if (segment != ONEBIT_ALL_SEGMENTS) {
    const Segment& part = table_.segments()[segment];
    moment.elements = moment.elements.subspan(part.offset, part.count);
  }
  return moment;
}

Status OptimizerState::ReadMoment(const Moment& moment, float* values) {
  arithmetic_->Copy(values, moment.elements.data(), moment.elements.size_bytes());
  return arithmetic_->Await(nullptr);
}

Status OptimizerState::WriteMoment(const Moment& moment, const float* values) {
  ONEBIT_TRY(CheckWhole());
  std::vector<float> checked(moment.elements.size());
  arithmetic_->Copy(checked.data(), values, moment.elements.size_bytes());
  ONEBIT_TRY(arithmetic_->Await(nullptr));
  for (size_t i = 0; i < checked.size(); ++i) {
    if (std::isfinite(checked[i]) && (moment.may_be_negative || checked[i] >= 0)) continue;
    return Error(Code::kInvalidArgument, "element {} of moment \"{}\" is {}, but must be finite{}",
                 i, moment.name, checked[i], moment.may_be_negative ? "" : " and not negative");
  }
  arithmetic_->Copy(moment.elements.data(), checked.data(), moment.elements.size_bytes());
  if (Status status = arithmetic_->Await(nullptr); !status.ok()) return Torn(std::move(status));
  ForgetDerivedState();
  return OkStatus();
}

}  // namespace onebit::optim
