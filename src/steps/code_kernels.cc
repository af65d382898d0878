// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "steps/code_kernels.h"

#include "steps/device_compute.h"
#include "steps/packet_parts.h"
#include "steps/weighted_compute.h"

namespace onebit {

using kernels::cuda::Kernel;
using kernels::cuda::kMaxLowBitPieces;
using kernels::cuda::LowBitPiece;

namespace {

// The kernels of a codec.
struct KernelSet {
  Kernel compress, reduce, average, decode, add_delta;
  size_t tile_elements;  // of those that compress
};

KernelSet KernelsOf(const Codec& codec) {
  if (codec.is_bf16()) {
    return {.compress = Kernel::kBf16Compress,
            .reduce = Kernel::kBf16Reduce,
            .average = Kernel::kBf16Average,
            .decode = Kernel::kBf16Decode,
            .add_delta = Kernel::kBf16AddDelta,
            .tile_elements = kernels::kTensorSumBlock};
  }
  return {.compress = Kernel::kLowBitCompress,
          .reduce = Kernel::kLowBitReduce,
          .average = Kernel::kLowBitAverage,
          .decode = Kernel::kLowBitDecode,
          .add_delta = Kernel::kLowBitAddDelta,
          .tile_elements = codec.block};
}

void SetResidual(const Compressor::KernelResidual& residual, LowBitPiece* piece) {
  piece->residuals[0] = residual.generations[0];
  piece->residuals[1] = residual.generations[1];
}

LowBitPiece PieceOf(const Call& call, const Step& step, const PacketPart& part,
                    const FaultWords& words) {
  return {.count = part.elements.count,
          .mask = call.compressor->mask(part.elements.begin),
          .words = call.compressor->words(),
          .faults = call.plan->key.codec.has_verdict() ? words.faults : nullptr,
          .decision = words.decision,
          .element = part.packet_element,
          .scale = static_cast<uint32_t>(part.scale),
          .scale_count = static_cast<uint32_t>(step.shape.scale_count)};
}

kernels::cuda::LowBitReduceKind KindOfReduce(const Call& call, const Step& step,
                                             const float* host_sizes) {
  const Plan& plan = *call.plan;
  kernels::cuda::PacketTerms terms;
  if (HasHostWeights(call)) {
    terms = HostTerms(call, host_sizes);
  } else if (call.descriptor.op != ReduceOp::kSum) {
    terms.divisor = plan.PiecesOf(step);
  }
  return {.codec = plan.key.codec.low_bit,
          .stride = step.stride,
          .rank = plan.OwnPieceOf(step),
          .ranks = plan.PiecesOf(step),
          .output_type = plan.key.type,
          .residual_type = call.compressor->config().residual_type,
          .terms = terms,
          .block = plan.key.codec.block};
}

void SetSources(const Call& call, const Step& step, LowBitPiece* piece) {
  piece->source = call.packets + step.sources;
  piece->own_source = call.packets + step.own_source;
}

// Calls `add` for each chunk of a step's packet, until one fails.
template <typename Add>
Status AddChunks(const Call& call, const Step& step, const Add& add) {
  Status status;
  ForEachPart(*call.plan, step, [&](const PacketPart& part) {
    if (status.ok()) status = add(part);
  });
  return status;
}

}  // namespace

// At any time one list at most has pieces.
struct CodeKernels::Lists {
  kernels::cuda::LowBitCompressParams compress;
  kernels::cuda::LowBitReduceParams reduce;
  kernels::cuda::LowBitDecodeParams decode;
};

CodeKernels::CodeKernels(const Devices& devices)
    : devices_(devices), lists_(std::make_unique<Lists>()) {}

CodeKernels::~CodeKernels() = default;

void CodeKernels::Begin(onebitStream_t stream, const float* host_sizes) {
  stream_ = stream;
  host_sizes_ = host_sizes;
  open_ = Kernel::kCount;
  for (kernels::cuda::LowBitPieceList* list :
       {&lists_->compress.list, &lists_->reduce.list, &lists_->decode.list}) {
    list->count = list->tiles = 0;
  }
}

template <typename Params, typename Kind>
Status CodeKernels::AddPiece(Kernel kernel, const Kind& kind, LowBitPiece piece,
                             size_t tile_elements, Params* params) {
  const bool is_open = open_ == kernel && static_cast<const Kind&>(*params) == kind &&
                       params->list.count < kMaxLowBitPieces;
  if (!is_open) ONEBIT_TRY(Flush());
  open_ = kernel;
  static_cast<Kind&>(*params) = kind;
  piece.first_tile = params->list.tiles;
  params->list.tiles += static_cast<uint32_t>(kernels::BlockCount(piece.count, tile_elements));
  params->list.pieces[params->list.count++] = piece;
  return OkStatus();
}

Status CodeKernels::Compress(const Call& call, const Step& step, const FaultWords& words) {
  const Plan& plan = *call.plan;
  const Compressor& compressor = *call.compressor;
  const kernels::cuda::LowBitCompressKind kind = {
      .codec = plan.key.codec.low_bit,
      .input_type = InputFrom(call, step, step.elements.begin).type,
      .value_type = plan.scale_type,
      .residual_type = compressor.config().residual_type,
      // The estimate of a delta changes when the packet is decoded, not here.
      .keeps_residual = !plan.key.is_delta(),
      .block = plan.key.codec.block};
  const KernelSet run = KernelsOf(plan.key.codec);
  return AddChunks(call, step, [&](const PacketPart& part) {
    LowBitPiece piece = PieceOf(call, step, part, words);
    piece.values = const_cast<std::byte*>(InputFrom(call, step, part.elements.begin).data);
    piece.packet = call.Write(step.region);
    piece.draws = WorkerDraws(call, part);
    SetResidual(compressor.worker(part.elements.begin), &piece);
    return AddPiece(run.compress, kind, piece, run.tile_elements, &lists_->compress);
  });
}

Status CodeKernels::Reduce(const Call& call, const Step& step, const FaultWords& words) {
  const Plan& plan = *call.plan;
  const KernelSet run = KernelsOf(plan.key.codec);
  return AddChunks(call, step, [&](const PacketPart& part) {
    LowBitPiece piece = PieceOf(call, step, part, words);
    piece.packet = call.Write(step.region);
    piece.draws = ServerDraws(call, part);
    SetSources(call, step, &piece);
    SetResidual(call.compressor->server(ServedElement(plan, part)), &piece);
    return AddPiece(run.reduce, KindOfReduce(call, step, host_sizes_), piece, run.tile_elements,
                    &lists_->reduce);
  });
}

Status CodeKernels::Average(const Call& call, const Step& step, const FaultWords& words) {
  return AddChunks(call, step, [&](const PacketPart& part) {
    LowBitPiece piece = PieceOf(call, step, part, words);
    piece.values = call.Write(step.region);
    SetSources(call, step, &piece);
    return AddPiece(KernelsOf(call.plan->key.codec).average, KindOfReduce(call, step, host_sizes_),
                    piece, kernels::kTensorSumBlock, &lists_->reduce);
  });
}

Status CodeKernels::Decode(const Call& call, const Step& step, const FaultWords& words) {
  const Plan& plan = *call.plan;
  const bool is_delta = plan.key.is_delta();
  const KernelSet run = KernelsOf(plan.key.codec);
  const kernels::cuda::LowBitDecodeKind kind = {
      .codec = plan.key.codec.low_bit, .output_type = plan.key.type, .block = plan.key.codec.block};
  return AddChunks(call, step, [&](const PacketPart& part) {
    LowBitPiece piece = PieceOf(call, step, part, words);
    piece.values = call.OutputAt(part.elements.begin);
    piece.packet = call.Write(step.region);
    if (is_delta) {
      SetResidual(call.compressor->worker(part.elements.begin), &piece);
    } else {
      piece.mask = call.MaskOfDecoded(step, part.elements.begin);
    }
    return AddPiece(is_delta ? run.add_delta : run.decode, kind, piece, kernels::kTensorSumBlock,
                    &lists_->decode);
  });
}

Status CodeKernels::Flush() {
  const auto flush = [&](auto* params) -> Status {
    if (params->list.count == 0) return OkStatus();
    ONEBIT_TRY(devices_.Launch(open_, params, stream_));
    params->list.count = params->list.tiles = 0;
    return OkStatus();
  };
  ONEBIT_TRY(flush(&lists_->compress));
  ONEBIT_TRY(flush(&lists_->reduce));
  return flush(&lists_->decode);
}

}  // namespace onebit
