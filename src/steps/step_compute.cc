// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "steps/step_compute.h"

#include <cstring>

#include "base/nvtx_range.h"
#include "steps/dense_reduction.h"
#include "steps/run_codec_step.h"

namespace onebit {
namespace {

// In a group, one checksum covers the whole message.
void SetChecksum(const Call& call, const Region& region, uint32_t packet,
                 kernels::Checksum* checksums) {
  if (checksums == nullptr) return;
  checksums[packet] = kernels::cpu::ChecksumOf(call.Read(region), region.bytes);
}

// Packets of values that are not finite carry zeros, because the flag in the header suffices.
void ClearPacket(const Call& call, const Region& region) {
  if (region.bytes != 0) std::memset(call.Write(region), 0, region.bytes);
}

// Copies the elements in the mask and writes 0 for the others. Returns true if all copied values
// are finite: others have all bits of `exponent` set.
template <typename Word>
bool CopyWords(const std::byte* input, std::byte* output, const uint8_t* mask, size_t count,
               Word exponent) {
  bool is_finite = true;
  for (size_t i = 0; i < count; ++i) {
    Word word = 0;
    if (mask == nullptr || (mask[i / 8] >> (i % 8) & 1) != 0) {
      std::memcpy(&word, input + i * sizeof(Word), sizeof(Word));
    }
    is_finite = is_finite && (word & exponent) != exponent;
    std::memcpy(output + i * sizeof(Word), &word, sizeof(Word));
  }
  return is_finite;
}

}  // namespace

kernels::Checksum HeldChecksum(const Call& call, uint32_t chunk) {
  const ElementRange elements = call.plan->partition.Chunk(chunk);
  return kernels::cpu::ChecksumOf(call.compressor->worker_out(elements.begin),
                                  elements.count * sizeof(float));
}

bool StepCompute::Run(const Call& call, const Step& step, bool is_nonfinite,
                      kernels::Checksum* checksums) {
  const NvtxRange range(NameOf(step.kind));
  if (step.kind == StepKind::kVerdict) {
    kernels::Checksum held;
    if (!is_nonfinite && step.region.bytes != 0) held = HeldChecksum(call, step.chunk);
    WriteVerdict(call, step, held, checksums);
    return !is_nonfinite;
  }
  const bool is_finite = !is_nonfinite && Compute(call, step);
  FinishPackets(call, step, is_finite, checksums);
  return is_finite;
}

bool StepCompute::Compute(const Call& call, const Step& step) {
  const bool is_weighted = call.plan->key.is_weighted;
  if (step.kind == StepKind::kCopy) {  // of the only rank
    if (is_weighted) call.compressor->set_weight_sum(call.compressor->weight());
    return IsAbsent(call) ? ClearOutput(call, step) : Copy(call, step);
  }
  if (is_weighted && step.kind == StepKind::kHostSum) {
    weighted_.SumHost(call, step);
    return true;
  }
  if (step.kind == StepKind::kStage) {
    if (step.region.bytes != 0) {
      std::memcpy(call.Write(step.region), call.InputAt(step.elements.begin), step.region.bytes);
    }
    return true;
  }
  if (step.kind == StepKind::kHostSum || call.compressor == nullptr) {
    if (step.kind == StepKind::kReduce || step.kind == StepKind::kHostSum) ReduceDense(call, step);
    return true;
  }
  CodecOps& ops = OpsOf(call.plan->key.codec);
  if (step.kind == StepKind::kReduce && (is_weighted || HasHostWeights(call))) {
    return weighted_.Reduce(call, step, &ops);
  }
  if (is_weighted && step.kind == StepKind::kCompress && WeightOf(call, step) == 0) {
    return KeepResidual(call, step);
  }
  if (step.kind == StepKind::kDecode && step.shape.is_weighted) {
    const float weight = WeightOf(call.Read(step.region));
    call.compressor->set_weight_sum(weight);
    if (weight == 0) return ClearOutput(call, step);
  }
  return RunCodecStep(step, &ops, true, call, step);
}

void FinishPackets(const Call& call, const Step& step, bool is_finite,
                   kernels::Checksum* checksums) {
  const bool makes_packets = step.kind == StepKind::kCompress ||
                             (step.kind == StepKind::kReduce && step.packet != kNoPacket);
  if (call.compressor == nullptr || !makes_packets) return;
  const bool is_contribution = step.kind == StepKind::kCompress;
  const bool has_weight = is_contribution ? call.plan->key.is_weighted : step.shape.is_weighted;
  float weight = 1;
  if (has_weight && is_contribution) weight = WeightOf(call, step);
  // The flag alone counts where values are not finite.
  if (has_weight && !is_contribution) weight = is_finite ? call.compressor->weight_sum() : 0;
  const bool is_absent = weight == 0;
  const auto finish = [&](Region region, uint32_t packet) {
    // A group sends zeros for the packet of an absent rank, a single call nothing.
    if (!is_finite || (is_absent && checksums == nullptr)) ClearPacket(call, region);
    if (has_weight) SetWeight(weight, call.Write(region));
    if (is_absent) region.bytes = kWeightBytes;
    SetChecksum(call, region, packet, checksums);
  };
  if (step.kind == StepKind::kCompress && step.chunk == kAllChunks && step.stride != 0) {
    for (uint32_t chunk = 0; chunk < call.plan->ranks; ++chunk) {
      finish(ChunkPacket(call, step, chunk), step.packet + chunk);
    }
  } else {
    finish(step.region, step.packet);
  }
}

void WriteVerdict(const Call& call, const Step& step, kernels::Checksum held,
                  kernels::Checksum* checksums) {
  if (step.region.bytes != 0) std::memcpy(call.Write(step.region), &held, sizeof(held));
  SetChecksum(call, step.region, step.packet, checksums);
}

void StepCompute::ReduceDense(const Call& call, const Step& step) {
  if (step.elements.count == 0) return;
  const Plan& plan = *call.plan;
  const uint32_t pieces = plan.PiecesOf(step);
  for (uint32_t r = 0; r < pieces; ++r) {
    pieces_[r] = call.packets + step.sources + r * step.stride;
  }
  if (const uint32_t own = plan.OwnPieceOf(step); own != kNoPiece) {
    pieces_[own] = call.InputAt(step.elements.begin);
  }
  const DenseReduction reduction = DenseReductionOf(call, step);
  kernels::cpu::DenseReduce(pieces_.data(), pieces, step.elements.count, plan.key.type,
                            reduction.op, call.Write(step.region), reduction.terms);
}

// Compressed calls inspect what they copy, because the mask and the rule for values that are not
// finite apply to it as well.
bool StepCompute::Copy(const Call& call, const Step& step) {
  const kernels::DataType type = call.plan->key.type;
  const size_t count = step.elements.count;
  if (count == 0) return true;
  const std::byte* from = call.Read(step.region);
  std::byte* to = call.OutputAt(step.elements.begin);
  if (call.compressor == nullptr) {
    if (to != from) std::memcpy(to, from, count * kernels::BytesOf(type));
    return true;
  }
  const uint8_t* mask = call.compressor->mask(step.elements.begin);
  bool is_finite = false;
  switch (type) {
    case kernels::DataType::kF32:
      is_finite = CopyWords<uint32_t>(from, to, mask, count, 0x7f80'0000u);
      break;
    case kernels::DataType::kF16:
      is_finite = CopyWords<uint16_t>(from, to, mask, count, 0x7c00u);
      break;
    case kernels::DataType::kBf16:
      is_finite = CopyWords<uint16_t>(from, to, mask, count, 0x7f80u);
      break;
      ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
  }
  return is_finite || !call.plan->key.codec.has_verdict();
}

}  // namespace onebit
