// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The contents of frames between a hub and the ranks of other processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "tests/support/nccl/clique.h"
#include "tests/support/nccl/frame_link.h"
#include "tests/support/nccl/operations.h"

namespace onebit::testing::nccl {

struct JoinRequest {
  uint64_t clique;
  int32_t ranks;
  int32_t rank;
  int32_t device;
};

// Connections that a rank announces: added to those that the hub's member has.
void PackConnections(const Member& member, Packer* packer);
void AddConnections(std::span<const std::byte> content, Member* member);

// The state of a clique as a rank needs to know it. Both require the clique's mutex.
void PackState(const Clique& clique, int rank, Packer* packer);
void ApplyState(std::span<const std::byte> content, int rank, Clique* mirror);

// Sends an operation with its inputs, straight from the buffers.
bool SendOperation(const Operation& operation, uint64_t number, FrameLink* link);

// An operation of a rank of another process, with buffers in this one.
struct GuestOperation {
  Frame request;  // has the inputs
  Operation operation;
  std::unique_ptr<std::byte[]> outputs;
  size_t output_bytes = 0;
};
// `comm` stands for the rank in this process.
std::unique_ptr<GuestOperation> ReadOperation(Frame request, const std::shared_ptr<Comm>& comm);
// Copies outputs, in the order of GuestOperation's, to the buffers of the operation.
void WriteOutputs(std::span<const std::byte> outputs, const Operation& operation);

}  // namespace onebit::testing::nccl
