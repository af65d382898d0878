// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs the computing steps of a plan on host memory.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "collectives/plan.h"
#include "compressor/compressor.h"

namespace onebit {

struct StreamTurns;

// A call is a plan bound to buffers. It borrows both.
struct Call {
  const Plan* plan = nullptr;
  CallDescriptor descriptor;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* packets = nullptr;      // plan->packet_space_bytes
  Compressor* compressor = nullptr;  // null: dense

  // True if a stream computes its steps. Those of dense calls are computed on the host.
  bool is_on_device() const {
    return compressor != nullptr && compressor->config().location.is_device();
  }
  const std::byte* Read(const Region& region) const;
  std::byte* Write(const Region& region) const;
  // An element of the tensor in the caller's buffers.
  const std::byte* InputAt(size_t element) const {
    return input + (element - plan->input_begin) * kernels::BytesOf(plan->key.type);
  }
  std::byte* OutputAt(size_t element) const {
    return output + (element - plan->output_begin) * kernels::BytesOf(plan->key.type);
  }
};

// The unit of work of an executor: one call, or several of a group in shared messages.
struct Batch {
  const Plan* plan = nullptr;         // of the call, or of a GroupPlan
  CallDescriptor descriptor;          // of the messages
  std::span<const Call> calls;        // by Step::call
  std::byte* packets = nullptr;       // plan->packet_space_bytes for all calls and messages
  std::span<const uint32_t> digests;  // by call, see DigestOf; empty for a single call
  // The turns of the stream that runs the computing steps of calls on device memory; null if all
  // memory is on the host.
  const StreamTurns* turns = nullptr;

  bool is_group() const { return !digests.empty(); }
  const std::byte* Read(const Step& step) const {
    return step.call == kAllCalls ? packets + step.region.offset
                                  : calls[step.call].Read(step.region);
  }
  std::byte* Write(const Step& step) const {
    return step.call == kAllCalls ? packets + step.region.offset
                                  : calls[step.call].Write(step.region);
  }
};

// True if a computing step of a compressed call writes to the caller's output.
inline bool WritesOutput(const Step& step) {
  const bool is_average = step.kind == StepKind::kReduce && step.packet == kNoPacket;
  return step.kind == StepKind::kDecode || step.kind == StepKind::kCopy || is_average;
}

// Checksum of this rank's estimate of `chunk` after the call, in an all-gather with error feedback.
kernels::Checksum HeldChecksum(const Call& call, uint32_t chunk);

// Completes the packets of a compress or reduce step: clears them if values are not finite, and
// computes their checksums. checksums: as for StepCompute::Run.
void FinishPackets(const Call& call, const Step& step, bool is_finite,
                   kernels::Checksum* checksums);

// Writes the packet of a verdict step.
void WriteVerdict(const Call& call, const Step& step, kernels::Checksum held,
                  kernels::Checksum* checksums);

// The input of a compress step.
kernels::CompressInput InputOf(const Call& call, ElementRange elements);

// Runs all steps except messages. Owned by an executor and used by its thread.
class StepCompute {
 public:
  explicit StepCompute(uint32_t ranks) : bits_(ranks), scales_(ranks), pieces_(ranks) {}

  // Runs `step`. checksums[p] receives the checksum of every packet p the step makes; null if they
  // are not needed. is_nonfinite: an input of the step is not finite, so it makes an all-zero
  // packet. Returns true if its results are finite.
  bool Run(const Call& call, const Step& step, bool is_nonfinite, kernels::Checksum* checksums);

 private:
  bool Compute(const Call& call, const Step& step);
  bool Compress(const Call& call, const Step& step);
  bool CompressTensor(const Call& call, const Step& step);
  bool CompressWhole(const Call& call, const Step& step);
  bool CompressPiece(const Call& call, const Step& step);
  bool Reduce(const Call& call, const Step& step);
  bool ReduceChunk(const Call& call, const Step& step, ElementRange elements, size_t scale_offset,
                   size_t bit_offset, PacketView packet);
  // Fills bits_ and scales_ with the pieces of all ranks, starting at these offsets in their
  // packets.
  void FindPieces(const Call& call, const Step& step, PacketShape shape, size_t scale_offset,
                  size_t bit_offset);
  bool Average(const Call& call, const Step& step);
  void ReduceDense(const Call& call, const Step& step);
  bool Decode(const Call& call, const Step& step);
  bool AddDelta(const Call& call, const Step& step);
  bool Copy(const Call& call, const Step& step);

  // Pointers to the pieces of all ranks, set by each reduce step.
  std::vector<const uint8_t*> bits_;
  std::vector<const float*> scales_;
  std::vector<const void*> pieces_;
};

}  // namespace onebit
