// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Decisions about a call of NCCL depend on these facts only. They are the same on every rank of the
// communicator, so every rank decides alike; addresses, values, times and free memory are not here.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace onebit::preload {

enum class Operation : uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kReduce,
  kBroadcast,
  kGather,
  kScatter,
  kSend,
  kRecv,
};
inline constexpr size_t kOperations = 10;
inline constexpr std::string_view kOperationNames[kOperations] = {
    "allreduce", "reducescatter", "allgather", "alltoall", "reduce",
    "broadcast", "gather",        "scatter",   "send",     "recv"};

// True if every rank gets a sum or an average.
constexpr bool IsReduction(Operation operation) {
  return operation == Operation::kAllReduce || operation == Operation::kReduceScatter;
}
// True for operations of two ranks. The others take no part, so only what both know may decide.
constexpr bool IsPair(Operation operation) {
  return operation == Operation::kSend || operation == Operation::kRecv;
}

// Values of ncclDataType_t and ncclRedOp_t.
enum class DataType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
  kFloat8e4m3 = 10,
  kFloat8e5m2 = 11,
};
inline constexpr int kSum = 0;
inline constexpr int kAvg = 4;

// Bytes of an element; 0 for a type of a later NCCL.
constexpr size_t BytesOf(DataType type) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kFloat8e4m3:
    case DataType::kFloat8e5m2:
      return 1;
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return 2;
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kFloat32:
      return 4;
    case DataType::kInt64:
    case DataType::kUint64:
    case DataType::kFloat64:
      return 8;
  }
  return 0;
}

constexpr bool IsFloat(DataType type) {
  return type == DataType::kFloat16 || type == DataType::kFloat32 || type == DataType::kFloat64 ||
         type == DataType::kBfloat16 || type == DataType::kFloat8e4m3 ||
         type == DataType::kFloat8e5m2;
}

// A call on a communicator. `count` is that of NCCL's argument: elements of the tensor, or of a
// rank's part.
struct CallFacts {
  Operation operation = Operation::kAllReduce;
  int reduction = kSum;  // of operations that reduce; may be neither kSum nor kAvg
  DataType type = DataType::kFloat32;
  uint64_t count = 0;

  friend auto operator<=>(const CallFacts&, const CallFacts&) = default;
};

// The facts about its communicator.
struct CommFacts {
  std::string_view name;  // of ncclConfig_t.commName; empty: none
  int ranks = 1;
};

// Bytes of the whole tensor: of all parts, where a call has one for each rank.
constexpr uint64_t TensorBytes(const CommFacts& comm, const CallFacts& call) {
  const bool has_parts =
      call.operation == Operation::kReduceScatter || call.operation == Operation::kAllGather ||
      call.operation == Operation::kAllToAll || call.operation == Operation::kGather ||
      call.operation == Operation::kScatter;
  const uint64_t parts = has_parts ? static_cast<uint64_t>(comm.ranks) : 1;
  return call.count * BytesOf(call.type) * parts;
}

}  // namespace onebit::preload
