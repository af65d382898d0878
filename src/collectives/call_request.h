// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A call of a collective as its caller made it, and what follows from it alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "codec/message_header.h"
#include "collectives/algorithms.h"
#include "collectives/plan.h"
#include "collectives/planned_compressor.h"
#include "collectives/step_compute.h"
#include "comm/comm.h"
#include "device/memory.h"

namespace onebit {

struct CallRequest {
  Collective collective = Collective::kBarrier;
  const void* sendbuff = nullptr;
  void* recvbuff = nullptr;
  // Elements; where a buffer has a part for every rank, those of one part. 0 in an all-to-all-v,
  // whose buffers begin where `pairs` counts from.
  size_t count = 0;
  kernels::DataType type = kernels::DataType::kF32;
  ReduceOp op = {};                         // of a collective that has one
  uint32_t root = 0;                        // of a broadcast
  MemoryLocation location = {};             // of both buffers
  onebitStream_t stream = nullptr;          // null: the call blocks, or CUDA's default stream
  PlannedCompressor* compressor = nullptr;  // null: dense
  PairCounts pairs = {};                    // of an all-to-all-v; its lists outlive the call
  // Bit pattern of the weight sum of a sync, which the ranks compare.
  std::optional<uint32_t> sync_weight = std::nullopt;
  bool can_be_native = true;  // a dense allreduce may be the transport's own
};

// What the call's plan depends on.
PlanKey KeyOf(const CallRequest& request, const Comm& comm);

// The ranks compare this of a call, apart from its number.
CallDescriptor DescriptorOf(const CallRequest& request, const Comm& comm);
CallDescriptor DescriptorOf(const PlanKey& key, const Comm& comm);

// The call as an executor runs it; packets: plan.packet_space_bytes.
Call CallOf(const CallRequest& request, const Plan& plan, const Comm& comm, std::byte* packets);

// Bytes of the call's buffers that it reads and writes on this rank.
struct BufferBytes {
  size_t input = 0;
  size_t output = 0;
};
BufferBytes BytesOf(const CallRequest& request, const Comm& comm);

// Whether the call goes through host memory over a transport of the host: dense, on device memory.
inline bool IsStaged(const CallRequest& request) {
  return request.compressor == nullptr && request.location.is_device();
}

// Updates the communicator's counters: a call that succeeded, and what its endpoint has sent.
void CountCall(const CallRequest& request, const Plan& plan, Comm* comm);
void CountMessages(Comm* comm);

}  // namespace onebit
