// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/device_compute.h"

#include <array>

namespace onebit {
namespace {

using kernels::cuda::Kernel;
using kernels::cuda::kMaxPieces;
using kernels::cuda::Piece;
using kernels::cuda::PieceList;

size_t TileElements(const Plan& plan) {
  return plan.key.block == 0 ? kernels::kTensorSumBlock : plan.key.block;
}

bool IsDelta(const Plan& plan) {
  return plan.key.collective == Collective::kAllGather && plan.key.codec == CodecKind::kEf;
}

const void* AtElement(const void* buffer, size_t begin, kernels::DataType type) {
  return buffer == nullptr ? nullptr
                           : static_cast<const std::byte*>(buffer) - begin * kernels::BytesOf(type);
}

// Collects pieces of one step and launches a kernel whenever its parameters are full.
template <typename Params>
class Launches {
 public:
  Launches(const KernelQueue& queue, Kernel kernel, Params* params, size_t tile_elements)
      : queue_(queue), kernel_(kernel), params_(*params), tile_elements_(tile_elements) {}

  Status Add(Piece piece) {
    if (piece.count == 0) return OkStatus();
    PieceList& list = params_.list;
    if (list.count == kMaxPieces) ONEBIT_TRY(Flush());
    piece.first_tile = list.tiles;
    list.tiles += static_cast<uint32_t>(kernels::BlockCount(piece.count, tile_elements_));
    list.pieces[list.count++] = piece;
    return OkStatus();
  }

  Status Flush() {
    if (params_.list.count == 0) return OkStatus();
    ONEBIT_TRY(queue_.devices->Launch(kernel_, &params_, queue_.stream));
    params_.list.count = params_.list.tiles = 0;
    return OkStatus();
  }

 private:
  const KernelQueue& queue_;
  const Kernel kernel_;
  Params& params_;
  const size_t tile_elements_;
};

// Translates steps of one call into kernels.
class StepKernels {
 public:
  StepKernels(const KernelQueue& queue, const Call& call, const CallVerdict& verdict)
      : queue_(queue),
        call_(call),
        plan_(*call.plan),
        verdict_(verdict),
        mask_(call.compressor == nullptr ? nullptr : call.compressor->mask_base()) {}

  // Steps of one kind that do not depend on each other. Those with equal parameters share a launch.
  Status Enqueue(std::span<const Step> all, std::span<const uint32_t> indices) {
    const StepKind kind = all[indices[0]].kind;
    if (kind == StepKind::kDecode) return Decode(all, indices);
    if (kind == StepKind::kCompress && has_blocks()) return CompressBlocks(all, indices);
    if (kind == StepKind::kReduce && call_.compressor != nullptr && has_blocks()) {
      return ReduceBlocks(all, indices);
    }
    for (const uint32_t index : indices) {
      step_ = &all[index];
      ONEBIT_TRY(EnqueueOne());
    }
    return OkStatus();
  }

 private:
  Status EnqueueOne() {
    switch (step_->kind) {
      case StepKind::kCompress:
        return CompressTensor();
      case StepKind::kReduce:
        if (call_.compressor == nullptr) return ReduceDense();
        return step_->packet == kNoPacket ? Average() : ReduceTensor();
      case StepKind::kCopy:
        return Copy();
      case StepKind::kDecode:
      case StepKind::kVerdict:
      case StepKind::kSend:
      case StepKind::kReceive:
      case StepKind::kNative:
      case StepKind::kPack:
      case StepKind::kUnpack:
        break;
    }
    return OkStatus();
  }

  const Compressor::Config& config() const { return call_.compressor->config(); }
  bool has_blocks() const { return plan_.key.block != 0; }
  size_t MaskByte(size_t element) const {
    return mask_ == nullptr ? 0 : call_.compressor->MaskByte(element);
  }

  // Pairs elements of the tensor with their packet.
  Piece PieceOf(ElementRange elements, PacketView packet) const {
    return {.count = elements.count,
            .element = elements.begin,
            .residual = elements.begin,
            .mask_byte = MaskByte(elements.begin),
            .scales = packet.scales,
            .bits = packet.bits};
  }

  // Calls `take` for each chunk of a packet that contains all of them.
  template <typename Take>
  Status ForEachChunk(PacketView packet, const Take& take) const {
    size_t scale = 0;
    for (uint32_t chunk = 0; chunk < plan_.ranks; ++chunk) {
      const ElementRange elements = plan_.partition.Chunk(chunk);
      if (elements.count == 0) continue;
      ONEBIT_TRY(take(elements, PacketView{packet.scales + scale, packet.bits + elements.begin / 8},
                      scale));
      scale += ShapeOf(elements.count, plan_.key.block).scale_count;
    }
    return OkStatus();
  }

  kernels::cuda::CompressParams ParamsOfCompress() const {
    kernels::cuda::CompressParams params = {
        .input = AtElement(call_.input, plan_.input_begin, plan_.key.type),
        .input_type = config().type,
        .scale_type = plan_.scale_type,
        .rule = config().rule,
        .block = plan_.key.block,
        .residual = call_.compressor->worker(),
        .mask = mask_,
        .verdict = verdict_.bits,
        .decision = verdict_.decision,
        .tile_sums = queue_.tile_sums,
        .list = {},
    };
    // The estimate changes when the packet is decoded, not here.
    params.residual.is_kept = !IsDelta(plan_);
    return params;
  }

  Status CompressBlocks(std::span<const Step> all, std::span<const uint32_t> indices) {
    kernels::cuda::CompressParams params = ParamsOfCompress();
    Launches launches(queue_, Kernel::kCompressBlocks, &params, TileElements(plan_));
    for (const uint32_t index : indices) {
      step_ = &all[index];
      ONEBIT_TRY(AddCompressed(&launches));
    }
    return launches.Flush();
  }

  // With a tensor-wide scale all pieces fit into one launch (CheckDevicePlan).
  Status CompressTensor() {
    kernels::cuda::CompressParams params = ParamsOfCompress();
    Launches launches(queue_, Kernel::kCompressSigns, &params, TileElements(plan_));
    ONEBIT_TRY(AddCompressed(&launches));
    if (params.list.count == 0) return OkStatus();
    kernels::cuda::FinishScaleParams finish = {
        .tile_sums = queue_.tile_sums,
        .rule = config().rule,
        .output_type = plan_.scale_type,
        .ranks = step_->chunk == kAllChunks ? 0u : 1u,  // 1: rounded to the scale type
        .verdict = verdict_.bits,
        .list = params.list,
    };
    const auto& devices = *queue_.devices;
    ONEBIT_TRY(devices.Launch(Kernel::kCompressSigns, &params, queue_.stream));
    ONEBIT_TRY(devices.Launch(Kernel::kFinishScale, &finish, queue_.stream));
    if (params.residual.generations[0] == nullptr || !params.residual.is_kept) return OkStatus();
    return devices.Launch(Kernel::kCompressResidual, &params, queue_.stream);
  }

  template <typename Params>
  Status AddCompressed(Launches<Params>* launches) {
    const auto add = [&](ElementRange elements, PacketView packet, size_t) {
      return launches->Add(PieceOf(elements, packet));
    };
    if (step_->chunk != kAllChunks) {
      return add(step_->elements, ViewOf(call_.Write(step_->region), step_->shape), 0);
    }
    if (step_->stride == 0) {  // all chunks into one packet
      const PacketView whole = ViewOf(call_.Write(step_->region), step_->shape);
      return ForEachChunk(whole, [&](ElementRange elements, PacketView packet, size_t scale) {
        if (!has_blocks()) packet.scales = whole.scales;  // one scale for the tensor
        return add(elements, packet, scale);
      });
    }
    for (uint32_t chunk = 0; chunk < plan_.ranks; ++chunk) {  // a packet for each
      const ElementRange elements = plan_.partition.Chunk(chunk);
      const PacketView packet = ViewOf(call_.packets + step_->sources + chunk * step_->stride,
                                       ShapeOf(elements.count, plan_.key.block));
      ONEBIT_TRY(add(elements, packet, 0));
    }
    return OkStatus();
  }

  kernels::cuda::SourcePackets Sources() const {
    return {.sources = call_.packets + step_->sources,
            .stride = step_->stride,
            .own_source = call_.packets + step_->own_source,
            .rank = plan_.rank,
            .ranks = plan_.ranks};
  }

  kernels::cuda::ReduceParams ParamsOfReduce() const {
    return {
        .packets = Sources(),
        .output_type = config().type,
        .rule = config().rule,
        .is_sum = call_.descriptor.op == ReduceOp::kSum,
        .block = plan_.key.block,
        .residual = call_.compressor->server(),
        .mask = mask_,
        .verdict = verdict_.bits,
        .decision = verdict_.decision,
        .tile_sums = queue_.tile_sums,
        .list = {},
    };
  }

  // Adds the pieces of a step whose packets are `shift` bytes behind those of the parameters.
  template <typename Params>
  Status AddReduced(size_t shift, Launches<Params>* launches) {
    PacketShape source = step_->shape;
    if (step_->chunk == kAllChunks && !has_blocks()) source.scale_count = 1;
    const size_t served = plan_.key.is_one_exchange ? 0 : plan_.partition.Chunk(plan_.rank).begin;
    const auto add = [&](ElementRange elements, PacketView packet, size_t scale) {
      Piece piece = PieceOf(elements, packet);
      piece.residual = elements.begin - served;
      if (step_->chunk == kAllChunks) {
        piece.source_scales = has_blocks() ? scale * sizeof(float) : 0;
        piece.source_bits = elements.begin / 8;
      }
      piece.source_scales += shift;
      piece.source_bits += shift + source.scale_bytes();
      return launches->Add(piece);
    };
    const PacketView packet = ViewOf(call_.Write(step_->region), step_->shape);
    return step_->chunk == kAllChunks ? ForEachChunk(packet, add) : add(step_->elements, packet, 0);
  }

  // Steps share a launch if their packets lie alike, as those of segments of one length do.
  Status ReduceBlocks(std::span<const Step> all, std::span<const uint32_t> indices) {
    step_ = &all[indices[0]];
    kernels::cuda::ReduceParams params = ParamsOfReduce();
    Launches launches(queue_, Kernel::kReduceBlocks, &params, TileElements(plan_));
    const Step* first = step_;
    for (const uint32_t index : indices) {
      step_ = &all[index];
      if (step_->packet == kNoPacket) {
        ONEBIT_TRY(launches.Flush());
        ONEBIT_TRY(Average());
        continue;
      }
      if (step_->stride != first->stride || step_->sources < first->sources ||
          step_->own_source - step_->sources != first->own_source - first->sources) {
        ONEBIT_TRY(launches.Flush());
        first = step_;
        params.packets = Sources();
      }
      ONEBIT_TRY(AddReduced(step_->sources - first->sources, &launches));
    }
    return launches.Flush();
  }

  // With a tensor-wide scale all pieces fit into one launch (CheckDevicePlan).
  Status ReduceTensor() {
    kernels::cuda::ReduceParams params = ParamsOfReduce();
    Launches launches(queue_, Kernel::kReduceSigns, &params, TileElements(plan_));
    ONEBIT_TRY(AddReduced(0, &launches));
    if (params.list.count == 0) return OkStatus();
    kernels::cuda::FinishScaleParams finish = {
        .tile_sums = queue_.tile_sums,
        .rule = config().rule,
        .output_type = config().type,
        .is_sum = params.is_sum,
        .is_per_piece = true,
        .ranks = plan_.ranks,
        .verdict = verdict_.bits,
        .list = params.list,
    };
    const auto& devices = *queue_.devices;
    ONEBIT_TRY(devices.Launch(Kernel::kReduceSigns, &params, queue_.stream));
    ONEBIT_TRY(devices.Launch(Kernel::kFinishScale, &finish, queue_.stream));
    if (params.residual.generations[0] == nullptr) return OkStatus();
    return devices.Launch(Kernel::kReduceResidual, &params, queue_.stream);
  }

  Status Average() {
    kernels::cuda::ReduceParams params = {
        .packets = Sources(),
        .output_type = plan_.key.type,
        .is_sum = call_.descriptor.op == ReduceOp::kSum,
        .block = plan_.key.block,
        .mask = mask_,
        .verdict = verdict_.bits,
        .output = call_.Write(step_->region),
        .list = {},
    };
    Launches launches(queue_, Kernel::kDecodeAverage, &params, kernels::kTensorSumBlock);
    ONEBIT_TRY(launches.Add({.count = step_->elements.count,
                             .mask_byte = MaskByte(step_->elements.begin),
                             .source_bits = step_->shape.scale_bytes()}));
    return launches.Flush();
  }

  Status ReduceDense() {
    if (step_->elements.count == 0) return OkStatus();
    kernels::cuda::DenseReduceParams params = {
        .pieces = Sources(),
        .output = call_.Write(step_->region),
        .type = plan_.key.type,
        .is_average = call_.descriptor.op == ReduceOp::kAvg,
        .count = step_->elements.count,
    };
    params.pieces.own_source = call_.InputAt(step_->elements.begin);
    return queue_.devices->Launch(Kernel::kDenseReduce, &params, queue_.stream);
  }

  Status Decode(std::span<const Step> all, std::span<const uint32_t> indices) {
    kernels::cuda::DecodeParams params = {
        .output = const_cast<void*>(AtElement(call_.output, plan_.output_begin, plan_.key.type)),
        .output_type = plan_.key.type,
        .block = plan_.key.block,
        .mask = mask_,
        .verdict = verdict_.bits,
        .decision = verdict_.decision,
        .list = {},
    };
    if (IsDelta(plan_)) params.held = call_.compressor->worker();
    const Kernel kernel = IsDelta(plan_) ? Kernel::kAddDelta : Kernel::kDecode;
    Launches launches(queue_, kernel, &params, kernels::kTensorSumBlock);
    const auto add = [&](ElementRange elements, PacketView packet, size_t) {
      Piece piece = PieceOf(elements, packet);
      if (plan_.key.collective == Collective::kAllToAll) {
        // The mask is that of the sent elements: the peer's chunk for this rank.
        piece.mask_byte = MaskByte(elements.begin + plan_.partition.Chunk(plan_.rank).begin -
                                   plan_.partition.Chunk(step_->chunk).begin);
      }
      return launches.Add(piece);
    };
    for (const uint32_t index : indices) {
      step_ = &all[index];
      const PacketView packet = ViewOf(call_.Write(step_->region), step_->shape);
      ONEBIT_TRY(step_->chunk == kAllChunks ? ForEachChunk(packet, add)
                                            : add(step_->elements, packet, 0));
    }
    return launches.Flush();
  }

  Status Copy() {
    const std::byte* const from = call_.Read(step_->region);
    std::byte* const to = call_.OutputAt(step_->elements.begin);
    if (call_.compressor == nullptr) {
      if (from == to) return OkStatus();
      return queue_.devices->Copy(
          to, from, step_->elements.count * kernels::BytesOf(plan_.key.type), queue_.stream);
    }
    kernels::cuda::CopyParams params = {.input = from,
                                        .output = to,
                                        .type = plan_.key.type,
                                        .mask = mask_,
                                        .verdict = verdict_.bits,
                                        .list = {}};
    Launches launches(queue_, Kernel::kCopy, &params, kernels::kTensorSumBlock);
    ONEBIT_TRY(launches.Add(
        {.count = step_->elements.count, .mask_byte = MaskByte(step_->elements.begin)}));
    return launches.Flush();
  }

  const KernelQueue& queue_;
  const Call& call_;
  const Plan& plan_;
  const Step* step_ = nullptr;  // the one being translated
  const CallVerdict verdict_;
  const uint8_t* const mask_;
};

kernels::cuda::FillValue NanOf(kernels::DataType type) {
  switch (type) {
    case kernels::DataType::kF32:
      return kernels::cuda::FillValue::kNanF32;
    case kernels::DataType::kF16:
      return kernels::cuda::FillValue::kNanF16;
    case kernels::DataType::kBf16:
      return kernels::cuda::FillValue::kNanBf16;
  }
  return kernels::cuda::FillValue::kNanF32;
}

}  // namespace

size_t TileSumsFor(const Plan& plan, size_t tensor_elements) {
  if (plan.key.codec == CodecKind::kDense || plan.key.block != 0) return 0;
  return kernels::BlockCount(tensor_elements, kernels::kTensorSumBlock) + plan.ranks;
}

Status CheckDevicePlan(const Plan& plan) {
  if (plan.key.codec == CodecKind::kDense || plan.key.block != 0 || plan.ranks <= kMaxPieces) {
    return OkStatus();
  }
  return Error(Code::kInvalidUsage,
               "one scale for a whole tensor (ONEBIT_BLOCK_TENSOR) on device memory works for up "
               "to {} ranks, and there are {}: use scales of blocks",
               kMaxPieces, plan.ranks);
}

Status EnqueueSteps(const KernelQueue& queue, std::span<const Call> calls,
                    std::span<const Step> steps, std::span<const uint32_t> indices,
                    std::span<const CallVerdict> verdicts) {
  for (size_t begin = 0, end = 0; begin < indices.size(); begin = end) {
    const Step& first = steps[indices[begin]];
    while (end < indices.size() && steps[indices[end]].kind == first.kind &&
           steps[indices[end]].call == first.call) {
      ++end;
    }
    ONEBIT_TRY(StepKernels(queue, calls[first.call], verdicts[first.call])
                   .Enqueue(steps, indices.subspan(begin, end - begin)));
  }
  return OkStatus();
}

Status EnqueueNan(const KernelQueue& queue, const Call& call, const CallVerdict& verdict) {
  kernels::cuda::FillParams params = {.condition = verdict.bits,
                                      .decision = verdict.decision,
                                      .mask = ~0u,
                                      .value = NanOf(call.plan->key.type),
                                      .count = 0,
                                      .spans = {}};
  const auto flush = [&]() -> Status {
    if (params.count == 0) return OkStatus();
    ONEBIT_TRY(queue.devices->Launch(Kernel::kFillIf, &params, queue.stream));
    params.count = 0;
    return OkStatus();
  };
  if (call.plan->key.collective == Collective::kAllReduce) {  // all of it, however it is cut
    params.spans[params.count++] = {call.output, call.plan->key.count};
    return flush();
  }
  for (const Step& step : call.plan->steps) {
    if (!WritesOutput(step) || step.elements.count == 0) continue;
    if (params.count == kMaxPieces) ONEBIT_TRY(flush());
    params.spans[params.count++] = {call.OutputAt(step.elements.begin), step.elements.count};
  }
  return flush();
}

Status EnqueueHeldChecksums(const KernelQueue& queue, const Call& call,
                            kernels::Checksum* checksums) {
  const kernels::cuda::Residual held = call.compressor->worker();
  const auto* const first = static_cast<const std::byte*>(held.generations[0]);
  const auto* const second = static_cast<const std::byte*>(held.generations[1]);
  kernels::cuda::ChecksumParams params = {
      .current = held.current, .shift = first - second, .spans = {}};
  const auto flush = [&]() -> Status {
    if (params.count == 0) return OkStatus();
    ONEBIT_TRY(queue.devices->Launch(Kernel::kChecksum, &params, queue.stream));
    params.count = 0;
    return OkStatus();
  };
  for (uint32_t chunk = 0; chunk < call.plan->ranks; ++chunk) {
    const ElementRange elements = call.plan->partition.Chunk(chunk);
    if (elements.count == 0) continue;
    if (params.count == kMaxPieces) ONEBIT_TRY(flush());
    params.spans[params.count++] = {.data = second + elements.begin * sizeof(float),
                                    .bytes = elements.count * sizeof(float),
                                    .checksum = checksums + chunk};
  }
  return flush();
}

}  // namespace onebit
