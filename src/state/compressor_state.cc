// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A compressor owes the mean over ranks of the worker residuals plus the server residual of the
// whole tensor (telescoping identity); a sum owes n times that. The state of one rank contains its
// residuals unchanged. The state of all ranks contains only those two vectors:
//
//   Ebar = (e_0 + ... + e_{n-1}) / n      S = the server residuals, in the order of the tensor
//
// A reduce-scatter has no server residual. For an all-gather the state is the estimate, which is
// equal on all ranks. Residuals of an all-to-all belong to pairs of ranks and cannot be
// transferred.
//
// A job of n' ranks gives Ebar to each of its workers and every server its part of S, so the mean
// of the workers is Ebar again. A sum would then owe n' times the state instead of n times, so both
// are multiplied by n/n'.
#include "state/compressor_state.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <new>

#include "kernels/reference/elements.h"
#include "state/compressor_agreement.h"
#include "state/state_identity.h"

namespace onebit {
namespace {

using kernels::DataType;

// Sums this many elements at a time, so that memory does not grow with the tensor.
constexpr size_t kPieceElements = size_t{1} << 20;
constexpr std::string_view kExporting = "exporting the state of a compressor";

StateIdentity IdentityOf(const PlannedCompressor& planned, StateKind kind) {
  const Compressor::Config& config = planned.compressor.config();
  const bool is_global = kind == StateKind::kGlobal;
  return {
      .count = config.elements(),
      .epoch = planned.compressor.epoch(),
      .commits_since_zero = planned.compressor.commits_since_zero(),
      .ranks = planned.plan->ranks,
      .rank = is_global ? 0 : planned.plan->rank,
      .chunk_alignment = config.chunk_alignment,
      .collective = planned.plan->key.collective,
      .codec = config.codec,
      .type = config.type,
      .seed = config.seed,
      .ef_decay = config.ef_decay,
      .residual_type = is_global ? DataType::kF32 : config.residual_type,
      .has_server_residual = planned.compressor.has_server_residual(),
      .is_one_exchange = planned.plan->key.is_one_exchange,
      .hosts = is_global ? 0 : planned.plan->hosts_digest,
      .op = planned.compressor.op(),
  };
}

// Sections of a state. The mode decides how many there are.
class Sections {
 public:
  Sections(const PlannedCompressor& planned, StateKind kind) {
    const Compressor& state = planned.compressor;
    Add(SectionTag::kIdentity, IdentityBytes(state.config().codec));
    const bool is_global = kind == StateKind::kGlobal;
    const size_t element_bytes =
        kernels::BytesOf(is_global ? DataType::kF32 : state.config().residual_type);
    if (state.worker_base() != nullptr) {
      const size_t elements = is_global ? state.config().elements() : state.worker_elements();
      Add(SectionTag::kWorker, elements * element_bytes);
    }
    if (state.server_in(0) != nullptr) {
      const size_t elements = is_global ? state.config().count : state.server_elements();
      Add(SectionTag::kServer, elements * element_bytes);
    }
  }
  operator std::span<const StateSection>() const {  // it is a span
    return std::span(sections_).first(count_);
  }

 private:
  void Add(SectionTag tag, size_t bytes) { sections_[count_++] = {tag, bytes}; }

  std::array<StateSection, 3> sections_ = {};
  size_t count_ = 0;
};

void WriteIdentity(const StateIdentity& identity, const StateWriter& writer) {
  const auto bytes = EncodeIdentity(identity);
  std::memcpy(writer.section(SectionTag::kIdentity).data(), bytes.data(), bytes.size());
}

// One rank's part in an export of the state of all ranks.
class GlobalExport {
 public:
  GlobalExport(Comm& comm, Engine& engine, const PlannedCompressor& planned,
               const StateCompanion* companion)
      : comm_(comm), engine_(engine), planned_(planned), companion_(companion) {}

  Status Run(std::byte* blob) {
    try {
      return Export(blob, Reserve());
    } catch (const std::bad_alloc&) {
      return comm_.FailWithoutMemory();  // the others may be waiting already
    }
  }

 private:
  const Compressor& state() const { return planned_.compressor; }
  // In an all-gather every rank holds the same estimate.
  bool is_replicated() const {
    return state().config().collective == Collective::kAllGather &&
           state().worker_base() != nullptr;
  }

  Status Export(std::byte* blob, const Status& obstacle) {
    AgreedValues values = AgreedValuesOf(planned_);
    if (companion_ != nullptr) {
      values.insert(values.end(), companion_->values.begin(), companion_->values.end());
    }
    ONEBIT_TRY(AgreeOnCompressor(comm_, kExporting, obstacle, values));
    return Write(blob);
  }

  // Allocates everything that grows with the tensor. The other ranks learn of an error.
  Status Reserve() {
    if (state().worker_base() == nullptr && companion_ == nullptr) return OkStatus();
    const size_t most = std::min(state().config().elements(), kPieceElements);
    try {
      ONEBIT_ASSIGN_OR_RETURN(piece_, AlignedBuffer::Create(most * sizeof(float), "an export"));
      ONEBIT_TRY(engine_.ReserveSum(most, DataType::kF32));
      return engine_.ReserveSum(state().config().elements() % kPieceElements, DataType::kF32);
    } catch (const std::bad_alloc&) {
      return {Code::kOutOfMemory, "out of memory"};
    }
  }

  Status Write(std::byte* blob) {
    StateWriter writer(StateKind::kGlobal, Sections(planned_, StateKind::kGlobal), blob);
    WriteIdentity(IdentityOf(planned_, StateKind::kGlobal), writer);
    const DataType residual_type = state().config().residual_type;
    if (is_replicated()) {  // the estimate is the same everywhere
      const std::span<std::byte> section = writer.section(SectionTag::kWorker);
      if (!section.empty()) std::memcpy(section.data(), state().worker_base(), section.size());
    } else if (state().worker_base() != nullptr) {
      const ElementRange range = {state().config().worker_begin, state().worker_elements()};
      ONEBIT_TRY(Sum(state().worker_base(), residual_type, range, static_cast<float>(comm_.ranks()),
                     writer.section(SectionTag::kWorker).data(), RanksOfResidual(comm_, state())));
    }
    if (state().server_in(0) != nullptr) {
      // Replicas are equal, so rank 0's stands for all.
      const bool is_replica = planned_.plan->key.is_one_exchange && comm_.rank() != 0;
      const ElementRange mine = is_replica ? ElementRange{} : planned_.plan->served;
      ONEBIT_TRY(Sum(state().server_in(0), residual_type, mine, ServerUnitsOfMean(),
                     writer.section(SectionTag::kServer).data()));
    }
    if (!is_finite_) {  // on every rank
      return Error(
          Code::kInvalidUsage,
          "rank {}: compressor of tensor {}: the residuals are too large for their mean to be "
          "finite; onebitCompressorReset",
          comm_.rank(), state().config().tensor_id);
    }
    if (companion_ != nullptr) ONEBIT_TRY(WriteCompanion());
    writer.Seal();
    return OkStatus();
  }

  Status WriteCompanion() {
    ONEBIT_TRY(Sum(reinterpret_cast<const std::byte*>(companion_->elements), DataType::kF32,
                   {0, state().config().elements()}, static_cast<float>(comm_.ranks()),
                   companion_->mean));
    if (is_finite_) return OkStatus();
    return Error(Code::kInvalidUsage,
                 "rank {}: what a rank has added up in the sync of tensor {} is not finite: make "
                 "steps up to the next sync, which drops it, and export then",
                 comm_.rank(), state().config().tensor_id);
  }

  // The state has server residuals in units of the mean.
  float ServerUnitsOfMean() const {
    if (state().op() != ReduceOp::kSum) return 1;
    return static_cast<float>(comm_.ranks()) /
           state().server_unit(ReduceOp::kSum, static_cast<size_t>(comm_.ranks()));
  }

  // Sums each rank's range of elements, times `factor`, over the ranks, and divides by `divisor`.
  Status Sum(const std::byte* elements, DataType type, ElementRange range, float divisor,
             std::byte* out, float factor = 1) {
    auto* const values = reinterpret_cast<float*>(piece_.data());
    const size_t count = state().config().elements();
    for (size_t begin = 0; begin < count; begin += kPieceElements) {
      const ElementRange piece = {begin, std::min(kPieceElements, count - begin)};
      std::fill_n(values, piece.count, 0.0f);
      for (size_t i = std::max(piece.begin, range.begin); i < std::min(piece.end(), range.end());
           ++i) {
        values[i - begin] =
            factor * kernels::reference::LoadElement(elements, type, i - range.begin);
      }
      if (Status status = engine_.Sum(values, piece.count, DataType::kF32); !status.ok()) {
        return comm_.Fail(std::move(status));
      }
      for (size_t i = 0; i < piece.count; ++i) {
        values[i] /= divisor;
        is_finite_ &= std::isfinite(values[i]);
      }
      std::memcpy(out + begin * sizeof(float), values, piece.count * sizeof(float));
    }
    return OkStatus();
  }

  Comm& comm_;
  Engine& engine_;
  const PlannedCompressor& planned_;
  const StateCompanion* const companion_;
  AlignedBuffer piece_;
  bool is_finite_ = true;
};

// Residuals from a state, to be converted into those of a compressor.
struct Incoming {
  std::span<const std::byte> bytes;  // of any alignment
  DataType type = DataType::kF32;
  float factor = 1;
  DataType target_type = DataType::kF32;

  size_t elements() const { return bytes.size() / kernels::BytesOf(type); }
  // The value after conversion.
  float Value(size_t i) const {
    const std::byte* at = bytes.data() + i * kernels::BytesOf(type);
    alignas(float) std::array<std::byte, sizeof(float)> element;
    std::memcpy(element.data(), at, kernels::BytesOf(type));
    const float value = kernels::reference::LoadElement(element.data(), type, 0) * factor;
    return kernels::reference::RoundTo(target_type, value);
  }
  bool IsFinite() const {
    for (size_t i = 0; i < elements(); ++i) {
      if (!std::isfinite(Value(i))) return false;
    }
    return true;
  }
  void Write(std::byte* residual) const {
    if (bytes.empty()) return;
    if (type == target_type && factor == 1) {  // keeps every bit
      std::memcpy(residual, bytes.data(), bytes.size());
      return;
    }
    for (size_t i = 0; i < elements(); ++i) {
      kernels::reference::StoreElement(Value(i), target_type, i, residual);
    }
  }
};

// The sections must be those that the identity implies.
Status CheckSections(const StateReader& reader, const StateIdentity& identity,
                     const StateIdentity& here, std::span<const StateSection> expected) {
  bool is_expected =
      identity.residual_type == here.residual_type && reader.section_count() == expected.size();
  for (const StateSection& one : expected) {
    if (one.tag == SectionTag::kIdentity) continue;  // its own codec determines its length
    const auto section = reader.section(one.tag);
    is_expected &= section.has_value() && section->size() == one.bytes;
  }
  if (is_expected) return OkStatus();
  return Error(Code::kCorrupt, "the state is damaged: its residuals do not fit its identity");
}

}  // namespace

Status CheckStateKind(const PlannedCompressor& compressor, StateKind kind) {
  const Compressor::Config& config = compressor.compressor.config();
  if (kind == StateKind::kRank || !config.codec.has_feedback()) return OkStatus();
  if (config.collective == Collective::kSendRecv) {
    return Error(Code::kInvalidUsage,
                 "compressor of tensor {}: what a send and its receive hold belongs to two ranks, "
                 "so that others have no use for it: export onebitStateRank on both",
                 config.tensor_id);
  }
  if (config.collective != Collective::kAllToAll) return OkStatus();
  return Error(
      Code::kInvalidUsage,
      "compressor of tensor {}: the residuals of an all-to-all belong to pairs of ranks, so "
      "that other ranks have no use for them: export onebitStateRank",
      config.tensor_id);
}

size_t StateBytesOf(const PlannedCompressor& compressor, StateKind kind) {
  return StateBytes(Sections(compressor, kind));
}

void ExportRankState(const PlannedCompressor& compressor, std::byte* blob) {
  StateWriter writer(StateKind::kRank, Sections(compressor, StateKind::kRank), blob);
  WriteIdentity(IdentityOf(compressor, StateKind::kRank), writer);
  const auto copy = [&](const std::byte* residual, SectionTag tag) {
    const std::span<std::byte> section = writer.section(tag);
    if (!section.empty()) std::memcpy(section.data(), residual, section.size());
  };
  copy(compressor.compressor.worker_base(), SectionTag::kWorker);
  copy(compressor.compressor.server_in(0), SectionTag::kServer);
  writer.Seal();
}

Status ExportGlobalState(Comm& comm, Engine& engine, const PlannedCompressor& compressor,
                         std::byte* blob, const StateCompanion* companion) {
  return GlobalExport(comm, engine, compressor, companion).Run(blob);
}

Status ImportState(std::span<const std::byte> blob, PlannedCompressor* compressor) {
  ONEBIT_ASSIGN_OR_RETURN(const StateReader reader, StateReader::Open(blob));
  if (reader.kind() != StateKind::kRank && reader.kind() != StateKind::kGlobal) {
    return WrongKind(reader.kind());
  }
  const auto identity_bytes = reader.section(SectionTag::kIdentity);
  ONEBIT_ASSIGN_OR_RETURN(const StateIdentity identity,
                          DecodeIdentity(identity_bytes.value_or(std::span<const std::byte>())));
  const bool is_global = reader.kind() == StateKind::kGlobal;
  Compressor& state = compressor->compressor;
  const StateIdentity here = IdentityOf(*compressor, reader.kind());
  const std::string difference = is_global ? DescribeDifferenceOfTensor(identity, here)
                                           : DescribeDifferenceOfRank(identity, here);
  if (!difference.empty()) {
    return Error(Code::kMismatch,
                 "compressor of tensor {}: the state is of another compressor: {}{}",
                 state.config().tensor_id, difference,
                 is_global ? "" : "; only onebitStateGlobal fits other ranks or settings");
  }
  if (state.config().is_weighted && identity.op == ReduceOp::kSum) {
    return Error(
        Code::kMismatch,
        "compressor of tensor {} has a weight (onebitCompressorSetWeight), but the state is "
        "one of sums: import it before the first weight into one that sums",
        state.config().tensor_id);
  }
  ONEBIT_TRY(CheckSections(reader, identity, here, Sections(*compressor, reader.kind())));

  const DataType target_type = state.config().residual_type;
  Incoming worker = {.target_type = target_type};
  worker.bytes = reader.section(SectionTag::kWorker).value_or(worker.bytes);
  Incoming server = {.target_type = target_type};
  server.bytes = reader.section(SectionTag::kServer).value_or(server.bytes);
  worker.type = server.type = identity.residual_type;
  if (is_global) {
    if (!worker.bytes.empty()) {
      worker.bytes = worker.bytes.subspan(state.config().worker_begin * sizeof(float),
                                          state.worker_elements() * sizeof(float));
    }
    const ElementRange served = compressor->plan->served;
    if (!server.bytes.empty()) {
      server.bytes =
          server.bytes.subspan(served.begin * sizeof(float), served.count * sizeof(float));
    }
    if (identity.op == ReduceOp::kSum) {  // an all-gather has no op
      worker.factor = static_cast<float>(identity.ranks) / static_cast<float>(here.ranks);
      server.factor =
          static_cast<float>(identity.ranks) / state.server_unit(ReduceOp::kSum, here.ranks);
    }
  }
  if (!worker.IsFinite() || !server.IsFinite()) {
    return Error(Code::kCorrupt,
                 "compressor of tensor {}: a residual of the state is not finite as the compressor "
                 "would hold it",
                 state.config().tensor_id);
  }
  worker.Write(state.worker_out(state.config().worker_begin));
  server.Write(state.server_out(0));
  state.Adopt(identity.epoch, identity.commits_since_zero, identity.op);
  compressor->prepared.reset();  // a prepared rebind belongs to the former residuals
  return OkStatus();
}

}  // namespace onebit
