// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// States of compressors whose tensor has one part per rank.
#include <cmath>
#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/chunk_calls.h"
#include "tests/support/comm_group.h"
#include "tests/support/residuals.h"

namespace onebit::testing {
namespace {

using Blob = std::vector<std::byte>;

constexpr size_t kElements = 120;  // of the tensor, on 3, 4 and 6 ranks
constexpr int kCalls = 7;

// Ranks with a compressor each, and the sums of their outputs.
class ChunkJob {
 public:
  ChunkJob(int ranks, onebitCollective_t collective, size_t elements = kElements,
           onebitRedOp_t op = onebitAvg)
      : group_(ranks),
        collective_(collective),
        count_(elements / static_cast<size_t>(ranks)),
        op_(op),
        received_(static_cast<size_t>(ranks)) {
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.collective = collective;
    config.block = 64;
    for (int rank = 0; rank < ranks; ++rank) {
      compressors_.push_back(NewCompressor(group_.comm(rank), count_, onebitFloat32, config));
    }
  }

  void Run(int first_call, int calls) {
    const auto ranks = static_cast<size_t>(group_.ranks());
    group_.Run([&](int rank) {
      std::vector<float> sent(count_ * SendParts(collective_, ranks));
      std::vector<float> output(count_ * ReceiveParts(collective_, ranks));
      for (int call = first_call; call < first_call + calls; ++call) {
        for (size_t i = 0; i < sent.size(); ++i) {
          sent[i] = std::sin(static_cast<float>(i * 31 + static_cast<size_t>(rank * 7 + call * 5)));
        }
        ASSERT_EQ(MakeCall(collective_,
                           {.send = sent.data(),
                            .receive = output.data(),
                            .count = count_,
                            .op = op_,
                            .compressor = compressor(rank)},
                           group_.comm(rank)),
                  onebitSuccess);
        auto& all = received_[static_cast<size_t>(rank)];
        all.insert(all.end(), output.begin(), output.end());
      }
    });
  }

  std::vector<Blob> Export(onebitStateKind_t kind) {
    std::vector<Blob> blobs(received_.size());
    group_.Run([&](int rank) {
      size_t bytes = 0;
      ASSERT_EQ(onebitCompressorExport(compressor(rank), kind, nullptr, &bytes), onebitSuccess);
      Blob& blob = blobs[static_cast<size_t>(rank)];
      blob.resize(bytes);
      ASSERT_EQ(onebitCompressorExport(compressor(rank), kind, blob.data(), &bytes), onebitSuccess)
          << onebitGetLastError(nullptr);
    });
    return blobs;
  }

  onebitResult_t Import(int rank, const Blob& blob) {
    return onebitCompressorImport(compressor(rank), blob.data(), blob.size());
  }

  // The amount that the results owe: the mean over ranks of the worker residuals, times the ranks
  // for sums.
  std::vector<double> Owed() const {
    std::vector<double> owed(kElements);
    const double share = op_ == onebitSum ? 1 : 1.0 / static_cast<double>(compressors_.size());
    for (const UniqueCompressor& one : compressors_) {
      const std::vector<float> residual = WorkerResidualOf(one.get());
      for (size_t i = 0; i < owed.size(); ++i) owed[i] += share * residual.at(i);
    }
    return owed;
  }

  onebitCompressor_t compressor(int rank) const {
    return compressors_[static_cast<size_t>(rank)].get();
  }
  const std::vector<std::vector<float>>& received() const { return received_; }
  std::vector<std::vector<float>> ReceivedSince(int call) const {
    std::vector<std::vector<float>> later;
    for (const auto& all : received_) {
      const size_t skipped = all.size() / static_cast<size_t>(kCalls) * static_cast<size_t>(call);
      later.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(skipped), all.end());
    }
    return later;
  }

 private:
  CommGroup group_;
  const onebitCollective_t collective_;
  const size_t count_;
  const onebitRedOp_t op_;
  std::vector<UniqueCompressor> compressors_;
  std::vector<std::vector<float>> received_;
};

class ChunkStateTest : public ::testing::TestWithParam<onebitCollective_t> {};

TEST_P(ChunkStateTest, ARunGoesOnBitForBit) {
  constexpr int kSaved = 3;
  ChunkJob whole(4, GetParam());
  whole.Run(0, kCalls);
  ChunkJob first(4, GetParam());
  first.Run(0, kSaved);
  const std::vector<Blob> states = first.Export(onebitStateRank);
  ChunkJob second(4, GetParam());
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_EQ(second.Import(rank, states[static_cast<size_t>(rank)]), onebitSuccess)
        << onebitGetLastError(nullptr);
  }
  second.Run(kSaved, kCalls - kSaved);
  EXPECT_EQ(second.received(), whole.ReceivedSince(kSaved));
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_TRUE(ResidualsOf(second.compressor(rank)) == ResidualsOf(whole.compressor(rank)));
  }
}

TEST_P(ChunkStateTest, StateOfAnotherCollectiveOrLengthIsRefused) {
  ChunkJob job(4, GetParam());
  job.Run(0, 1);
  const Blob state = job.Export(onebitStateRank)[0];
  const onebitCollective_t other = GetParam() == onebitCollectiveAllToAll
                                       ? onebitCollectiveReduceScatter
                                       : onebitCollectiveAllToAll;
  ChunkJob another(4, other);
  EXPECT_EQ(another.Import(0, state), onebitMismatch);
  EXPECT_NE(std::string(onebitGetLastError(nullptr)).find("collective"), std::string::npos);
  ChunkJob longer(4, GetParam(), 2 * kElements);
  EXPECT_EQ(longer.Import(0, state), onebitMismatch);
  EXPECT_NE(std::string(onebitGetLastError(nullptr)).find("elements 120 in the state, 240 here"),
            std::string::npos)
      << onebitGetLastError(nullptr);
}

INSTANTIATE_TEST_SUITE_P(Collectives, ChunkStateTest, ::testing::ValuesIn(kChunkCollectives),
                         [](const auto& info) { return TextOf(info.param); });

class ScatterStateTest : public ::testing::TestWithParam<onebitRedOp_t> {};

TEST_P(ScatterStateTest, OtherRanksOweAsMuch) {
  ChunkJob saved(4, onebitCollectiveReduceScatter, kElements, GetParam());
  saved.Run(0, kCalls);
  const std::vector<Blob> states = saved.Export(onebitStateGlobal);
  for (const Blob& state : states) EXPECT_EQ(state, states[0]);
  const std::vector<double> owed = saved.Owed();
  for (const int ranks : {1, 3, 6}) {
    ChunkJob loaded(ranks, onebitCollectiveReduceScatter, kElements, GetParam());
    for (int rank = 0; rank < ranks; ++rank) {
      ASSERT_EQ(loaded.Import(rank, states[0]), onebitSuccess) << onebitGetLastError(nullptr);
    }
    const std::vector<double> now = loaded.Owed();
    for (size_t i = 0; i < owed.size(); ++i) {
      EXPECT_NEAR(now[i], owed[i], 1e-5) << i << " on " << ranks;
    }
    loaded.Run(kCalls, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, ScatterStateTest, ::testing::Values(onebitAvg, onebitSum),
                         [](const auto& info) { return info.param == onebitSum ? "Sum" : "Avg"; });

TEST(GatherStateTest, OtherRanksHoldTheSame) {
  ChunkJob saved(4, onebitCollectiveAllGather);
  saved.Run(0, kCalls);
  const std::vector<Blob> states = saved.Export(onebitStateGlobal);
  for (const Blob& state : states) EXPECT_EQ(state, states[0]);
  for (const int ranks : {3, 6}) {
    ChunkJob loaded(ranks, onebitCollectiveAllGather);
    for (int rank = 0; rank < ranks; ++rank) {
      ASSERT_EQ(loaded.Import(rank, states[0]), onebitSuccess) << onebitGetLastError(nullptr);
      EXPECT_EQ(WorkerResidualOf(loaded.compressor(rank)), WorkerResidualOf(saved.compressor(0)));
    }
    loaded.Run(kCalls, 1);
    for (const auto& received : loaded.received()) EXPECT_EQ(received, loaded.received()[0]);
  }
}

TEST(ChunkRebindTest, IsRefusedOnEveryRank) {
  CommGroup former(2);
  CommGroup next(2);
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.collective = onebitCollectiveReduceScatter;
  std::vector<UniqueCompressor> compressors;
  for (int rank = 0; rank < 2; ++rank) {
    compressors.push_back(NewCompressor(former.comm(rank), 10, onebitFloat32, config));
  }
  for (const Outcome& outcome : next.Call([&](int rank) {
         int source = 0;
         return onebitCompressorRebind(compressors[static_cast<size_t>(rank)].get(),
                                       next.comm(rank), &source);
       })) {
    EXPECT_EQ(outcome.result, onebitInvalidUsage) << outcome.text;
    EXPECT_NE(outcome.text.find("reduce-scatter"), std::string::npos) << outcome.text;
  }
}

TEST(PairStateTest, BelongsToItsRanks) {
  ChunkJob job(3, onebitCollectiveAllToAll);
  job.Run(0, 1);
  Blob room(10'000);
  size_t bytes = room.size();
  EXPECT_EQ(onebitCompressorExport(job.compressor(0), onebitStateGlobal, room.data(), &bytes),
            onebitInvalidUsage);
  EXPECT_NE(std::string(onebitGetLastError(nullptr)).find("onebitStateRank"), std::string::npos);
}

}  // namespace
}  // namespace onebit::testing
