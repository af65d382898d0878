// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Long random sequences of calls of all kinds on several tensors. Ranks run at their own pace, so
// some are already in the next call; every output must be the model's.
#include <chrono>
#include <limits>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/collectives/allreduce_case.h"
#include "tests/support/residuals.h"

namespace onebit::testing {
namespace {

using kernels::DataType;

constexpr uint32_t kSeed = 7601;

struct Operation {
  enum class Kind { kCompressed, kDense, kBroadcast, kBarrier, kReset, kSetMask };
  Kind kind = Kind::kBarrier;
  size_t tensor = 0;  // compressed calls, reset, set mask
  onebitRedOp_t op = onebitSum;
  int root = 0;
  std::vector<Tensor> inputs;      // by rank
  std::unique_ptr<Tensor> output;  // of every rank
  std::vector<uint8_t> mask;       // empty: none
};

class Sequence {
 public:
  Sequence(int ranks, size_t tensors, size_t operations, uint32_t seed)
      : ranks_(ranks), random_(seed) {
    for (size_t t = 0; t < tensors; ++t) {
      cases_.push_back(RandomCase(static_cast<size_t>(ranks), random_() % 3000, random_));
      models_.emplace_back(cases_.back().model);
    }
    for (size_t i = 0; i < operations; ++i) Add();
  }

  // Runs on one rank; `pace` seeds its delays.
  void Run(onebitComm_t comm, int rank, uint32_t pace) const {
    std::mt19937 random(pace);
    std::vector<UniqueCompressor> compressors;
    for (const AllReduceCase& c : cases_) {
      compressors.push_back(NewCompressor(comm, c.model.count, ApiType(c.type()), c.config()));
    }
    for (size_t i = 0; i < operations_.size(); ++i) {
      SCOPED_TRACE(::testing::Message() << "operation " << i << ", rank " << rank);
      // Ranks come at different times.
      if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
      const Operation& operation = operations_[i];
      ASSERT_EQ(Do(operation, comm, rank, compressors[operation.tensor].get()), onebitSuccess)
          << onebitGetLastError(nullptr);
      if (::testing::Test::HasFailure()) FAIL();
    }
    for (size_t t = 0; t < cases_.size(); ++t) {
      EXPECT_EQ(WorkerResidualOf(compressors[t].get()),
                models_[t].worker_residual(static_cast<size_t>(rank)))
          << cases_[t];
    }
  }

 private:
  void Add() {
    Operation operation;
    operation.tensor = random_() % cases_.size();
    const AllReduceCase& c = cases_[operation.tensor];
    const uint32_t choice = random_() % 20;
    if (choice < 11) {
      AddCompressed(&operation, c);
    } else if (choice < 14) {
      operation.kind = Operation::Kind::kDense;
      operation.op = random_() % 2 == 0 ? onebitSum : onebitAvg;
      MakeInputs(&operation, random_() % 4000, c.type());
      model::DenseAllReduce(
          Pointers(operation), operation.output->count(), c.type(),
          operation.op == onebitSum ? kernels::DenseOp::kSum : kernels::DenseOp::kAverage,
          operation.output->data());
    } else if (choice < 16) {
      operation.kind = Operation::Kind::kBroadcast;
      operation.root = static_cast<int>(random_() % static_cast<uint32_t>(ranks_));
      MakeInputs(&operation, random_() % 4000, c.type());
      operation.output->CopyFrom(operation.inputs[static_cast<size_t>(operation.root)]);
    } else if (choice < 18) {
      operation.kind = Operation::Kind::kBarrier;
    } else if (choice < 19) {
      operation.kind = Operation::Kind::kReset;
      models_[operation.tensor].Reset();
    } else {
      operation.kind = Operation::Kind::kSetMask;
      operation.mask.resize(kernels::BitBytes(c.model.count));
      for (uint8_t& byte : operation.mask) byte = static_cast<uint8_t>(random_() | random_());
      models_[operation.tensor].SetMask(operation.mask);
    }
    operations_.push_back(std::move(operation));
  }

  void AddCompressed(Operation* operation, const AllReduceCase& c) {
    operation->kind = Operation::Kind::kCompressed;
    operation->op = c.op();
    MakeInputs(operation, c.model.count, c.type());
    if (c.model.count != 0 && random_() % 10 == 0) {
      operation->inputs[random_() % operation->inputs.size()].Set(
          random_() % c.model.count, std::numeric_limits<float>::infinity());
    }
    models_[operation->tensor].Run(Pointers(*operation), operation->output->data());
  }

  void MakeInputs(Operation* operation, size_t count, DataType type) {
    for (int rank = 0; rank < ranks_; ++rank) {
      operation->inputs.emplace_back(count, type);
      operation->inputs.back().FillNormal(random_);
    }
    operation->output = std::make_unique<Tensor>(count, type);
  }

  static std::vector<const void*> Pointers(const Operation& operation) {
    std::vector<const void*> pointers;
    for (const Tensor& input : operation.inputs) pointers.push_back(input.data());
    return pointers;
  }

  static onebitResult_t Do(const Operation& operation, onebitComm_t comm, int rank,
                           onebitCompressor_t compressor) {
    using Kind = Operation::Kind;
    if (operation.kind == Kind::kBarrier) return onebitBarrier(comm, nullptr);
    if (operation.kind == Kind::kReset) return onebitCompressorReset(compressor);
    if (operation.kind == Kind::kSetMask) {
      return onebitCompressorSetMask(compressor, operation.mask.data());
    }
    const Tensor& expected = *operation.output;
    Tensor buffer(expected.count(), expected.type());
    buffer.CopyFrom(operation.inputs[static_cast<size_t>(rank)]);
    const onebitResult_t result =
        operation.kind == Kind::kBroadcast
            ? onebitBroadcast(buffer.data(), buffer.data(), buffer.count(), buffer.api_type(),
                              operation.root, comm, nullptr)
            : onebitAllReduce(
                  buffer.data(), buffer.data(), buffer.count(), buffer.api_type(), operation.op,
                  operation.kind == Kind::kCompressed ? compressor : nullptr, comm, nullptr);
    if (result == onebitSuccess) {
      EXPECT_TRUE(buffer.HasBytesOf(expected));
    }
    return result;
  }

  const int ranks_;
  std::mt19937 random_;
  std::vector<AllReduceCase> cases_;
  std::vector<model::AllReduceModel> models_;
  std::vector<Operation> operations_;
};

class SequenceTest : public ::testing::TestWithParam<int> {};

TEST_P(SequenceTest, EveryCallGivesTheModelsBytesWhateverThePace) {
  const int ranks = GetParam();
  const CommOptions options[] = {
      kPatient, {.timeout_ms = 20'000, .one_exchange_elements = 1000, .segment_elements = 64}};
  for (uint32_t i = 0; i < 2; ++i) {
    const uint32_t seed = kSeed + 10 * static_cast<uint32_t>(ranks) + i;
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const Sequence sequence(ranks, 5, 300, seed);
    CommGroup group(ranks, options[i]);
    group.Run([&](int rank) {
      sequence.Run(group.comm(rank), rank, seed * 1000 + static_cast<uint32_t>(rank));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, SequenceTest, ::testing::Values(1, 2, 3, 5, 8));

}  // namespace
}  // namespace onebit::testing
