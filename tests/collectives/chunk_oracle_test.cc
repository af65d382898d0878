// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Compares compressed reduce-scatter, all-gather and all-to-all with the scalar model, byte for
// byte: outputs of several calls, and the final residuals.
#include <array>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "codec/packet.h"
#include "tests/collectives/chunk_model.h"
#include "tests/support/comm_group.h"
#include "tests/support/residuals.h"

namespace onebit::testing {
namespace {

using kernels::DataType;
namespace reference = kernels::reference;

constexpr uint32_t kSeed = 7161;
constexpr size_t kCalls = 3;

struct ModelCall {
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
};

void ExpectOutput(const Tensor& expected, const std::byte* actual, size_t call) {
  if (std::memcmp(actual, expected.data(), expected.bytes()) == 0) return;
  size_t i = 0;
  while (reference::LoadElement(actual, expected.type(), i) == expected.Get(i)) ++i;
  ADD_FAILURE() << "call " << call << ": output differs from the model, first at " << i << ": "
                << reference::LoadElement(actual, expected.type(), i) << " instead of "
                << expected.Get(i);
}

void RunRank(onebitComm_t comm, size_t rank, const ChunkCase& c,
             const std::vector<ModelCall>& calls, const std::vector<float>& residual) {
  const UniqueCompressor compressor = NewCompressor(comm, c.count, ApiType(c.type), c.config());
  const uint64_t sent = StatsOf(comm).bytes_sent;
  for (size_t number = 0; number < calls.size(); ++number) {
    Tensor input(c.send_count(), c.type, c.offset_elements);
    Tensor output(c.receive_count(), c.type, c.offset_elements);
    input.CopyFrom(calls[number].inputs[rank]);
    std::byte* send = input.data();
    std::byte* receive = output.data();
    const size_t own = rank * c.count * kernels::BytesOf(c.type);
    if (c.is_in_place && c.collective == onebitCollectiveAllGather) {
      std::memcpy(receive + own, send, input.bytes());
      send = receive + own;
    } else if (c.is_in_place) {
      receive = send + own;
    }
    ASSERT_EQ(MakeCall(c.collective,
                       {.send = send,
                        .receive = receive,
                        .count = c.count,
                        .type = ApiType(c.type),
                        .op = c.is_sum ? onebitSum : onebitAvg,
                        .compressor = compressor.get()},
                       comm),
              onebitSuccess)
        << onebitGetLastError(nullptr);
    ExpectOutput(calls[number].outputs[rank], receive, number);
    EXPECT_TRUE(input.HasIntactGuards());
    EXPECT_TRUE(output.HasIntactGuards());
    if (!c.is_in_place) {
      EXPECT_TRUE(input.HasBytesOf(calls[number].inputs[rank])) << "input was changed";
    }
  }
  if (c.has_feedback) {
    EXPECT_EQ(WorkerResidualOf(compressor.get()), residual);
  }
  EXPECT_EQ(StatsOf(comm).bytes_sent - sent, kCalls * StatsOf(compressor.get()).wire_bytes);
}

void ExpectModel(CommGroup& group, const ChunkCase& c, std::mt19937& random) {
  SCOPED_TRACE(::testing::Message() << c);
  ChunkModel model(c);
  std::vector<ModelCall> calls;
  for (size_t call = 0; call < kCalls; ++call) {
    std::vector<Tensor> inputs = RandomInputs(c, random);
    std::vector<Tensor> outputs = model.Run(inputs);
    calls.push_back({std::move(inputs), std::move(outputs)});
  }
  group.Run([&](int rank) {
    SCOPED_TRACE(::testing::Message() << c << "; rank " << rank);
    const auto r = static_cast<size_t>(rank);
    RunRank(group.comm(rank), r, c, calls, model.residual(r));
  });
}

class ChunkOracleTest : public ::testing::TestWithParam<int> {
 protected:
  std::mt19937 random_{kSeed + static_cast<uint32_t>(GetParam())};
};

TEST_P(ChunkOracleTest, EveryByteIsTheModels) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed + static_cast<uint32_t>(GetParam()));
  CommGroup whole(GetParam());
  CommGroup segments(GetParam(), {.timeout_ms = 20'000, .segment_elements = 100});
  CommGroup threads(GetParam(),
                    {.timeout_ms = 20'000, .segment_elements = 20'000, .compute_threads = 2});
  const auto ranks = static_cast<size_t>(GetParam());
  for (const onebitCollective_t collective : kChunkCollectives) {
    for (const size_t count : {0, 1, 7, 63, 64, 65, 777, 5001}) {
      for (int i = 0; i < 3; ++i) {
        const ChunkCase c = RandomChunkCase(collective, ranks, count, random_);
        ExpectModel(i % 2 == 0 ? whole : segments, c, random_);
        if (HasFailure()) return;
      }
    }
    ExpectModel(threads, RandomChunkCase(collective, ranks, 40'001, random_), random_);
  }
}

// Counts are random for every pair. There are no residuals, so one call is enough.
TEST_P(ChunkOracleTest, AllToAllvDecodesEveryPairsPacket) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed + static_cast<uint32_t>(GetParam()));
  const auto n = static_cast<size_t>(GetParam());
  CommGroup group(GetParam());
  std::vector<UniqueCompressor> compressors;
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.collective = onebitCollectiveAllToAllv;
  config.mode = onebitModePlain;
  config.block = GetParam() % 2 == 0 ? 64 : ONEBIT_BLOCK_TENSOR;
  for (int rank = 0; rank < GetParam(); ++rank) {
    compressors.push_back(NewCompressor(group.comm(rank), 0, onebitFloat16, config));
  }
  for (int call = 0; call < 5; ++call) {
    std::vector<std::vector<size_t>> counts(n, std::vector<size_t>(n));  // [from][to]
    std::vector<std::vector<Tensor>> sent(n);
    for (size_t from = 0; from < n; ++from) {
      for (size_t& count : counts[from]) {
        count = random_() % 4 == 0 ? 0 : random_() % 700;
        sent[from].emplace_back(count, DataType::kF16);
        sent[from].back().FillNormal(random_);
      }
    }
    group.Run([&](int rank) {
      const auto r = static_cast<size_t>(rank);
      std::vector<size_t> sdispls(n), rdispls(n), receive_counts(n);
      size_t sends = 0, receives = 0;
      for (size_t peer = 0; peer < n; ++peer) {
        receive_counts[peer] = counts[peer][r];
        sdispls[peer] = std::exchange(sends, sends + counts[r][peer]);
        rdispls[peer] = std::exchange(receives, receives + receive_counts[peer]);
      }
      Tensor input(sends, DataType::kF16);
      for (size_t to = 0; to < n; ++to) {
        std::memcpy(input.data() + 2 * sdispls[to], sent[r][to].data(), sent[r][to].bytes());
      }
      Tensor output(receives, DataType::kF16);
      ASSERT_EQ(onebitAllToAllv(input.data(), counts[r].data(), sdispls.data(), output.data(),
                                receive_counts.data(), rdispls.data(), onebitFloat16,
                                compressors[r].get(), group.comm(rank), nullptr),
                onebitSuccess)
          << onebitGetLastError(nullptr);
      for (size_t from = 0; from < n; ++from) {
        Tensor expected(receive_counts[from], DataType::kF16);
        expected.CopyFrom(sent[from][r]);
        if (from != r && expected.count() != 0) {
          const auto block = static_cast<size_t>(config.block);
          const PacketShape shape = ShapeOf(expected.count(), block);
          std::vector<float> scales(shape.scale_count);
          std::vector<uint8_t> bits(kernels::BitBytes(expected.count()));
          kernels::CompressInput in = {.input = sent[from][r].data(),
                                       .input_type = DataType::kF16,
                                       .count = expected.count(),
                                       .scale_type = DataType::kF16};
          // A range of up to 4096 elements is a block of its own.
          reference::CompressBlocks(in, block == 0 ? 4096 : block, scales.data(), bits.data());
          reference::Decode(bits.data(), scales.data(), in.count, block, nullptr, DataType::kF16,
                            expected.data());
        }
        ExpectOutput(expected, output.data() + 2 * rdispls[from], static_cast<size_t>(call));
      }
      EXPECT_TRUE(output.HasIntactGuards());
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, ChunkOracleTest, ::testing::Range(1, 10));

}  // namespace
}  // namespace onebit::testing
