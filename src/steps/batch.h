// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls as executors run them: plans bound to buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compressor/compressor.h"
#include "plan/plan.h"

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
  // A packet that a reduce step reads: of a rank, or with two levels of a host.
  std::byte* PieceOf(const Step& step, uint32_t piece) const {
    const bool is_own = piece == plan->OwnPieceOf(step);
    return packets + (is_own ? step.own_source : step.sources + piece * step.stride);
  }
  // Mask of elements from `element` on that a decode step writes. In an all-to-all it is that of
  // the sent elements: the peer's chunk for this rank.
  const uint8_t* MaskOfDecoded(const Step& step, size_t element) const;
  // An element of the tensor in the caller's buffers.
  const std::byte* InputAt(size_t element) const {
    return input + (element - plan->input_begin) * kernels::BytesOf(plan->key.type);
  }
  std::byte* OutputAt(size_t element) const {
    if (output == nullptr) return nullptr;  // of a sender
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

// A compress step reads the caller's input or the mean of this host, here from one of its elements
// on.
struct StepInput {
  const std::byte* data = nullptr;
  kernels::DataType type = kernels::DataType::kF32;
};
StepInput InputFrom(const Call& call, const Step& step, size_t element);

// Some elements of the input of a compress step.
kernels::CompressInput InputOf(const Call& call, const Step& step, ElementRange elements);

// Estimates of deltas are kept as residuals are, in fp32.
inline const float* AsFloats(const std::byte* held) { return reinterpret_cast<const float*>(held); }
inline float* AsFloats(std::byte* held) { return reinterpret_cast<float*>(held); }

}  // namespace onebit
