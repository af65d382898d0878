// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls of a group for tests: random calls, made one by one or as a group.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "tests/support/comm_group.h"
#include "tests/support/residuals.h"
#include "tests/support/tensor.h"

namespace onebit::testing {

// One call; equal on all ranks.
struct GroupCall {
  enum class Kind { kAllReduce, kBroadcast, kBarrier };
  Kind kind = Kind::kAllReduce;
  size_t count = 0;
  kernels::DataType type = kernels::DataType::kF32;
  onebitRedOp_t op = onebitAvg;
  int root = 0;
  bool is_in_place = false;
  std::optional<onebitCompressorConfig_t> config = std::nullopt;  // none: dense
};

GroupCall Dense(size_t count);
GroupCall Ef(size_t count);

// Draws calls of all kinds, codecs, types and sizes, including 0 and 1.
std::vector<GroupCall> RandomCalls(size_t count, int ranks, std::mt19937& random);

// The buffers and compressors of one rank, and its calls.
class GroupRank {
 public:
  GroupRank(onebitComm_t comm, const std::vector<GroupCall>& calls);

  // Draws new inputs; equal for equal seeds.
  void Fill(uint32_t seed);
  // Sets an element of a call's input.
  void SetInput(size_t call, size_t element, float value);
  // Makes the calls one by one until the first error.
  onebitResult_t CallAll();
  onebitResult_t Call(size_t call);
  // Makes all calls between start and end of a group.
  onebitResult_t CallGroup();

  size_t size() const { return calls_.size(); }
  Tensor& input(size_t call) { return inputs_[call]; }
  Tensor& output(size_t call) { return calls_[call].is_in_place ? inputs_[call] : outputs_[call]; }
  onebitCompressor_t compressor(size_t call) const { return compressors_[call].get(); }
  // Residuals by call; empty for dense ones.
  std::vector<Residuals> AllResiduals() const;
  std::vector<uint64_t> Epochs() const;
  // Expects equal outputs, residuals and epochs, call by call.
  void ExpectSameAs(GroupRank& other);

 private:
  onebitComm_t comm_;
  std::vector<GroupCall> calls_;
  std::vector<Tensor> inputs_;
  std::vector<Tensor> outputs_;
  std::vector<UniqueCompressor> compressors_;
};

std::vector<GroupRank> RanksOf(CommGroup& group, const std::vector<GroupCall>& calls);

}  // namespace onebit::testing
