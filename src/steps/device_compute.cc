// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "steps/device_compute.h"

#include <algorithm>
#include <tuple>

#include "plan/reduce_op.h"
#include "plan/runs.h"
#include "steps/dense_reduction.h"
#include "steps/run_codec_step.h"
#include "steps/weighted_compute.h"

namespace onebit {

using kernels::cuda::Kernel;
using kernels::cuda::kInMemory;
using kernels::cuda::kMaxPieces;
using kernels::cuda::PacketTerms;
using kernels::cuda::Piece;
using kernels::cuda::PieceList;

namespace {

size_t TileElements(const Plan& plan) {
  return plan.key.codec.block == 0 ? kernels::kTensorSumBlock : plan.key.codec.block;
}

void SetResidual(const Compressor::KernelResidual& residual, Piece* piece) {
  piece->residuals[0] = residual.generations[0];
  piece->residuals[1] = residual.generations[1];
  piece->current = residual.current;
}

kernels::cuda::FillValue NanOf(kernels::DataType type) {
  switch (type) {
    case kernels::DataType::kF32:
      return kernels::cuda::FillValue::kNanF32;
    case kernels::DataType::kF16:
      return kernels::cuda::FillValue::kNanF16;
    case kernels::DataType::kBf16:
      return kernels::cuda::FillValue::kNanBf16;
      ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
  }
  return kernels::cuda::FillValue::kNanF32;
}

}  // namespace

// At any time one list at most has pieces.
struct DeviceCompute::Lists {
  kernels::cuda::CompressParams compress;
  kernels::cuda::ReduceParams reduce;
  kernels::cuda::FinishScaleParams finish;
  kernels::cuda::DecodeParams decode;
  kernels::cuda::CopyParams copy;
  kernels::cuda::FillParams fill;
  kernels::cuda::CommitParams commit;
  uint32_t scales = 0;  // of a whole tensor each, so far
};

// Translates steps of one call into pieces of the lists.
class DeviceCompute::StepKernels {
 public:
  StepKernels(DeviceCompute& compute, const AddedStep& added)
      : compute_(compute),
        lists_(*compute.lists_),
        call_(*added.call),
        step_(*added.step),
        plan_(*call_.plan),
        words_(added.words) {}

  Status Add() {
    if (step_.kind == StepKind::kCopy) return Copy();
    if (step_.kind == StepKind::kStage) return Stage();
    if (step_.kind == StepKind::kHostSum) return ReduceDense();
    if (call_.compressor != nullptr) return RunCodecStep(step_, this, OkStatus());
    return step_.kind == StepKind::kReduce ? ReduceDense() : OkStatus();
  }

 private:
  const Compressor::Config& config() const { return call_.compressor->config(); }
  bool has_blocks() const { return plan_.key.codec.block != 0; }

  // Makes the list of `params` the open one, for launches of this kind. All pieces of a step with a
  // scale for the whole tensor are in one launch (CheckDevicePlan).
  template <typename Params, typename Kind>
  Status Open(Kernel kernel, const Kind& kind, Params* params) {
    const bool needs_room = !has_blocks() && params->list.count + plan_.ranks > kMaxPieces;
    if (compute_.open_ == kernel && static_cast<const Kind&>(*params) == kind && !needs_room) {
      return OkStatus();
    }
    ONEBIT_TRY(compute_.Flush());
    compute_.open_ = kernel;
    static_cast<Kind&>(*params) = kind;
    return OkStatus();
  }

  // The same with one scale for the pieces of `kind`, whose sum kFinishScale completes.
  template <typename Params, typename Kind>
  Status OpenTensor(Kernel kernel, const Kind& kind, const kernels::cuda::FinishScaleKind& finish,
                    Params* params) {
    kernels::cuda::FinishScaleKind& current = lists_.finish;
    if (current != finish) ONEBIT_TRY(compute_.Flush());
    current = finish;
    return Open(kernel, kind, params);
  }

  Status AddTo(PieceList* list, Piece piece, size_t tile_elements) {
    if (piece.count == 0) return OkStatus();
    if (list->count == kMaxPieces) ONEBIT_TRY(compute_.Flush());
    piece.first_tile = list->tiles;
    piece.scale = lists_.scales;
    list->tiles += static_cast<uint32_t>(kernels::BlockCount(piece.count, tile_elements));
    list->pieces[list->count++] = piece;
    return OkStatus();
  }

  const uint8_t* MaskOf(ElementRange elements) const {
    return call_.compressor->mask(elements.begin);
  }

  // Pairs elements of the tensor with their mask and their packet.
  Piece PieceOf(ElementRange elements, const uint8_t* mask, PacketView packet) const {
    return {.count = elements.count,
            .mask = mask,
            .scales = packet.scales,
            .bits = packet.bits,
            .faults = plan_.key.codec.has_verdict() ? words_.faults : nullptr,
            .decision = words_.decision};
  }

  // Calls take(PacketRun) for the runs of the step's packet, until it fails.
  template <typename Take>
  Status TryEachRun(const Take& take) const {
    Status status = OkStatus();
    ForEachRun(plan_, step_, [&](const PacketRun& run) {
      if (status.ok()) status = take(run);
    });
    return status;
  }

  // The packet of the step from a run on.
  PacketView PacketAt(const PacketRun& run) const {
    const PacketView packet = ViewOf(call_.Write(step_.region), step_.shape);
    return {packet.scales + run.scale, packet.bits + run.byte};
  }

 public:  // what RunCodecStep calls
  Status Compress() {
    // The estimate of a delta changes when the packet is decoded, not here.
    const auto input_from = [&](size_t element) { return InputFrom(call_, step_, element); };
    const kernels::cuda::CompressKind kind = {.input_type = input_from(step_.elements.begin).type,
                                              .scale_type = plan_.scale_type,
                                              .residual_type = config().residual_type,
                                              .keeps_residual = !plan_.key.is_delta(),
                                              .rule = config().codec.rule,
                                              .block = plan_.key.codec.block};
    if (has_blocks()) {
      ONEBIT_TRY(Open(Kernel::kCompressBlocks, kind, &lists_.compress));
    } else {
      const kernels::cuda::FinishScaleKind finish = {
          .rule = config().codec.rule,
          .output_type = plan_.scale_type,
          .ranks = step_.chunk == kAllChunks ? 0u : 1u};  // 1: rounded to the scale type
      ONEBIT_TRY(OpenTensor(Kernel::kCompressSigns, kind, finish, &lists_.compress));
      ++lists_.scales;
    }
    const auto add = [&](ElementRange elements, PacketView packet) {
      Piece piece = PieceOf(elements, MaskOf(elements), packet);
      piece.values = const_cast<std::byte*>(input_from(elements.begin).data);
      SetResidual(call_.compressor->worker(elements.begin), &piece);
      return AddTo(&lists_.compress.list, piece, TileElements(plan_));
    };
    if (step_.chunk == kAllChunks && step_.stride != 0) {  // one scale, but a packet for each chunk
      for (uint32_t chunk = 0; chunk < plan_.ranks; ++chunk) {
        const ElementRange elements = plan_.partition.Chunk(chunk);
        const PacketView packet = ViewOf(call_.packets + step_.sources + chunk * step_.stride,
                                         ShapeOf(elements.count, plan_.key.codec.block));
        ONEBIT_TRY(add(elements, packet));
      }
      return OkStatus();
    }
    return TryEachRun([&](const PacketRun& run) {
      PacketView packet = PacketAt(run);
      if (!has_blocks()) packet.scales -= run.scale;  // one scale for the tensor
      return add(run.elements, packet);
    });
  }

  kernels::cuda::ReduceKind KindOfReduce(kernels::DataType output_type) const {
    const bool has_weights = HasHostWeights(call_);
    return {.terms = has_weights ? HostTerms(call_, compute_.host_sizes_) : PacketTerms{},
            .stride = step_.stride,
            .rank = plan_.OwnPieceOf(step_),
            .ranks = plan_.PiecesOf(step_),
            .output_type = output_type,
            .residual_type = config().residual_type,
            .rule = config().codec.rule,
            .is_sum = !has_weights && call_.descriptor.op == ReduceOp::kSum,
            .block = plan_.key.codec.block};
  }

  // Names the source of a piece whose scales and bits begin so many bytes behind those of a packet.
  void SetSource(size_t scales, size_t bits, Piece* piece) const {
    piece->source = call_.packets + step_.sources + scales;
    piece->own_source = call_.packets + step_.own_source + scales;
    piece->source_bits = bits - scales;
  }

  Status Reduce() {
    const kernels::cuda::ReduceKind kind = KindOfReduce(config().type);
    if (has_blocks()) {
      ONEBIT_TRY(Open(Kernel::kReduceBlocks, kind, &lists_.reduce));
    } else {
      const kernels::cuda::FinishScaleKind finish = {.rule = config().codec.rule,
                                                     .output_type = config().type,
                                                     .is_sum = kind.is_sum,
                                                     .ranks = plan_.ranks};
      ONEBIT_TRY(OpenTensor(Kernel::kReduceSigns, kind, finish, &lists_.reduce));
    }
    PacketShape source = step_.shape;
    if (step_.chunk == kAllChunks && !has_blocks()) source.scale_count = 1;
    const size_t served = plan_.served.begin;
    const bool has_one_source_scale = step_.chunk == kAllChunks && !has_blocks();
    return TryEachRun([&](const PacketRun& run) {
      ++lists_.scales;
      Piece piece = PieceOf(run.elements, MaskOf(run.elements), PacketAt(run));
      SetResidual(call_.compressor->server(run.elements.begin - served), &piece);
      SetSource(has_one_source_scale ? 0 : run.scale * sizeof(float),
                source.scale_bytes() + run.byte, &piece);
      return AddTo(&lists_.reduce.list, piece, TileElements(plan_));
    });
  }

  Status Average() {
    ONEBIT_TRY(Open(Kernel::kDecodeAverage, KindOfReduce(plan_.key.type), &lists_.reduce));
    Piece piece = PieceOf(step_.elements, MaskOf(step_.elements), {});
    piece.values = call_.Write(step_.region);
    SetSource(0, step_.shape.scale_bytes(), &piece);
    return AddTo(&lists_.reduce.list, piece, kernels::kTensorSumBlock);
  }

  Status Stage() {
    if (step_.region.bytes == 0) return OkStatus();
    return compute_.devices_.Copy(call_.Write(step_.region), call_.InputAt(step_.elements.begin),
                                  step_.region.bytes, compute_.stream_);
  }

  Status ReduceDense() {
    if (step_.elements.count == 0) return OkStatus();
    DenseReduction reduction = DenseReductionOf(call_, step_);
    if (reduction.terms.factors != nullptr) reduction.terms.factors = compute_.host_sizes_;
    const kernels::cuda::DenseReduceParams params = {
        .pieces = {.sources = call_.packets + step_.sources,
                   .stride = step_.stride,
                   .own_source = call_.InputAt(step_.elements.begin),
                   .rank = plan_.OwnPieceOf(step_),
                   .ranks = plan_.PiecesOf(step_)},
        .output = call_.Write(step_.region),
        .type = plan_.key.type,
        .op = reduction.op,
        .count = step_.elements.count,
        .terms = reduction.terms,
    };
    return compute_.Launch(kernels::cuda::DenseKernelFor(params), &params);
  }

  Status Decode() {
    const kernels::cuda::DecodeKind kind = {.output_type = plan_.key.type,
                                            .block = plan_.key.codec.block};
    ONEBIT_TRY(
        Open(plan_.key.is_delta() ? Kernel::kAddDelta : Kernel::kDecode, kind, &lists_.decode));
    return TryEachRun([&](const PacketRun& run) {
      const size_t begin = run.elements.begin;
      Piece piece = PieceOf(run.elements, call_.MaskOfDecoded(step_, begin), PacketAt(run));
      piece.values = call_.OutputAt(begin);
      if (plan_.key.is_delta()) SetResidual(call_.compressor->worker(begin), &piece);
      return AddTo(&lists_.decode.list, piece, kernels::kTensorSumBlock);
    });
  }

  Status Copy() {
    const std::byte* const from = call_.Read(step_.region);
    std::byte* const to = call_.OutputAt(step_.elements.begin);
    if (call_.compressor == nullptr) {
      if (from == to) return OkStatus();
      return compute_.devices_.Copy(
          to, from, step_.elements.count * kernels::BytesOf(plan_.key.type), compute_.stream_);
    }
    ONEBIT_TRY(Open(Kernel::kCopy, kernels::cuda::CopyKind{plan_.key.type}, &lists_.copy));
    Piece piece = PieceOf(step_.elements, MaskOf(step_.elements), {});
    piece.source = from;
    piece.values = to;
    return AddTo(&lists_.copy.list, piece, kernels::kTensorSumBlock);
  }

  DeviceCompute& compute_;
  Lists& lists_;
  const Call& call_;
  const Step& step_;
  const Plan& plan_;
  const FaultWords words_;
};

DeviceCompute::DeviceCompute(const Devices& devices, LongLists& long_lists)
    : devices_(devices),
      long_lists_(long_lists),
      lists_(std::make_unique<Lists>()),
      codes_(devices) {}

DeviceCompute::~DeviceCompute() = default;

// Forgets what an error has left behind.
void DeviceCompute::Begin(onebitStream_t stream, kernels::TileSum* tile_sums,
                          const float* host_sizes) {
  stream_ = stream;
  tile_sums_ = tile_sums;
  host_sizes_ = host_sizes;
  open_ = Kernel::kCount;
  steps_.clear();
  turns_.clear();
  for (PieceList* list :
       {&lists_->compress.list, &lists_->reduce.list, &lists_->decode.list, &lists_->copy.list}) {
    list->count = list->tiles = 0;
  }
  fills_.clear();
  ends_.clear();
  codes_.Begin(stream, host_sizes);
}

void DeviceCompute::Add(size_t call_index, const Call& call, const Step& step,
                        const FaultWords& words) {
  if (turns_.size() <= call_index) turns_.resize(call_index + 1);
  StepTurn& turn = turns_[call_index];
  if (turn.has_steps && turn.kind != step.kind) ++turn.turn;
  turn.has_steps = true;
  turn.kind = step.kind;
  steps_.push_back({&call, &step, words, turn.turn, static_cast<uint32_t>(steps_.size())});
}

Status DeviceCompute::EnqueueSteps() {
  const auto key = [](const AddedStep& added) {
    const PlanKey& plan = added.call->plan->key;
    return std::tuple(added.turn, added.step->kind, plan.codec.has_codes(), plan.codec.low_bit,
                      plan.type, plan.codec.block, added.index);
  };
  std::ranges::sort(steps_, {}, key);
  for (size_t i = 0; i < steps_.size(); ++i) {
    const AddedStep& added = steps_[i];
    // Steps of a later turn need the results of those before.
    if (i != 0 && added.turn != steps_[i - 1].turn) ONEBIT_TRY(FlushTurn());
    const StepKind kind = added.step->kind;
    const bool is_of_codec =
        kind == StepKind::kCompress || kind == StepKind::kReduce || kind == StepKind::kDecode;
    if (added.call->plan->key.codec.has_codes() && is_of_codec) {
      ONEBIT_TRY(
          RunCodecStep(*added.step, &codes_, OkStatus(), *added.call, *added.step, added.words));
    } else {
      ONEBIT_TRY(StepKernels(*this, added).Add());
    }
  }
  steps_.clear();
  turns_.clear();
  return FlushTurn();
}

Status DeviceCompute::FlushTurn() {
  ONEBIT_TRY(codes_.Flush());
  return Flush();
}

Status DeviceCompute::Flush() {
  Lists& lists = *lists_;
  const auto flush = [&](auto* params) -> Status {
    if (params->list.count == 0) return OkStatus();
    ONEBIT_TRY(Launch(open_, params));
    params->list.count = params->list.tiles = 0;
    return OkStatus();
  };
  switch (open_) {
    case Kernel::kCompressBlocks:
      return flush(&lists.compress);
    case Kernel::kCompressSigns:
      return LaunchTensor(Kernel::kCompressSigns, Kernel::kCompressResidual, &lists.compress);
    case Kernel::kReduceSigns:
      return LaunchTensor(Kernel::kReduceSigns, Kernel::kReduceResidual, &lists.reduce);
    case Kernel::kReduceBlocks:
    case Kernel::kDecodeAverage:
      return flush(&lists.reduce);
    case Kernel::kDecode:
    case Kernel::kAddDelta:
      return flush(&lists.decode);
    case Kernel::kCopy:
      return flush(&lists.copy);
    default:
      return OkStatus();
  }
}

// Signs and sums of tiles, then the scales, then the residuals that depend on them.
template <typename Params>
Status DeviceCompute::LaunchTensor(Kernel signs, Kernel residual, Params* params) {
  PieceList& list = params->list;
  if (list.count == 0) return OkStatus();
  kernels::cuda::FinishScaleParams& finish = lists_->finish;
  params->tile_sums = tile_sums_;
  finish.tile_sums = tile_sums_;
  finish.list.count = list.count;
  finish.list.tiles = list.tiles;
  const auto pieces = std::span(list.pieces).first(list.count);
  std::ranges::copy(pieces, finish.list.pieces);
  ONEBIT_TRY(Launch(signs, params));
  ONEBIT_TRY(Launch(Kernel::kFinishScale, &finish));
  const bool has_residual =
      std::ranges::any_of(pieces, [](const Piece& piece) { return piece.residuals[0] != nullptr; });
  bool is_kept = true;
  if constexpr (requires { params->keeps_residual; }) is_kept = params->keeps_residual;
  if (has_residual && is_kept) ONEBIT_TRY(Launch(residual, params));
  list.count = list.tiles = 0;
  return OkStatus();
}

void DeviceCompute::AddEnd(const Call& call, const FaultWords& words, const CommWords& comm) {
  const auto fill = [&](void* data, size_t count, kernels::cuda::FillValue value) {
    if (count == 0 || data == nullptr) return;
    fills_.push_back({.data = data,
                      .count = count,
                      .condition = words.faults,
                      .decision = words.decision,
                      .value = value});
  };
  const Plan& plan = *call.plan;
  if (plan.key.collective == Collective::kAllReduce) {  // all of it, however it is cut
    fill(call.output, plan.key.count, NanOf(plan.key.type));
  } else {
    for (const Step& step : plan.steps) {
      if (!WritesOutput(step)) continue;
      fill(call.OutputAt(step.elements.begin), step.elements.count, NanOf(plan.key.type));
    }
  }
  for (const std::span<std::byte> residual : call.compressor->ResidualsToReset()) {
    fill(residual.data(), residual.size(), kernels::cuda::FillValue::kZeroBytes);
  }
  lists_->commit.halted = comm.halted;
  lists_->commit.nonfinite_calls = comm.nonfinite_calls;
  ends_.push_back({.words = call.compressor->words(),
                   .sequence = comm.sequence,
                   .has_two_generations = call.compressor->has_two_generations(),
                   .is_alone = plan.is_alone(),
                   .faults = words.faults,
                   .decision = words.decision});
}

// Fills come first, because the end of a call clears its faults.
Status DeviceCompute::EnqueueEnds() {
  using kernels::cuda::EndedCall;
  using kernels::cuda::FillSpan;
  ONEBIT_TRY(long_lists_.Launch(
      std::span<const FillSpan>(fills_), kMaxPieces,
      [&](const FillSpan* spans) {
        const kernels::cuda::FillParamsOf<kInMemory> params = {
            .count = static_cast<uint32_t>(fills_.size()), .spans = spans};
        return Launch(Kernel::kFillIfLong, &params);
      },
      [&](std::span<const FillSpan> part) {
        lists_->fill.count = static_cast<uint32_t>(part.size());
        std::ranges::copy(part, lists_->fill.spans);
        return Launch(Kernel::kFillIf, &lists_->fill);
      }));
  kernels::cuda::CommitParams& commit = lists_->commit;
  ONEBIT_TRY(long_lists_.Launch(
      std::span<const EndedCall>(ends_), kMaxPieces,
      [&](const EndedCall* calls) {
        const kernels::cuda::CommitParamsOf<kInMemory> params = {
            .halted = commit.halted,
            .nonfinite_calls = commit.nonfinite_calls,
            .count = static_cast<uint32_t>(ends_.size()),
            .calls = calls};
        return Launch(Kernel::kCommitLong, &params);
      },
      [&](std::span<const EndedCall> part) {
        commit.count = static_cast<uint32_t>(part.size());
        std::ranges::copy(part, commit.calls);
        return Launch(Kernel::kCommit, &commit);
      }));
  fills_.clear();
  ends_.clear();
  return OkStatus();
}

Status DeviceCompute::EnqueueHeldChecksums(const Call& call, kernels::Checksum* checksums) {
  using kernels::cuda::kMaxSpans;
  const Compressor::KernelResidual held = call.compressor->worker(0);
  const auto* const first = static_cast<const std::byte*>(held.generations[0]);
  const auto* const second = static_cast<const std::byte*>(held.generations[1]);
  kernels::cuda::ChecksumParams params = {
      .current = held.current, .shift = first - second, .spans = {}};
  const auto flush = [&]() -> Status {
    if (params.count == 0) return OkStatus();
    ONEBIT_TRY(Launch(Kernel::kChecksum, &params));
    params.count = 0;
    return OkStatus();
  };
  for (uint32_t chunk = 0; chunk < call.plan->ranks; ++chunk) {
    const ElementRange elements = call.plan->partition.Chunk(chunk);
    if (elements.count == 0) continue;
    if (params.count == kMaxSpans) ONEBIT_TRY(flush());
    params.spans[params.count++] = {.data = second + elements.begin * sizeof(float),
                                    .bytes = elements.count * sizeof(float),
                                    .checksum = checksums + chunk};
  }
  return flush();
}

size_t TileSumsFor(const Plan& plan, size_t tensor_elements) {
  if (plan.key.codec.is_dense() || plan.key.codec.block != 0) return 0;
  return kernels::BlockCount(tensor_elements, kernels::kTensorSumBlock) + plan.ranks;
}

Status CheckDevicePlan(const Plan& plan) {
  if (plan.key.codec.is_dense() || plan.key.codec.block != 0 || plan.ranks <= kMaxPieces) {
    return OkStatus();
  }
  return Error(Code::kInvalidUsage,
               "one scale for a whole tensor (ONEBIT_BLOCK_TENSOR) on device memory works for up "
               "to {} ranks, but there are {}: use one scale per block",
               kMaxPieces, plan.ranks);
}

}  // namespace onebit
