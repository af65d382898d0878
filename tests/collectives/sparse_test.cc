// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Collectives with sparse codecs, with one and two hops, against the scalar model: outputs of
// several calls and residuals byte for byte, and the bytes sent against their formula. What is lost
// and repaid, values that are not finite, and ranks that differ.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perf/common/sparse_model.h"
#include "tests/support/chunk_calls.h"
#include "tests/support/comm_group.h"
#include "tests/support/exported_state.h"
#include "tests/support/residuals.h"
#include "tests/support/sanitizers.h"
#include "tests/support/tensor.h"

namespace onebit::testing {
namespace {

using kernels::DataType;
using kernels::SparseValues;
using model::SparseConfig;
using model::SparseModel;
using ::testing::HasSubstr;

constexpr uint32_t kSeed = 51'203;
constexpr size_t kCalls = 3;

#if ONEBIT_HAS_SANITIZER
constexpr size_t kCounts[] = {0, 777};
constexpr size_t kSegmented = 3001;
#else
constexpr size_t kCounts[] = {0, 1, 777, 5001, 13'000};
constexpr size_t kSegmented = 9001;
#endif

struct SparseCase {
  onebitCollective_t collective = onebitCollectiveAllReduce;
  SparseConfig model;
  std::vector<uint8_t> packed_mask;  // of model.mask

  bool is_all_reduce() const { return collective == onebitCollectiveAllReduce; }
  size_t elements() const {  // of the tensor
    return model.count * (is_all_reduce() ? 1 : model.ranks);
  }
  // Points into this case, which must outlive it.
  onebitCompressorConfig_t config() const {
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.collective = collective;
    config.codec = model.format.codec.is_random ? onebitCodecRandk : onebitCodecTopk;
    config.mode = model.has_feedback ? onebitModeEf : onebitModePlain;
    config.block = static_cast<int32_t>(model.format.block);
    config.k = model.format.codec.k;
    config.values = model.format.codec.values == SparseValues::kF32 ? onebitValuesFloat32
                                                                    : onebitValuesTwoMagnitudes;
    if (is_all_reduce()) config.hops = model.hops;
    if (model.has_feedback) config.efDecay = model.ef_decay;
    config.residualType = ApiType(model.residual_type);
    config.tensorId = model.tensor_id;
    config.mask = packed_mask.empty() ? nullptr : packed_mask.data();
    config.seed = model.seed;
    return config;
  }
  // Bytes of a packet, by the formula of FORMAT.md, section 18.
  uint64_t PacketBytes(uint64_t count) const {
    const auto up = [](uint64_t a, uint64_t b) { return (a + b - 1) / b; };
    const uint64_t block = model.format.block, k = model.format.codec.k;
    const uint64_t sent = count / block * k + up(k * (count % block), block);
    const bool is_f32 = model.format.codec.values == SparseValues::kF32;
    const uint64_t magnitudes = is_f32 ? 0 : 4 * up(count, block);
    const uint64_t indices = model.format.codec.is_random ? 0 : up(12 * sent, 8);
    return up(magnitudes, 16) * 16 + up(indices, 16) * 16 + (is_f32 ? 4 * sent : up(2 * sent, 8));
  }
  // Bytes that `rank` sends in one call without segments.
  uint64_t WireBytes(size_t rank) const {
    constexpr uint64_t kHeader = 64;
    const uint64_t peers = model.ranks - 1;
    if (!is_all_reduce() || model.hops == 1) return peers * (kHeader + PacketBytes(model.count));
    const uint64_t length = ((model.count + model.ranks - 1) / model.ranks + 63) / 64 * 64;
    const auto chunk = [&](uint64_t j) {
      const uint64_t begin = std::min<uint64_t>(j * length, model.count);
      return std::min<uint64_t>(begin + length, model.count) - begin;
    };
    uint64_t bytes = peers * (2 * kHeader + PacketBytes(chunk(rank)));
    for (size_t j = 0; j < model.ranks; ++j) {
      if (j != rank) bytes += PacketBytes(chunk(j));
    }
    return bytes;
  }
};

std::ostream& operator<<(std::ostream& out, const SparseCase& c) {
  return out << TextOf(c.collective) << (c.model.format.codec.is_random ? " randk " : " topk ")
             << c.model.format.codec.k << " of " << c.model.format.block
             << (c.model.format.codec.values == SparseValues::kF32 ? " fp32" : " two magnitudes")
             << (c.model.has_feedback ? " ef" : " plain") << ", hops " << c.model.hops << ", "
             << c.model.ranks << " ranks, " << c.model.count << " "
             << (c.model.is_sum ? "sum" : "avg") << (c.packed_mask.empty() ? "" : ", masked");
}

class Drawn {
 public:
  explicit Drawn(std::mt19937& random) : random_(random) {}

  template <typename... Choices>
  auto OneOf(Choices... choices) {
    const std::array values{choices...};
    return values[random_() % values.size()];
  }
  SparseCase Case(onebitCollective_t collective, bool is_random, bool has_feedback, int hops,
                  size_t ranks, size_t count) {
    SparseCase c = {.collective = collective, .model = {}, .packed_mask = {}};
    const size_t block = OneOf(size_t{320}, size_t{1024}, size_t{4096});
    c.model.ranks = ranks;
    c.model.count = count;
    c.model.type = OneOf(DataType::kF32, DataType::kF16, DataType::kBf16);
    c.model.format = {{.k = static_cast<uint16_t>(1 + random_() % (block / 13)),
                       .values = OneOf(SparseValues::kF32, SparseValues::kTwoMagnitudes),
                       .is_random = is_random,
                       .is_unbiased = is_random && !has_feedback},
                      block};
    c.model.hops = hops;
    c.model.is_sum = collective != onebitCollectiveAllGather && OneOf(false, true);
    c.model.has_feedback = has_feedback;
    c.model.ef_decay = has_feedback ? OneOf(1.0f, 0.9375f, 0.0f) : 1;
    c.model.residual_type = OneOf(DataType::kF32, DataType::kBf16);
    c.model.seed = (uint64_t{random_()} << 32) | random_();
    c.model.tensor_id = static_cast<uint32_t>(random_() % 1000);
    if (OneOf(false, false, true)) {
      c.model.mask.resize(c.elements());
      c.packed_mask.resize(kernels::BitBytes(c.elements()) + 1);
      for (size_t i = 0; i < c.elements(); ++i) {
        c.model.mask[i] = OneOf(false, true, true);
        if (c.model.mask[i]) c.packed_mask[i / 8] |= static_cast<uint8_t>(1u << (i % 8));
      }
    }
    return c;
  }

 private:
  std::mt19937& random_;
};

struct ModelCall {
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
};

ModelCall Simulate(const SparseCase& c, SparseModel& model, std::mt19937& random) {
  ModelCall call;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (size_t rank = 0; rank < c.model.ranks; ++rank) {
    call.inputs.emplace_back(c.model.count * SendParts(c.collective, c.model.ranks), c.model.type);
    call.outputs.emplace_back(c.model.count * ReceiveParts(c.collective, c.model.ranks),
                              c.model.type);
    call.inputs.back().FillNormal(random);
  }
  for (Tensor& input : call.inputs) inputs.push_back(input.data());
  for (Tensor& output : call.outputs) outputs.push_back(output.data());
  if (c.is_all_reduce()) model.AllReduce(inputs, outputs);
  if (c.collective == onebitCollectiveReduceScatter) model.ReduceScatter(inputs, outputs);
  if (c.collective == onebitCollectiveAllGather) model.AllGather(inputs, outputs);
  return call;
}

void ExpectModel(CommGroup& group, const SparseCase& c, bool is_segmented, std::mt19937& random) {
  SCOPED_TRACE(::testing::Message() << c);
  SparseModel model(c.model);
  std::vector<ModelCall> calls;
  for (size_t call = 0; call < kCalls; ++call) calls.push_back(Simulate(c, model, random));
  group.Run([&](int rank) {
    SCOPED_TRACE(::testing::Message() << c << "; rank " << rank);
    const auto r = static_cast<size_t>(rank);
    const onebitComm_t comm = group.comm(rank);
    const UniqueCompressor compressor =
        NewCompressor(comm, c.model.count, ApiType(c.model.type), c.config());
    const uint64_t sent = StatsOf(comm).bytes_sent;
    for (size_t number = 0; number < calls.size(); ++number) {
      const Tensor& expected = calls[number].outputs[r];
      Tensor output(expected.count(), c.model.type);
      ASSERT_EQ(MakeCall(c.collective,
                         {.send = calls[number].inputs[r].data(),
                          .receive = output.data(),
                          .count = c.model.count,
                          .type = ApiType(c.model.type),
                          .op = c.model.is_sum ? onebitSum : onebitAvg,
                          .compressor = compressor.get()},
                         comm),
                onebitSuccess)
          << onebitGetLastError(nullptr);
      EXPECT_TRUE(output.HasBytesOf(expected)) << "call " << number;
      EXPECT_TRUE(output.HasIntactGuards());
    }
    const onebitCompressorStats_t stats = StatsOf(compressor.get());
    if (!is_segmented) {
      EXPECT_EQ(stats.wire_bytes, c.WireBytes(r));
    }
    EXPECT_EQ(StatsOf(comm).bytes_sent - sent, kCalls * stats.wire_bytes);
    EXPECT_EQ(stats.nonfinite_blocks, 0u);
    EXPECT_EQ(stats.epoch, c.model.ranks == 1 ? 0 : kCalls);
    if (!c.model.has_feedback || c.model.ranks == 1) return;
    EXPECT_EQ(WorkerResidualOf(compressor.get()), model.worker_residual(r));
    if (c.model.hops == 1) {
      EXPECT_TRUE(ResidualsOf(compressor.get()).server.empty());
    }
  });
}

class SparseTest : public ::testing::TestWithParam<int> {
 protected:
  template <typename Expect>
  void ForEachCase(size_t count, const Expect& expect) {
    const auto ranks = static_cast<size_t>(GetParam());
    for (const bool is_random : {false, true}) {
      for (const int hops : {1, 2}) {
        for (const bool has_feedback : {false, true}) {
          expect(
              drawn_.Case(onebitCollectiveAllReduce, is_random, has_feedback, hops, ranks, count));
        }
      }
      for (const auto collective : {onebitCollectiveReduceScatter, onebitCollectiveAllGather}) {
        expect(drawn_.Case(collective, is_random, false, 2, ranks, count));
      }
      if (HasFailure()) return;
    }
  }

  std::mt19937 random_{kSeed + static_cast<uint32_t>(GetParam())};
  Drawn drawn_{random_};
};

TEST_P(SparseTest, EveryByteIsTheModels) {
  CommGroup group(GetParam());
  for (const size_t count : kCounts) {
    ForEachCase(count, [&](const SparseCase& c) { ExpectModel(group, c, false, random_); });
  }
}

TEST_P(SparseTest, SegmentsAndThreadsChangeNoByte) {
  CommOptions options = kPatient;
  options.segment_elements = 400;
  CommGroup segments(GetParam(), options);
  options.segment_elements = 1500;
  options.compute_threads = 2;
  CommGroup threads(GetParam(), options);
  ForEachCase(kSegmented, [&](const SparseCase& c) { ExpectModel(segments, c, true, random_); });
  ForEachCase(kSegmented, [&](const SparseCase& c) { ExpectModel(threads, c, true, random_); });
}

// Over many calls the sum of the outputs, the mean of the worker residuals and the server residual
// are the sum of the mean inputs.
TEST_P(SparseTest, WhatIsNotSentIsOwed) {
  CommGroup group(GetParam());
  const auto ranks = static_cast<size_t>(GetParam());
  constexpr size_t kCount = 5000;
  for (const bool is_random : {false, true}) {
    for (const int hops : {1, 2}) {
      SparseCase c = drawn_.Case(onebitCollectiveAllReduce, is_random, true, hops, ranks, kCount);
      c.model.type = c.model.residual_type = DataType::kF32;
      c.model.ef_decay = 1;
      c.model.is_sum = false;
      c.model.mask.clear();
      c.packed_mask.clear();
      SCOPED_TRACE(::testing::Message() << c);
      std::vector<UniqueCompressor> compressors;
      for (int rank = 0; rank < GetParam(); ++rank) {
        compressors.push_back(NewCompressor(group.comm(rank), kCount, onebitFloat32, c.config()));
      }
      std::vector<double> owed(kCount), largest_terms(kCount);
      for (int call = 0; call < 50; ++call) {
        std::vector<Tensor> buffers;
        for (size_t rank = 0; rank < ranks; ++rank) {
          buffers.emplace_back(kCount, DataType::kF32);
          buffers.back().FillNormal(random_);
          for (size_t i = 0; i < kCount; ++i) owed[i] += buffers.back().Get(i) / GetParam();
        }
        group.Run([&](int rank) {
          Tensor& buffer = buffers[static_cast<size_t>(rank)];
          ASSERT_EQ(onebitAllReduce(buffer.data(), buffer.data(), kCount, onebitFloat32, onebitAvg,
                                    compressors[static_cast<size_t>(rank)].get(), group.comm(rank),
                                    nullptr),
                    onebitSuccess);
        });
        for (size_t i = 0; i < kCount; ++i) owed[i] -= buffers[0].Get(i);
      }
      for (size_t rank = 0; rank < ranks && ranks > 1; ++rank) {
        const std::vector<float> worker = WorkerResidualOf(compressors[rank].get());
        for (size_t i = 0; i < kCount; ++i) owed[i] -= double{worker[i]} / GetParam();
        if (hops == 1) continue;
        const std::vector<float> server = ServerResidualOf(compressors[rank].get());
        const size_t length = ((kCount + ranks - 1) / ranks + 63) / 64 * 64;
        for (size_t i = 0; i < server.size(); ++i) owed[rank * length + i] -= server[i];
      }
      for (const double rest : owed) ASSERT_LT(std::abs(rest), 1e-4);  // of sums up to about 30
    }
  }
}

#if ONEBIT_HAS_SANITIZER
INSTANTIATE_TEST_SUITE_P(Ranks, SparseTest, ::testing::Values(2, 3));
#else
INSTANTIATE_TEST_SUITE_P(Ranks, SparseTest, ::testing::Values(1, 2, 3, 4, 7));
#endif

// ---- Magnitudes close to each other, values that are not finite, and ranks that differ

constexpr int kRanks = 3;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

onebitCompressorConfig_t ConfigOf(onebitCodec_t codec, onebitMode_t mode, int hops) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.codec = codec;
  config.mode = mode;
  config.block = 320;
  config.k = 4;
  config.hops = hops;
  config.tensorId = 9;
  return config;
}

// Only the elements that are sent are not 0. Their magnitudes differ, and round to one bf16 number,
// which is at most 2^127.
TEST(SparseNearTest, AllThatIsSentArrives) {
  constexpr size_t kCount = 640;
  CommGroup group(kRanks);
  for (const float largest : {1.0075f, std::nextafter(0x1p125f, 0.0f)}) {
    for (const onebitMode_t mode : {onebitModePlain, onebitModeEf}) {
      for (const int hops : {1, 2}) {
        group.Run([&](int rank) {
          std::vector<float> input(kCount), output(kCount);
          for (const size_t block : {0, 320}) {
            for (size_t i = 0; i < 4; ++i) {
              const float part = static_cast<float>(i) * 0x1p-11f;
              input[block + 50 * i] = (i % 2 == 0 ? 1.0f : -1.0f) * (largest - largest * part);
            }
          }
          const UniqueCompressor compressor = NewCompressor(group.comm(rank), kCount, onebitFloat32,
                                                            ConfigOf(onebitCodecTopk, mode, hops));
          for (int call = 0; call < 2; ++call) {
            ASSERT_EQ(onebitAllReduce(input.data(), output.data(), kCount, onebitFloat32, onebitAvg,
                                      compressor.get(), group.comm(rank), nullptr),
                      onebitSuccess)
                << onebitGetLastError(nullptr);
            for (size_t i = 0; i < kCount; ++i) {
              ASSERT_LE(std::abs(output[i] - input[i]), largest * 0x1p-6f)
                  << i << ": " << output[i] << " for " << input[i];
            }
          }
        });
      }
    }
  }
}

// With two hops chunks begin at multiples of 384 elements, so element 400 is in the block that
// begins at 384; with one hop in that at 320.
TEST(SparseNonfiniteTest, WithoutFeedbackOnlyTheBlockHasNan) {
  constexpr size_t kCount = 1000;
  CommGroup group(kRanks);
  for (const int hops : {1, 2}) {
    for (const float bad : {kNan, std::numeric_limits<float>::infinity(), 3e38f}) {
      group.Run([&](int rank) {
        std::vector<float> input(kCount), output(kCount);
        for (size_t i = 0; i < kCount; ++i) input[i] = std::sin(static_cast<float>(i + 1));
        if (rank == 1) input[400] = bad;
        const UniqueCompressor compressor =
            NewCompressor(group.comm(rank), kCount, onebitFloat32,
                          ConfigOf(onebitCodecTopk, onebitModePlain, hops));
        ASSERT_EQ(onebitAllReduce(input.data(), output.data(), kCount, onebitFloat32, onebitAvg,
                                  compressor.get(), group.comm(rank), nullptr),
                  onebitSuccess)
            << onebitGetLastError(nullptr);
        const size_t first = hops == 1 ? 320 : 384;
        for (size_t i = 0; i < kCount; ++i) {
          ASSERT_EQ(std::isnan(output[i]), i >= first && i < first + 4) << i;
        }
        const onebitCompressorStats_t stats = StatsOf(compressor.get());
        EXPECT_GT(stats.nonfinite_blocks, 0u);
        EXPECT_EQ(stats.nonfinite_calls, 0u);
        EXPECT_EQ(stats.epoch, 1u);
      });
    }
  }
}

TEST(SparseNonfiniteTest, WithFeedbackTheCallChangesNothing) {
  constexpr size_t kCount = 1000;
  CommGroup group(kRanks);
  for (const onebitCodec_t codec : {onebitCodecTopk, onebitCodecRandk}) {
    for (const int hops : {1, 2}) {
      group.Run([&](int rank) {
        std::vector<float> input(kCount), output(kCount);
        for (size_t i = 0; i < kCount; ++i) input[i] = std::sin(static_cast<float>(i + 1));
        const UniqueCompressor compressor = NewCompressor(group.comm(rank), kCount, onebitFloat32,
                                                          ConfigOf(codec, onebitModeEf, hops));
        const auto call = [&] {
          return onebitAllReduce(input.data(), output.data(), kCount, onebitFloat32, onebitAvg,
                                 compressor.get(), group.comm(rank), nullptr);
        };
        ASSERT_EQ(call(), onebitSuccess);
        const Residuals before = ResidualsOf(compressor.get());
        const float good = input[7];
        if (rank == 1) input[7] = kNan;
        ASSERT_EQ(call(), onebitSuccess);
        for (const float value : output) ASSERT_TRUE(std::isnan(value));
        EXPECT_EQ(ResidualsOf(compressor.get()), before);
        EXPECT_EQ(StatsOf(compressor.get()).nonfinite_calls, 1u);
        EXPECT_EQ(StatsOf(compressor.get()).epoch, 1u);
        input[7] = good;
        ASSERT_EQ(call(), onebitSuccess);
        for (const float value : output) ASSERT_TRUE(std::isfinite(value));
        EXPECT_EQ(StatsOf(compressor.get()).epoch, 2u);
      });
    }
  }
}

std::vector<Outcome> CallWith(const std::function<void(int, onebitCompressorConfig_t&)>& change,
                              int hops = 1) {
  CommGroup group(2);
  std::vector<UniqueCompressor> compressors;
  for (int rank = 0; rank < 2; ++rank) {
    onebitCompressorConfig_t config = ConfigOf(onebitCodecRandk, onebitModeEf, hops);
    change(rank, config);
    compressors.push_back(NewCompressor(group.comm(rank), 1000, onebitFloat32, config));
  }
  std::vector<std::vector<float>> buffers(2, std::vector<float>(1000, 1.0f));
  return group.Call([&](int rank) {
    const auto r = static_cast<size_t>(rank);
    return onebitAllReduce(buffers[r].data(), buffers[r].data(), 1000, onebitFloat32, onebitAvg,
                           compressors[r].get(), group.comm(rank), nullptr);
  });
}

// At least one rank sees the other's header, and tells what differs.
void ExpectMismatch(const std::vector<Outcome>& outcomes, const std::string& here,
                    const std::string& there) {
  bool is_named = false;
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(outcomes[rank].result, onebitMismatch) << outcomes[rank].text;
    is_named |= outcomes[rank].text.find(rank == 0 ? here : there) != std::string::npos;
  }
  EXPECT_TRUE(is_named) << outcomes[0].text << "\n" << outcomes[1].text;
}

TEST(SparseMismatchTest, SeedsThatDifferAreNamed) {
  for (const int hops : {1, 2}) {
    ExpectMismatch(
        CallWith([](int rank, auto& config) { config.seed = rank == 0 ? 41 : 42; }, hops),
        "where masks are equal) 41 here, 42 there", "where masks are equal) 42 here, 41 there");
  }
}

TEST(SparseMismatchTest, MembersThatDifferAreNamed) {
  ExpectMismatch(CallWith([](int rank, auto& config) { config.k = 5 + rank; }), "k 5 here, 6 there",
                 "k 6 here, 5 there");
  ExpectMismatch(CallWith([](int rank, auto& config) { config.hops = 1 + rank; }),
                 "hops 1 here, 2 there", "hops 2 here, 1 there");
  ExpectMismatch(CallWith([](int rank, auto& config) { config.values = rank; }),
                 "values two magnitudes here, fp32 there",
                 "values fp32 here, two magnitudes there");
  ExpectMismatch(CallWith([](int rank, auto& config) {
                   config.codec = rank == 0 ? onebitCodecTopk : onebitCodecRandk;
                 }),
                 "codec topk here, randk there", "codec randk here, topk there");
}

// A rank that has made one call more draws other elements.
TEST(SparseMismatchTest, EpochsOfDrawsThatDifferAreNamed) {
  CommGroup group(2);
  std::vector<UniqueCompressor> compressors;
  for (int rank = 0; rank < 2; ++rank) {
    compressors.push_back(NewCompressor(group.comm(rank), 100, onebitFloat32,
                                        ConfigOf(onebitCodecRandk, onebitModeEf, 1)));
  }
  std::vector<std::vector<float>> buffers(2, std::vector<float>(100, 1.0f));
  const auto call = [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    return onebitAllReduce(buffers[r].data(), buffers[r].data(), 100, onebitFloat32, onebitAvg,
                           compressors[r].get(), group.comm(rank), nullptr);
  };
  const std::vector<std::byte> state = StateOf(compressors[0].get());
  for (const Outcome& outcome : group.Call(call)) ASSERT_EQ(outcome.result, onebitSuccess);
  ASSERT_EQ(onebitCompressorImport(compressors[0].get(), state.data(), state.size()),
            onebitSuccess);
  const std::vector<Outcome> outcomes = group.Call(call);
  ExpectMismatch(outcomes, "mod 255) 0 here, 1 there", "mod 255) 1 here, 0 there");
}

}  // namespace
}  // namespace onebit::testing
