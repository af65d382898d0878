// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Saves and loads an optimizer: one rank's share exactly, or the state of all ranks for any number
// of ranks. The list of state supplies values and elements; the compressor's state is embedded
// unchanged.
#include <array>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "optim/api_status.h"
#include "optim/gather_numbers.h"
#include "optim/optimizer_base.h"
#include "optim/saved_optimizer.h"

namespace onebit::optim {
namespace {

onebitStateKind_t CompressorKind(StateKind kind) {
  return kind == StateKind::kOptimizerGlobal ? onebitStateGlobal : onebitStateRank;
}

Status Damaged(const char* what) { return Error(Code::kCorrupt, "the state is damaged: {}", what); }

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

}  // namespace

// ------------------------------------------------------------------------------------------- save

Result<std::vector<StateSection>> Optimizer::StateSections(StateKind kind) {
  StateList state;
  ListState(&state);
  std::vector<StateSection> sections;
  if (compressor_ != nullptr) {
    size_t bytes = 0;
    ONEBIT_TRY(FromApi(onebitCompressorExport(compressor_, CompressorKind(kind), nullptr, &bytes)));
    sections.push_back({SectionTag::kCompressor, bytes});
  }
  sections.push_back({SectionTag::kOptimizer, OptimizerSectionBytes(table_)});
  sections.push_back({SectionTag::kValues, state.value_bytes()});
  sections.push_back({SectionTag::kElements, state.element_bytes()});
  return sections;
}

Result<size_t> Optimizer::StateBytes(StateKind kind) {
  ONEBIT_ASSIGN_OR_RETURN(const std::vector<StateSection> sections, StateSections(kind));
  return onebit::StateBytes(sections);
}

Status Optimizer::Export(StateKind kind, std::span<std::byte> blob) {
  ONEBIT_TRY(CheckWhole());
  if (kind == StateKind::kOptimizerRank) return WriteState(kind, blob);
  ONEBIT_TRY(Sync());
  ONEBIT_TRY(WriteState(kind, blob));
  return CompareState(DigestOf(blob, 0));
}

SavedHead Optimizer::HeadOfState(StateKind kind) const {
  SavedHead head = HeadOf(options_, table_, count_);
  head.ranks = static_cast<uint32_t>(ranks_);
  head.rank = kind == StateKind::kOptimizerGlobal ? 0 : static_cast<uint32_t>(rank_);
  head.freeze_rule = freeze_rule();
  return head;
}

Status Optimizer::WriteState(StateKind kind, std::span<std::byte> blob) {
  ONEBIT_ASSIGN_OR_RETURN(const std::vector<StateSection> sections, StateSections(kind));
  StateList state;
  ListState(&state);
  StateWriter writer(kind, sections, blob.data());
  if (compressor_ != nullptr) {
    const std::span<std::byte> section = writer.section(SectionTag::kCompressor);
    size_t bytes = section.size();
    ONEBIT_TRY(
        FromApi(onebitCompressorExport(compressor_, CompressorKind(kind), section.data(), &bytes)));
  }
  WriteOptimizerSection(HeadOfState(kind), table_, writer.section(SectionTag::kOptimizer).data());
  state.ReadValues(writer.section(SectionTag::kValues).data());
  state.ReadElements(arithmetic_.get(), writer.section(SectionTag::kElements).data());
  ONEBIT_TRY(arithmetic_->Await(nullptr));
  writer.Seal();
  return OkStatus();
}

// One state will stand for those of all ranks, so they must be bit-identical.
Status Optimizer::CompareState(uint64_t digest) const {
  ONEBIT_ASSIGN_OR_RETURN(
      const RankNumbers all,
      GatherNumbers(comm_, rank_, std::array<uint64_t, 3>{step_, skipped_steps_, digest}));
  for (size_t r = 0; r < all.ranks(); ++r) {
    if (all.At(r, 0) != all.At(0, 0) || all.At(r, 1) != all.At(0, 1)) {
      return Error(Code::kMismatch,
                   "rank {}: the optimizer of rank 0 has made {} steps and skipped {}, that of "
                   "rank {} {} and {}: export between the same two calls of onebitOptimizerStep",
                   rank_, all.At(0, 0), all.At(0, 1), r, all.At(r, 0), all.At(r, 1));
    }
    if (all.At(r, 2) != all.At(0, 2)) {
      return Error(Code::kMismatch,
                   "rank {}: the optimizers of rank 0 and rank {} are at the same step, but differ "
                   "in configuration, parameters or moments: were the parameters equal at first, "
                   "and is nothing but the optimizer writing them?",
                   rank_, r);
    }
  }
  return OkStatus();
}

// ------------------------------------------------------------------------------------------- load

Status Optimizer::Import(std::span<const std::byte> blob) {
  ONEBIT_ASSIGN_OR_RETURN(const SavedOptimizer saved, SavedOptimizer::Read(blob));
  const std::string difference =
      saved.DescribeDifference(HeadOfState(StateKind::kOptimizerRank), table_);
  if (!difference.empty()) {
    return Error(Code::kMismatch, "rank {}: the state is of another optimizer: {}", rank_,
                 difference);
  }
  return Adopt(saved);
}

// Tries out the values, and restores the old ones unless the compressor's state, the last part that
// can be rejected, is loaded, too.
Status Optimizer::Adopt(const SavedOptimizer& saved) {
  StateList state;
  ListState(&state);
  if (saved.values.size() != state.value_bytes() ||
      saved.elements.size() != state.element_bytes() ||
      saved.compressor.has_value() != (compressor_ != nullptr)) {
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
  updates_.Forget();
  commits_ = residual_commits_ = 0;
  agreed_stages_ = 0;
  awaits_residual_ = false;
  is_torn_ = false;
  return OkStatus();
}

Status Optimizer::AdoptCompressor(const SavedOptimizer& saved) {
  if (compressor_ == nullptr) return OkStatus();
  ONEBIT_ASSIGN_OR_RETURN(const StateReader inner, StateReader::Open(*saved.compressor));
  if (inner.kind() != (saved.is_global ? StateKind::kGlobal : StateKind::kRank)) {
    return Damaged("its compressor's state is of another kind");
  }
  totals_.reset();
  ONEBIT_TRY(FromApi(
      onebitCompressorImport(compressor_, saved.compressor->data(), saved.compressor->size())));
  epoch_of_open_call_.reset();
  return OkStatus();
}

Status Optimizer::CheckState() const {
  const auto is_power = [](double power) { return power >= 0 && power <= 1; };
  if (is_power(beta1_power_) && is_power(beta2_power_)) return OkStatus();
  return Damaged("a power of beta is not between 0 and 1");
}

}  // namespace onebit::optim
