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

// The elements of the tensor whose worker residual this rank has, in the order of their memory.
std::vector<ElementRange> WorkerRanges(const Compressor& state) {
  const Compressor::Config& config = state.config();
  if (config.worker_places == nullptr) return {{config.worker_begin, state.worker_elements()}};
  std::vector<ElementRange> ranges;
  for (size_t chunk = 0; chunk < config.chunks; ++chunk) {
    if ((*config.worker_places)[chunk] == Compressor::Config::kElsewhere) continue;
    ranges.push_back({chunk * config.count, config.count});
  }
  return ranges;
}

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
      worker_ranges_ = WorkerRanges(state());
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
      ONEBIT_TRY(Sum(state().worker_base(), residual_type, worker_ranges_,
                     static_cast<float>(comm_.ranks()), writer.section(SectionTag::kWorker).data(),
                     RanksOfResidual(comm_, state())));
    }
    if (state().server_in(0) != nullptr) {
      // Replicas are equal, so rank 0's stands for all.
      const bool is_replica = planned_.plan->key.is_one_exchange && comm_.rank() != 0;
      const ElementRange mine = is_replica ? ElementRange{} : planned_.plan->served;
      ONEBIT_TRY(Sum(state().server_in(0), residual_type, {&mine, 1}, ServerUnitsOfMean(),
                     writer.section(SectionTag::kServer).data()));
    }
    if (!is_finite_) {  // on every rank
      return Error(Code::kInvalidUsage,
                   "rank {}: compressor of tensor {}: the residuals are too large for their mean "
                   "to be finite; call onebitCompressorReset",
                   comm_.rank(), state().config().tensor_id);
    }
    if (companion_ != nullptr) ONEBIT_TRY(WriteCompanion());
    writer.Seal();
    return OkStatus();
  }

  Status WriteCompanion() {
    const ElementRange all = {0, state().config().elements()};
    ONEBIT_TRY(Sum(reinterpret_cast<const std::byte*>(companion_->elements), DataType::kF32,
                   {&all, 1}, static_cast<float>(comm_.ranks()), companion_->mean));
    if (is_finite_) return OkStatus();
    return Error(Code::kInvalidUsage,
                 "rank {}: the sum of a rank in the sync of tensor {} is not finite: make steps up "
                 "to the next sync, which discards it, then export",
                 comm_.rank(), state().config().tensor_id);
  }

  // The state has server residuals in units of the mean.
  float ServerUnitsOfMean() const {
    if (state().op() != ReduceOp::kSum) return 1;
    return static_cast<float>(comm_.ranks()) /
           state().server_unit(ReduceOp::kSum, static_cast<size_t>(comm_.ranks()));
  }

  // Sums each rank's elements, times `factor`, over the ranks, and divides by `divisor`. Those of
  // `ranges` of the tensor follow one another in memory.
  Status Sum(const std::byte* elements, DataType type, std::span<const ElementRange> ranges,
             float divisor, std::byte* out, float factor = 1) {
    auto* const values = reinterpret_cast<float*>(piece_.data());
    const size_t count = state().config().elements();
    for (size_t begin = 0; begin < count; begin += kPieceElements) {
      const ElementRange piece = {begin, std::min(kPieceElements, count - begin)};
      std::fill_n(values, piece.count, 0.0f);
      size_t index = 0;  // of a range's first element
      for (const ElementRange& range : ranges) {
        for (size_t i = std::max(piece.begin, range.begin); i < std::min(piece.end(), range.end());
             ++i) {
          values[i - begin] =
              factor * kernels::reference::LoadElement(elements, type, index + (i - range.begin));
        }
        index += range.count;
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
  std::vector<ElementRange> worker_ranges_;
  bool is_finite_ = true;
};

// Residuals from a state, to be converted into those of a compressor.
struct Incoming {
  std::span<const std::byte> bytes;  // of any alignment
  DataType type = DataType::kF32;
  float factor = 1;
  DataType target_type = DataType::kF32;

  size_t elements() const { return bytes.size() / kernels::BytesOf(type); }
  Incoming Part(ElementRange range) const {
    Incoming part = *this;
    const size_t element_bytes = kernels::BytesOf(type);
    part.bytes = bytes.subspan(range.begin * element_bytes, range.count * element_bytes);
    return part;
  }
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
  if (config.codec.is_lossless()) {
    return Error(Code::kInvalidUsage,
                 "compressor of tensor {} is lossless and needs no state: its first call after a "
                 "restart sends all elements",
                 config.tensor_id);
  }
  if (kind == StateKind::kRank || !config.codec.has_feedback()) return OkStatus();
  if (config.collective == Collective::kSendRecv) {
    return Error(Code::kInvalidUsage,
                 "compressor of tensor {}: the residuals of a send and its receive belong to two "
                 "ranks and are of no use to others: export onebitStateRank on both",
                 config.tensor_id);
  }
  if (config.collective != Collective::kAllToAll) return OkStatus();
  return Error(Code::kInvalidUsage,
               "compressor of tensor {}: the residuals of an all-to-all belong to pairs of ranks "
               "and are of no use to others: export onebitStateRank",
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

bool WantsOneLevel(std::span<const std::byte> blob, const PlannedCompressor& compressor) {
  const Compressor& state = compressor.compressor;
  if (compressor.plan->hosts == 0 || state.config().levels != 0 || state.epoch() != 0 ||
      state.calls() != 0) {
    return false;
  }
  const auto reader = StateReader::Open(blob);
  if (!reader.ok() || reader.value().kind() != StateKind::kRank) return false;
  const auto bytes = reader.value().section(SectionTag::kIdentity);
  const auto identity = DecodeIdentity(bytes.value_or(std::span<const std::byte>()));
  StateIdentity here = IdentityOf(compressor, StateKind::kRank);
  here.hosts = 0;
  return identity.ok() && DescribeDifferenceOfRank(identity.value(), here).empty();
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
                 "compressor of tensor {}: the state belongs to another compressor: {}{}",
                 state.config().tensor_id, difference,
                 is_global ? "" : "; only onebitStateGlobal fits other ranks or settings");
  }
  if (state.config().is_weighted && identity.op == ReduceOp::kSum) {
    return Error(Code::kMismatch,
                 "compressor of tensor {} has a weight (onebitCompressorSetWeight), but the state "
                 "is that of a compressor that sums: import it into one without a weight",
                 state.config().tensor_id);
  }
  ONEBIT_TRY(CheckSections(reader, identity, here, Sections(*compressor, reader.kind())));

  const DataType target_type = state.config().residual_type;
  Incoming worker = {.target_type = target_type};
  worker.bytes = reader.section(SectionTag::kWorker).value_or(worker.bytes);
  Incoming server = {.target_type = target_type};
  server.bytes = reader.section(SectionTag::kServer).value_or(server.bytes);
  worker.type = server.type = identity.residual_type;
  // A state of one rank has its residuals alone, in the order in which they are in memory.
  const ElementRange whole = {0, worker.elements()};
  std::vector<ElementRange> of_tensor;
  std::span<const ElementRange> ranges(&whole, 1);
  if (is_global) {
    if (!worker.bytes.empty()) ranges = of_tensor = WorkerRanges(state);
    if (!server.bytes.empty()) server = server.Part(compressor->plan->served);
    if (identity.op == ReduceOp::kSum) {  // an all-gather has no op
      worker.factor = static_cast<float>(identity.ranks) / static_cast<float>(here.ranks);
      server.factor =
          static_cast<float>(identity.ranks) / state.server_unit(ReduceOp::kSum, here.ranks);
    }
  }
  const auto is_finite = [&](ElementRange range) { return worker.Part(range).IsFinite(); };
  if (!std::ranges::all_of(ranges, is_finite) || !server.IsFinite()) {
    return Error(Code::kCorrupt,
                 "compressor of tensor {}: a residual of the state is not finite in the "
                 "compressor's residualType",
                 state.config().tensor_id);
  }
  std::byte* to = state.worker_base_out();
  for (const ElementRange& range : ranges) {
    worker.Part(range).Write(to);
    to += range.count * kernels::BytesOf(target_type);
  }
  server.Write(state.server_out(0));
  state.Adopt(identity.epoch, identity.commits_since_zero, identity.op);
  compressor->prepared.reset();  // a prepared rebind belongs to the former residuals
  return OkStatus();
}

}  // namespace onebit
