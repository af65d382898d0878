// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Reduce-scatter, all-gather and all-to-all without a compressor.
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/chunk_calls.h"
#include "tests/support/comm_group.h"
#include "tests/support/tensor.h"

namespace onebit::testing {
namespace {

using kernels::DataType;

constexpr uint32_t kSeed = 7151;
constexpr size_t kCounts[] = {0, 1, 7, 64, 1000, 5000};
constexpr DataType kTypes[] = {DataType::kF32, DataType::kF16, DataType::kBf16};

// Returns what `rank` must receive, given what all ranks send.
Tensor Expected(onebitCollective_t collective, const std::vector<Tensor>& sent, size_t rank,
                size_t count, bool is_sum) {
  const size_t ranks = sent.size();
  Tensor output(count * ReceiveParts(collective, ranks), sent[0].type());
  for (size_t i = 0; i < output.count(); ++i) {
    const size_t part = count == 0 ? 0 : i / count;
    if (collective == onebitCollectiveAllGather) {
      output.Set(i, sent[part].Get(i % count));
    } else if (collective == onebitCollectiveAllToAll) {
      output.Set(i, sent[part].Get(rank * count + i % count));
    } else {
      float sum = sent[0].Get(rank * count + i);
      for (size_t r = 1; r < ranks; ++r) sum += sent[r].Get(rank * count + i);
      output.Set(i, is_sum ? sum : sum / static_cast<float>(ranks));
    }
  }
  return output;
}

class ChunkDenseTest : public ::testing::TestWithParam<int> {
 protected:
  int ranks() const { return GetParam(); }
  std::vector<Tensor> RandomInputs(size_t count, DataType type) {
    std::vector<Tensor> inputs;
    for (int rank = 0; rank < ranks(); ++rank) {
      inputs.emplace_back(count, type);
      inputs.back().FillNormal(random_);
    }
    return inputs;
  }
  std::mt19937 random_{kSeed + static_cast<uint32_t>(GetParam())};
};

TEST_P(ChunkDenseTest, EveryRankReceivesWhatTheSumsAndCopiesSay) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed + static_cast<uint32_t>(ranks()));
  CommGroup whole(ranks());
  CommGroup segments(ranks(), {.timeout_ms = 20'000, .segment_elements = 100});
  const auto n = static_cast<size_t>(ranks());
  for (const onebitCollective_t collective : kChunkCollectives) {
    for (const size_t count : kCounts) {
      for (const DataType type : kTypes) {
        const bool is_sum = random_() % 2 == 0;
        const bool is_in_place = collective != onebitCollectiveAllToAll && random_() % 2 == 0;
        const size_t offset = random_() % 3;
        const std::vector<Tensor> inputs = RandomInputs(count * SendParts(collective, n), type);
        for (CommGroup* group : {&whole, &segments}) {
          group->Run([&](int rank) {
            SCOPED_TRACE(::testing::Message()
                         << TextOf(collective) << " of " << count << " elements of type "
                         << ApiType(type) << (is_sum ? ", sum" : ", avg")
                         << (is_in_place ? ", in place" : "") << ", offset " << offset << ", rank "
                         << rank);
            const auto r = static_cast<size_t>(rank);
            Tensor input(inputs[r].count(), type, offset);
            input.CopyFrom(inputs[r]);
            Tensor output(count * ReceiveParts(collective, n), type, offset);
            std::byte* send = input.data();
            std::byte* receive = output.data();
            const size_t own = r * count * kernels::BytesOf(type);
            if (is_in_place && collective == onebitCollectiveAllGather) {
              std::memcpy(receive + own, send, input.bytes());
              send = receive + own;
            } else if (is_in_place) {
              receive = send + own;
            }
            ASSERT_EQ(MakeCall(collective,
                               {.send = send,
                                .receive = receive,
                                .count = count,
                                .type = ApiType(type),
                                .op = is_sum ? onebitSum : onebitAvg},
                               group->comm(rank)),
                      onebitSuccess)
                << onebitGetLastError(nullptr);
            const Tensor expected = Expected(collective, inputs, r, count, is_sum);
            EXPECT_EQ(std::memcmp(receive, expected.data(), expected.bytes()), 0);
            EXPECT_TRUE(output.HasIntactGuards());
            EXPECT_TRUE(input.HasIntactGuards());
            if (!is_in_place) {
              EXPECT_TRUE(input.HasBytesOf(inputs[r])) << "input was changed";
            }
          });
        }
      }
    }
  }
}

// Counts are random for every pair, some of them 0, with gaps between the ranges.
TEST_P(ChunkDenseTest, AllToAllvPutsEveryRangeWhereItBelongs) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed + static_cast<uint32_t>(ranks()));
  CommGroup group(ranks());
  const auto n = static_cast<size_t>(ranks());
  for (int round = 0; round < 12; ++round) {
    const DataType type = kTypes[round % 3];
    std::vector<std::vector<size_t>> counts(n, std::vector<size_t>(n));  // [from][to]
    for (auto& row : counts) {
      for (size_t& count : row) count = random_() % 4 == 0 ? 0 : random_() % 1000;
    }
    group.Run([&](int rank) {
      SCOPED_TRACE(::testing::Message() << "round " << round << ", rank " << rank);
      const auto r = static_cast<size_t>(rank);
      std::vector<size_t> sdispls(n), rdispls(n), receive_counts(n);
      size_t sent = 0, received = 0;
      for (size_t peer = 0; peer < n; ++peer) {
        receive_counts[peer] = counts[peer][r];
        sdispls[peer] = std::exchange(sent, sent + counts[r][peer] + peer % 3);
        rdispls[peer] = std::exchange(received, received + receive_counts[peer] + 1);
      }
      Tensor input(sent, type);
      const auto value = [](size_t from, size_t to, size_t i) {
        return static_cast<float>((from * 31 + to * 7 + i) % 97);
      };
      for (size_t to = 0; to < n; ++to) {
        for (size_t i = 0; i < counts[r][to]; ++i) input.Set(sdispls[to] + i, value(r, to, i));
      }
      Tensor output(received, type);
      output.Fill(-1);
      ASSERT_EQ(onebitAllToAllv(input.data(), counts[r].data(), sdispls.data(), output.data(),
                                receive_counts.data(), rdispls.data(), ApiType(type), nullptr,
                                group.comm(rank), nullptr),
                onebitSuccess)
          << onebitGetLastError(nullptr);
      for (size_t from = 0; from < n; ++from) {
        for (size_t i = 0; i < receive_counts[from]; ++i) {
          ASSERT_EQ(output.Get(rdispls[from] + i), value(from, r, i)) << "from " << from;
        }
        EXPECT_EQ(output.Get(rdispls[from] + receive_counts[from]), -1) << "gap after " << from;
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, ChunkDenseTest, ::testing::Range(1, 10));

TEST(ChunkDenseStatsTest, BytesAreThoseOfTheOthersParts) {
  constexpr size_t kCount = 1000;
  CommGroup group(4);
  group.Run([&](int rank) {
    const onebitComm_t comm = group.comm(rank);
    for (const onebitCollective_t collective : kChunkCollectives) {
      std::vector<float> input(4 * kCount), output(4 * kCount);
      const uint64_t sent = StatsOf(comm).bytes_sent;
      const uint64_t logical = StatsOf(comm).logical_bytes;
      ASSERT_EQ(MakeCall(collective,
                         {.send = input.data(), .receive = output.data(), .count = kCount}, comm),
                onebitSuccess);
      EXPECT_EQ(StatsOf(comm).bytes_sent - sent, 3 * (64 + 4 * kCount)) << TextOf(collective);
      EXPECT_EQ(StatsOf(comm).logical_bytes - logical, 4 * 4 * kCount) << TextOf(collective);
    }
  });
}

}  // namespace
}  // namespace onebit::testing
