// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/collectives/group_case.h"

#include <gtest/gtest.h>

namespace onebit::testing {

GroupCall Dense(size_t count) { return {.count = count}; }

GroupCall Ef(size_t count) {
  GroupCall call{.count = count};
  call.config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  return call;
}

std::vector<GroupCall> RandomCalls(size_t count, int ranks, std::mt19937& random) {
  constexpr kernels::DataType kTypes[] = {kernels::DataType::kF32, kernels::DataType::kF16,
                                          kernels::DataType::kBf16};
  constexpr size_t kCounts[] = {0, 1, 7, 64, 1000, 3001, 20'000};
  std::vector<GroupCall> calls;
  while (calls.size() < count) {
    GroupCall call;
    call.count = kCounts[random() % std::size(kCounts)];
    call.type = kTypes[random() % std::size(kTypes)];
    call.op = random() % 2 == 0 ? onebitSum : onebitAvg;
    call.is_in_place = random() % 2 == 0;
    switch (random() % 6) {
      case 0:
        break;
      case 1:
        call.kind = GroupCall::Kind::kBroadcast;
        call.root = static_cast<int>(random() % static_cast<unsigned>(ranks));
        break;
      case 2:
        call.kind = GroupCall::Kind::kBarrier;
        break;
      default: {
        onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
        config.mode = random() % 3 == 0 ? onebitModePlain : onebitModeEf;
        constexpr int32_t kBlocks[] = {64, 4096, ONEBIT_BLOCK_TENSOR};
        config.block = kBlocks[random() % std::size(kBlocks)];
        constexpr onebitCodec_t kCodecs[] = {onebitCodecFp4, onebitCodecUint8mm, onebitCodecInt2};
        if (config.block != ONEBIT_BLOCK_TENSOR && random() % 2 == 0) {
          config.codec = kCodecs[random() % std::size(kCodecs)];
        }
        config.transactional = random() % 4 == 0 ? 0 : 1;
        call.config = config;
      }
    }
    calls.push_back(call);
  }
  return calls;
}

GroupRank::GroupRank(onebitComm_t comm, const std::vector<GroupCall>& calls)
    : comm_(comm), calls_(calls) {
  for (const GroupCall& call : calls_) {
    inputs_.emplace_back(call.count, call.type);
    outputs_.emplace_back(call.count, call.type);
    compressors_.emplace_back();
    if (!call.config) continue;
    compressors_.back() = NewCompressor(comm, call.count, ApiType(call.type), *call.config);
  }
}

void GroupRank::Fill(uint32_t seed) {
  std::mt19937 random(seed);
  for (Tensor& input : inputs_) input.FillNormal(random);
}

void GroupRank::SetInput(size_t call, size_t element, float value) {
  inputs_[call].Set(element, value);
}

onebitResult_t GroupRank::Call(size_t index) {
  const GroupCall& call = calls_[index];
  const void* send = inputs_[index].data();
  void* recv = output(index).data();
  switch (call.kind) {
    case GroupCall::Kind::kAllReduce:
      return onebitAllReduce(send, recv, call.count, ApiType(call.type), call.op, compressor(index),
                             comm_, nullptr);
    case GroupCall::Kind::kBroadcast:
      return onebitBroadcast(send, recv, call.count, ApiType(call.type), call.root, comm_, nullptr);
    case GroupCall::Kind::kBarrier:
      return onebitBarrier(comm_, nullptr);
  }
  return onebitInternalError;
}

onebitResult_t GroupRank::CallAll() {
  for (size_t call = 0; call < size(); ++call) {
    if (const onebitResult_t result = Call(call); result != onebitSuccess) return result;
  }
  return onebitSuccess;
}

onebitResult_t GroupRank::CallGroup() {
  onebitGroupStart();
  CallAll();
  return onebitGroupEnd();
}

std::vector<Residuals> GroupRank::AllResiduals() const {
  std::vector<Residuals> residuals(size());
  for (size_t call = 0; call < size(); ++call) {
    if (compressor(call) != nullptr) residuals[call] = ResidualsOf(compressor(call));
  }
  return residuals;
}

std::vector<uint64_t> GroupRank::Epochs() const {
  std::vector<uint64_t> epochs(size());
  for (size_t call = 0; call < size(); ++call) {
    if (compressor(call) != nullptr) epochs[call] = StatsOf(compressor(call)).epoch;
  }
  return epochs;
}

void GroupRank::ExpectSameAs(GroupRank& other) {
  for (size_t call = 0; call < size(); ++call) {
    SCOPED_TRACE(::testing::Message() << "call " << call << " of " << size() << ", "
                                      << calls_[call].count << " elements");
    if (calls_[call].kind != GroupCall::Kind::kBarrier) {
      EXPECT_TRUE(output(call).HasBytesOf(other.output(call)));
      EXPECT_TRUE(output(call).HasIntactGuards());
    }
    if (compressor(call) == nullptr) continue;
    EXPECT_EQ(ResidualsOf(compressor(call)), ResidualsOf(other.compressor(call)));
    EXPECT_EQ(StatsOf(compressor(call)).epoch, StatsOf(other.compressor(call)).epoch);
    EXPECT_EQ(StatsOf(compressor(call)).nonfinite_calls,
              StatsOf(other.compressor(call)).nonfinite_calls);
  }
}

std::vector<GroupRank> RanksOf(CommGroup& group, const std::vector<GroupCall>& calls) {
  std::vector<GroupRank> ranks;
  for (int rank = 0; rank < group.ranks(); ++rank) ranks.emplace_back(group.comm(rank), calls);
  return ranks;
}

}  // namespace onebit::testing
