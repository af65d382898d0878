// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls in which every rank has a weight, 0 for those that are absent: results and residuals of
// random rounds against a model of FORMAT.md, section 18, and the bytes that absent ranks send.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/low_bit.h"
#include "kernels/sparse.h"
#include "plan/partition.h"
#include "tests/collectives/low_bit_calls.h"
#include "tests/support/comm_group.h"
#include "tests/support/residuals.h"
#include "tests/support/tensor.h"

namespace onebit::testing {
namespace {

using ::testing::HasSubstr;

constexpr size_t kCount = 1003;
constexpr size_t kBlock = 64;
constexpr uint16_t kSparseK = 20;
constexpr int kRounds = 6;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using Floats = std::vector<float>;

struct WeightCase {
  onebitCollective_t collective = onebitCollectiveAllReduce;
  onebitCodec_t codec = onebitCodecSign;
  bool has_feedback = true;
  size_t ranks = 3;
  size_t block = kBlock;  // 0: one scale for the tensor, of signs only
  int hops = 2;           // of a sparse codec
  size_t elements() const {
    return collective == onebitCollectiveAllReduce ? kCount : ranks * kCount;
  }
  bool is_sparse() const { return codec == onebitCodecTopk || codec == onebitCodecRandk; }
  bool has_one_hop() const {
    return collective == onebitCollectiveAllReduce && is_sparse() && hops == 1;
  }
  kernels::SparseFormat sparse_format() const {
    return {{.k = kSparseK,
             .values = kernels::SparseValues::kTwoMagnitudes,
             .is_random = codec == onebitCodecRandk},
            block};
  }
  float factor(size_t length) const {
    if (codec != onebitCodecRandk || has_feedback) return 1;
    return static_cast<float>(length) / static_cast<float>(sparse_format().SelectedOfBlock(length));
  }

  Partition chunks() const {
    if (has_one_hop()) return Partition(kCount, 1, 64, block, 0);
    return collective == onebitCollectiveAllReduce ? Partition(kCount, ranks, 64, 64, 0)
                                                   : Partition::OfChunks(kCount, ranks, 64, 0);
  }
};

std::ostream& operator<<(std::ostream& out, const WeightCase& c) {
  return out << TextOf(c.collective) << " codec " << c.codec << (c.has_feedback ? " ef" : " plain")
             << " on " << c.ranks << " ranks, block " << c.block
             << (c.is_sparse() ? ", hops " + std::to_string(c.hops) : "");
}

// Signs of a tensor with one scale, whose sum is taken chunk by chunk.
void EncodeSigns(const kernels::CompressInput& whole, size_t chunk, kernels::TensorSum* sum) {
  std::vector<uint8_t> bits(chunk / 8 + 8);
  for (size_t begin = 0; begin < whole.count; begin += chunk) {
    kernels::CompressInput in = whole;
    in.count = std::min(chunk, whole.count - begin);
    in.input = static_cast<const float*>(whole.input) + begin;
    if (whole.residual_in != nullptr) {
      in.residual_in = static_cast<const float*>(whole.residual_in) + begin;
    }
    kernels::reference::CompressSigns(in, bits.data(), sum);
  }
}

// Result of the scalar kernels for a piece: the values that arrive, and those lost.
struct Coded {
  Floats values;
  Floats residual;
};
Coded Encode(const WeightCase& c, const Floats& x, const Floats& residual, size_t chunk,
             const kernels::Draws& draws) {
  Coded coded{Floats(x.size()), Floats(x.size())};
  std::vector<uint8_t> bits(x.size() + 16);
  kernels::CompressInput in = {.input = x.data(), .count = x.size()};
  if (c.has_feedback) {
    in.residual_in = residual.data();
    in.residual_out = coded.residual.data();
  }
  if (c.codec == onebitCodecSign) {
    Floats scales(c.block == 0 ? 1 : x.size() / c.block + 1);
    if (c.block == 0) {
      kernels::TensorSum sum;
      EncodeSigns(in, chunk, &sum);
      kernels::TensorSum ignored;
      kernels::reference::CompressSigns(in, bits.data(), &ignored);
      scales[0] = kernels::reference::ScaleOf(sum, in.rule);
      if (c.has_feedback) kernels::reference::CompressResidual(in, scales[0]);
    } else {
      EXPECT_TRUE(kernels::reference::CompressBlocks(in, c.block, scales.data(), bits.data()));
    }
    kernels::reference::Decode(bits.data(), scales.data(), x.size(), c.block, nullptr,
                               kernels::DataType::kF32, coded.values.data());
    return coded;
  }
  if (c.is_sparse()) {
    const kernels::SparseFormat format = c.sparse_format();
    std::vector<std::byte> packet(format.Bytes(x.size()));
    kernels::reference::SparseCompress(in, 1, format, draws, packet.data());
    const void* const packets[] = {packet.data()};
    kernels::reference::SparseAverage(
        {.packets = packets, .ranks = 1, .count = x.size(), .is_sum = true}, format, draws,
        coded.values.data());
    return coded;
  }
  const kernels::LowBitFormat format = {KernelCodec(c.codec), c.block};
  std::vector<uint16_t> scales(x.size() / c.block + 1), minimums(scales.size());
  kernels::reference::LowBitCompress(in, format, {}, {scales.data(), minimums.data(), bits.data()});
  kernels::reference::LowBitDecode({scales.data(), minimums.data(), bits.data()}, format, x.size(),
                                   nullptr, kernels::DataType::kF32, coded.values.data());
  return coded;
}

// All ranks of a compressor.
class WeightModel {
 public:
  explicit WeightModel(const WeightCase& c)
      : c_(c), workers_(c.ranks, Floats(c.elements())), server_(c.elements()) {}

  // Returns the output of every rank, one after the other where they differ.
  Floats Round(const std::vector<Floats>& inputs, const Floats& weights) {
    float sum = 0;
    for (const float weight : weights) sum += weight;
    Floats output(c_.elements());
    if (sum == 0) return output;
    const Partition chunks = c_.chunks();
    std::vector<Floats> values(c_.ranks);
    for (size_t r = 0; r < c_.ranks; ++r) {
      if (weights[r] == 0) continue;
      values[r].resize(c_.elements());
      for (size_t j = 0; j < PiecesOfWorker(); ++j) {
        const ElementRange range = c_.block == 0 ? ElementRange{0, c_.elements()} : chunks.Chunk(j);
        if (range.count == 0) continue;
        const Coded coded = Encode(c_, Slice(inputs[r], range), Slice(workers_[r], range),
                                   chunks.chunk_elements(), DrawsOf(range));
        std::ranges::copy(coded.values, At(values[r], range));
        std::ranges::copy(coded.residual, At(workers_[r], range));
      }
    }
    for (size_t j = 0; j < c_.ranks; ++j) {
      const ElementRange range = chunks.Chunk(j);
      if (range.count == 0) continue;
      Floats mean(range.count);
      for (size_t i = 0; i < range.count; ++i) {
        bool is_first = true;
        for (size_t r = 0; r < c_.ranks; ++r) {
          if (weights[r] == 0) continue;
          const float product = weights[r] * values[r][range.begin + i];
          mean[i] = is_first ? product : mean[i] + product;
          is_first = false;
        }
        mean[i] /= sum;
      }
      if (c_.collective == onebitCollectiveAllReduce && !c_.has_one_hop()) {
        const Coded coded =
            Encode(c_, mean, Slice(server_, range), chunks.chunk_elements(), DrawsOf(range));
        mean = coded.values;
        std::ranges::copy(coded.residual, At(server_, range));
      }
      for (size_t i = 0; c_.is_sparse() && i < range.count; ++i) {
        const size_t block = i / c_.block * c_.block;
        mean[i] *= c_.factor(std::min(c_.block, range.count - block));
      }
      std::ranges::copy(mean, At(output, range));
    }
    ++epoch_;
    return output;
  }

  const Floats& worker(size_t rank) const { return workers_[rank]; }

 private:
  size_t PiecesOfWorker() const { return c_.block == 0 ? 1 : c_.ranks; }
  kernels::Draws DrawsOf(ElementRange range) const {
    return {.first = range.begin, .epoch = epoch_, .stream = kernels::kSharedStream};
  }
  static Floats Slice(const Floats& from, ElementRange range) {
    const auto begin = from.begin() + static_cast<ptrdiff_t>(range.begin);
    return {begin, begin + static_cast<ptrdiff_t>(range.count)};
  }
  static Floats::iterator At(Floats& to, ElementRange range) {
    return to.begin() + static_cast<ptrdiff_t>(range.begin);
  }

  const WeightCase c_;
  std::vector<Floats> workers_;
  Floats server_;
  uint32_t epoch_ = 0;
};

UniqueCompressor CompressorOf(const WeightCase& c, onebitComm_t comm, int64_t tensor_id = -1) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.collective = c.collective;
  config.codec = c.codec;
  config.mode = c.has_feedback ? onebitModeEf : onebitModePlain;
  config.block = static_cast<int32_t>(c.block);
  config.tensorId = tensor_id;
  if (c.is_sparse()) {
    config.k = kSparseK;
    if (c.collective == onebitCollectiveAllReduce) config.hops = c.hops;
  }
  return NewCompressor(comm, kCount, onebitFloat32, config);
}

onebitResult_t Call(const WeightCase& c, onebitCompressor_t compressor, const Floats& input,
                    Floats* output, onebitComm_t comm) {
  return MakeCall(
      c.collective,
      {.send = input.data(), .receive = output->data(), .count = kCount, .compressor = compressor},
      comm);
}

struct Rounds {
  std::vector<Floats> weights;              // by round, then rank
  std::vector<std::vector<Floats>> inputs;  // by round, then rank
};

// In the first round all are present, in the third nobody.
Rounds RandomRounds(const WeightCase& c, std::mt19937& random) {
  Rounds rounds;
  for (int round = 0; round < kRounds; ++round) {
    Floats weights(c.ranks);
    std::vector<Floats> inputs(c.ranks, Floats(c.elements()));
    for (size_t r = 0; r < c.ranks; ++r) {
      const bool is_absent = round == 2 || (round != 0 && random() % 2 == 0);
      weights[r] = is_absent ? 0.0f : static_cast<float>(1 + random() % 1000) / 7;
      for (float& x : inputs[r]) {
        // The library does not read the input of an absent rank.
        x = is_absent ? kNan : std::normal_distribution<float>(0, 1)(random);
      }
    }
    rounds.weights.push_back(weights);
    rounds.inputs.push_back(inputs);
  }
  return rounds;
}

// Headers and payloads of a rank's messages of exchange 1 if it is absent, without segments.
uint64_t AbsentBytes(const WeightCase& c) { return (c.ranks - 1) * 80; }

void ExpectModel(CommGroup& group, const WeightCase& c, std::mt19937& random) {
  SCOPED_TRACE(::testing::Message() << c);
  const Rounds rounds = RandomRounds(c, random);
  WeightModel model(c);
  std::vector<Floats> expected;
  for (int round = 0; round < kRounds; ++round) {
    expected.push_back(model.Round(rounds.inputs[round], rounds.weights[round]));
  }
  group.Run([&](int rank) {
    SCOPED_TRACE(::testing::Message() << c << "; rank " << rank);
    const auto r = static_cast<size_t>(rank);
    const onebitComm_t comm = group.comm(rank);
    const UniqueCompressor compressor = CompressorOf(c, comm, /*tensor_id=*/0);
    const size_t parts = ReceiveParts(c.collective, c.ranks);
    const size_t begin = c.collective == onebitCollectiveAllReduce ? 0 : r * kCount;
    for (int round = 0; round < kRounds; ++round) {
      ASSERT_EQ(onebitCompressorSetWeight(compressor.get(), rounds.weights[round][r]),
                onebitSuccess)
          << onebitGetLastError(nullptr);
      Floats output(parts * kCount);
      ASSERT_EQ(Call(c, compressor.get(), rounds.inputs[round][r], &output, comm), onebitSuccess)
          << onebitGetLastError(nullptr);
      for (size_t i = 0; i < output.size(); ++i) {
        ASSERT_EQ(output[i], expected[round][begin + i]) << "round " << round << ", element " << i;
      }
    }
    EXPECT_GE(StatsOf(compressor.get()).empty_rounds, 1u);
    EXPECT_EQ(StatsOf(compressor.get()).nonfinite_calls, 0u);
    if (c.has_feedback) {
      EXPECT_EQ(WorkerResidualOf(compressor.get()), model.worker(r));
    }
  });
}

class WeightTest : public ::testing::TestWithParam<int> {
 protected:
  template <typename Expect>
  void ForEachCase(const Expect& expect) {
    for (const onebitCollective_t collective :
         {onebitCollectiveAllReduce, onebitCollectiveReduceScatter}) {
      for (const bool has_feedback : {true, false}) {
        WeightCase c = {.collective = collective,
                        .has_feedback = has_feedback,
                        .ranks = static_cast<size_t>(GetParam())};
        expect(c);
        c.block = 4096;
        expect(c);
        c.block = 0;
        expect(c);
        c.block = kBlock;
        for (const onebitCodec_t codec :
             {onebitCodecFp4, onebitCodecInt8, onebitCodecUint8mm, onebitCodecInt2}) {
          c.codec = codec;
          expect(c);
        }
        c.block = 320;
        for (const onebitCodec_t codec : {onebitCodecTopk, onebitCodecRandk}) {
          c.codec = codec;
          for (c.hops = 1; c.hops <= 2; ++c.hops) {
            if (collective == onebitCollectiveAllReduce || !has_feedback) expect(c);
          }
        }
      }
    }
  }

  std::mt19937 random_{static_cast<unsigned>(GetParam())};
};

TEST_P(WeightTest, RoundsAreTheModels) {
  CommGroup group(GetParam());
  ForEachCase([&](const WeightCase& c) { ExpectModel(group, c, random_); });
}

TEST_P(WeightTest, OneExchangeHasTheResultsOfTwo) {
  CommGroup group(GetParam(), kPatientOneExchange);
  ForEachCase([&](const WeightCase& c) {
    if (c.collective == onebitCollectiveAllReduce) ExpectModel(group, c, random_);
  });
}

TEST_P(WeightTest, SegmentsAndThreadsChangeNothing) {
  CommOptions options = kPatient;
  options.segment_elements = 100;
  options.compute_threads = 2;
  CommGroup group(GetParam(), options);
  ForEachCase([&](const WeightCase& c) { ExpectModel(group, c, random_); });
}

TEST_P(WeightTest, AGroupHasTheResultsOfItsCalls) {
  CommGroup group(GetParam());
  ForEachCase([&](const WeightCase& c) {
    if (c.codec == onebitCodecRandk) return;  // what it draws depends on the compressor
    const Rounds rounds = RandomRounds(c, random_);
    group.Run([&](int rank) {
      const auto r = static_cast<size_t>(rank);
      const onebitComm_t comm = group.comm(rank);
      const UniqueCompressor alone = CompressorOf(c, comm);
      const UniqueCompressor grouped = CompressorOf(c, comm);
      const UniqueCompressor other = CompressorOf(c, comm);  // without weights
      for (int round = 0; round < kRounds; ++round) {
        const Floats ones(c.elements(), 1.0f);
        Floats output(kCount), of_group(kCount), of_other(kCount);
        for (onebitCompressor_t one : {alone.get(), grouped.get()}) {
          ASSERT_EQ(onebitCompressorSetWeight(one, rounds.weights[round][r]), onebitSuccess);
        }
        const Floats& input = rounds.inputs[round][r];
        ASSERT_EQ(Call(c, alone.get(), input, &output, comm), onebitSuccess);
        ASSERT_EQ(onebitGroupStart(), onebitSuccess);
        ASSERT_EQ(Call(c, grouped.get(), input, &of_group, comm), onebitSuccess);
        ASSERT_EQ(Call(c, other.get(), ones, &of_other, comm), onebitSuccess);
        ASSERT_EQ(onebitGroupEnd(), onebitSuccess) << onebitGetLastError(nullptr);
        ASSERT_EQ(of_group, output) << c << ", round " << round;
      }
      EXPECT_EQ(StatsOf(grouped.get()).empty_rounds, StatsOf(alone.get()).empty_rounds);
    });
  });
}

constexpr size_t kFour = 4;

// A compressor of any type and codec, with and without mask, and an input of every rank.
struct AnyCase {
  LowBitCase low_bit;
  onebitCompressorConfig_t config;  // points into low_bit
  std::vector<Tensor> inputs;

  size_t elements() const { return low_bit.model.count * SendParts(low_bit.collective, kFour); }
};

std::unique_ptr<AnyCase> RandomCase(int turn, std::mt19937& random) {
  auto any = std::make_unique<AnyCase>();
  const onebitCollective_t collective =
      turn % 3 == 0 ? onebitCollectiveReduceScatter : onebitCollectiveAllReduce;
  any->low_bit = RandomLowBitCase(collective, kLowBitCodecs[turn % 4], turn % 5 != 0, kFour,
                                  turn % 9 == 0 ? random() % 4 : random() % 3000, random);
  any->config = any->low_bit.config();
  any->config.transactional = turn % 7 == 0 ? 0 : 1;
  if (turn % 4 == 1) {
    any->config.codec = onebitCodecSign;
    any->config.block = turn % 8 == 1 ? ONEBIT_BLOCK_TENSOR : 192;
  }
  for (size_t r = 0; r < kFour; ++r) {
    any->inputs.emplace_back(any->elements(), any->low_bit.model.type);
    any->inputs.back().FillNormal(random);
  }
  return any;
}

struct Made {
  std::vector<Tensor> outputs;
  Residuals residuals;
};

// Makes three calls, with a weight if there is one.
Made MakeCalls(const AnyCase& any, const Tensor& input, std::optional<float> weight,
               onebitComm_t comm) {
  const auto& model = any.low_bit.model;
  const UniqueCompressor compressor =
      NewCompressor(comm, model.count, ApiType(model.type), any.config);
  if (weight.has_value()) {
    EXPECT_EQ(onebitCompressorSetWeight(compressor.get(), *weight), onebitSuccess);
  }
  Made made;
  for (int call = 0; call < 3; ++call) {
    made.outputs.emplace_back(model.count, model.type);
    EXPECT_EQ(MakeCall(any.low_bit.collective,
                       {.send = input.data(),
                        .receive = made.outputs.back().data(),
                        .count = model.count,
                        .type = ApiType(model.type),
                        .compressor = compressor.get()},
                       comm),
              onebitSuccess)
        << onebitGetLastError(nullptr);
    EXPECT_TRUE(made.outputs.back().HasIntactGuards());
  }
  made.residuals = ResidualsOf(compressor.get());
  return made;
}

// Calls body(group, case) for 80 cases with one and with two exchanges.
template <typename Body>
void ForAnyCases(const Body& body) {
  std::mt19937 random(11);
  CommGroup two_exchanges(kFour), one_exchange(kFour, kPatientOneExchange);
  for (CommGroup* group : {&two_exchanges, &one_exchange}) {
    for (int turn = 0; turn < 80; ++turn) body(*group, *RandomCase(turn, random), random);
  }
}

// Quotients by a power of 2 are exact, so equal weights change no bit.
TEST(EqualWeightsTest, OfAPowerOfTwoRanksAreNoWeights) {
  ForAnyCases([](CommGroup& group, const AnyCase& any, std::mt19937&) {
    group.Run([&](int rank) {
      const Tensor& input = any.inputs[static_cast<size_t>(rank)];
      const Made plain = MakeCalls(any, input, std::nullopt, group.comm(rank));
      const Made weighted = MakeCalls(any, input, 0.25f, group.comm(rank));
      for (size_t call = 0; call < plain.outputs.size(); ++call) {
        EXPECT_TRUE(weighted.outputs[call].HasBytesOf(plain.outputs[call]))
            << any.low_bit << ", call " << call;
      }
      EXPECT_EQ(weighted.residuals, plain.residuals) << any.low_bit;
    });
  });
}

// Two of four ranks have a weight. Without weights the others would send zeros, which are 0 in
// every codec but uint8mm, and the result would be half as large: exactly, because half of a code's
// scale is exact.
TEST(AbsentRankTest, ChangesNothingForTheOthers) {
  ForAnyCases([](CommGroup& group, AnyCase& any, std::mt19937& random) {
    if (any.config.codec == onebitCodecUint8mm) any.config.codec = onebitCodecInt8;
    const size_t first = random() % kFour, second = (first + 1 + random() % 3) % kFour;
    group.Run([&](int rank) {
      const auto r = static_cast<size_t>(rank);
      const bool is_present = r == first || r == second;
      const auto filled = [&](float value) {
        Tensor input(any.elements(), any.low_bit.model.type);
        for (size_t i = 0; i < any.elements(); ++i) {
          input.Set(i, is_present ? any.inputs[r].Get(i) : value);
        }
        return input;
      };
      const Made plain = MakeCalls(any, filled(0), std::nullopt, group.comm(rank));
      const Made weighted =
          MakeCalls(any, filled(kNan), is_present ? 0.5f : 0.0f, group.comm(rank));
      for (size_t call = 0; call < plain.outputs.size(); ++call) {
        for (size_t i = 0; i < any.low_bit.model.count; ++i) {
          ASSERT_EQ(weighted.outputs[call].Get(i), 2 * plain.outputs[call].Get(i))
              << any.low_bit << ", element " << i;
        }
      }
      EXPECT_EQ(weighted.residuals.worker, plain.residuals.worker) << any.low_bit;
    });
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, WeightTest, ::testing::Values(2, 3, 4));

TEST(AbsentRankTest, SendsAHeaderAnd16BytesToEachPeer) {
  for (const bool is_one_exchange : {true, false}) {
    CommGroup group(3, is_one_exchange ? kPatientOneExchange : kPatient);
    const WeightCase c = {.codec = onebitCodecInt8};
    group.Run([&](int rank) {
      const onebitComm_t comm = group.comm(rank);
      const UniqueCompressor compressor = CompressorOf(c, comm);
      for (const bool is_absent : {false, true}) {
        ASSERT_EQ(onebitCompressorSetWeight(compressor.get(), is_absent && rank == 1 ? 0.0f : 1.0f),
                  onebitSuccess);
        const uint64_t before = StatsOf(comm).bytes_sent;
        Floats x(kCount, 1.0f);
        ASSERT_EQ(Call(c, compressor.get(), x, &x, comm), onebitSuccess);
        const uint64_t sent = StatsOf(comm).bytes_sent - before;
        if (!is_absent || rank != 1) {
          EXPECT_EQ(sent, StatsOf(compressor.get()).wire_bytes);
          continue;
        }
        const uint64_t mean = c.chunks().Chunk(1).count;
        const uint64_t second = is_one_exchange ? 0 : 2 * (64 + 16 + mean);  // scales: one line
        EXPECT_EQ(sent, AbsentBytes(c) + second);
      }
    });
  }
}

TEST(AbsentRankTest, AloneGetsZeros) {
  CommGroup group(1);
  const WeightCase c = {.ranks = 1};
  group.Run([&](int rank) {
    const UniqueCompressor compressor = CompressorOf(c, group.comm(rank));
    Floats x(kCount, 3.0f);
    ASSERT_EQ(onebitCompressorSetWeight(compressor.get(), 2.0f), onebitSuccess);
    ASSERT_EQ(Call(c, compressor.get(), x, &x, group.comm(rank)), onebitSuccess);
    EXPECT_EQ(x, Floats(kCount, 3.0f));
    ASSERT_EQ(onebitCompressorSetWeight(compressor.get(), 0.0f), onebitSuccess);
    ASSERT_EQ(Call(c, compressor.get(), x, &x, group.comm(rank)), onebitSuccess);
    EXPECT_EQ(x, Floats(kCount, 0.0f));
    EXPECT_EQ(StatsOf(compressor.get()).empty_rounds, 1u);
    ASSERT_EQ(onebitCompressorSetWeight(compressor.get(), 1.0f), onebitSuccess);
    ASSERT_EQ(Call(c, compressor.get(), x, &x, group.comm(rank)), onebitSuccess);
    EXPECT_EQ(StatsOf(compressor.get()).empty_rounds, 1u);
  });
}

TEST(PresentRankTest, CountsABlockOfAReduceScatterThatIsNotFinite) {
  CommGroup group(2);
  const WeightCase c = {.collective = onebitCollectiveReduceScatter,
                        .codec = onebitCodecInt8,
                        .has_feedback = false,
                        .ranks = 2};
  group.Run([&](int rank) {
    const UniqueCompressor compressor = CompressorOf(c, group.comm(rank));
    Floats x(c.elements(), 127.0f), out(kCount);
    x[kBlock + 3] = kNan;  // the second block of what rank 0 gets, from both ranks
    ASSERT_EQ(onebitCompressorSetWeight(compressor.get(), 1.0f), onebitSuccess);
    ASSERT_EQ(Call(c, compressor.get(), x, &out, group.comm(rank)), onebitSuccess);
    EXPECT_EQ(StatsOf(compressor.get()).nonfinite_blocks, rank == 0 ? 2u : 1u);
    EXPECT_EQ(std::isnan(out[kBlock]), rank == 0);
    EXPECT_EQ(out[0], 127.0f);
  });
}

TEST(PresentRankTest, MayHaveTheLargestWeight) {
  CommGroup group(3);
  const WeightCase c = {.codec = onebitCodecInt8, .has_feedback = false};
  group.Run([&](int rank) {
    const UniqueCompressor compressor = CompressorOf(c, group.comm(rank));
    for (const float weight : {0x1p64f, 0x1p-64f}) {
      Floats x(kCount, 127.0f);
      ASSERT_EQ(onebitCompressorSetWeight(compressor.get(), weight), onebitSuccess);
      ASSERT_EQ(Call(c, compressor.get(), x, &x, group.comm(rank)), onebitSuccess);
      EXPECT_EQ(x, Floats(kCount, 127.0f)) << weight;
    }
  });
}

// As ever, nothing is committed.
TEST(PresentRankTest, WithANanMakesTheOutputNan) {
  CommGroup group(3);
  const WeightCase c;
  group.Run([&](int rank) {
    const UniqueCompressor compressor = CompressorOf(c, group.comm(rank));
    Floats x(kCount, rank == 2 ? kNan : 1.0f);
    ASSERT_EQ(onebitCompressorSetWeight(compressor.get(), rank == 0 ? 0.0f : 1.0f), onebitSuccess);
    ASSERT_EQ(Call(c, compressor.get(), x, &x, group.comm(rank)), onebitSuccess);
    EXPECT_TRUE(std::ranges::all_of(x, [](float value) { return std::isnan(value); }));
    EXPECT_EQ(StatsOf(compressor.get()).nonfinite_calls, 1u);
    EXPECT_EQ(StatsOf(compressor.get()).epoch, 0u);
  });
}

TEST(WeightArgumentsTest, AreChecked) {
  CommGroup group(1);
  const onebitComm_t comm = group.comm(0);
  const UniqueCompressor compressor = CompressorOf({.ranks = 1}, comm);
  const auto text = [] { return std::string(onebitGetLastError(nullptr)); };
  EXPECT_EQ(onebitCompressorSetWeight(nullptr, 1), onebitInvalidArgument);
  for (const float weight :
       {-1.0f, kNan, 0x1p65f, 0x1p-65f, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(onebitCompressorSetWeight(compressor.get(), weight), onebitInvalidArgument);
    EXPECT_THAT(text(), HasSubstr("0, or from 2^-64 to 2^64"));
  }
  const UniqueCompressor gather =
      CompressorOf({.collective = onebitCollectiveAllGather, .ranks = 1}, comm);
  EXPECT_EQ(onebitCompressorSetWeight(gather.get(), 1), onebitInvalidUsage);
  EXPECT_THAT(text(), HasSubstr("is for all-gather"));
  ASSERT_EQ(onebitCompressorSetWeight(compressor.get(), 1), onebitSuccess);
  float x[kCount] = {};
  EXPECT_EQ(
      onebitAllReduce(x, x, kCount, onebitFloat32, onebitSum, compressor.get(), comm, nullptr),
      onebitInvalidUsage);
  EXPECT_THAT(text(), HasSubstr("op must be onebitAvg"));
  onebitSync_t sync = nullptr;
  EXPECT_EQ(onebitSyncCreate(&sync, compressor.get(), nullptr), onebitInvalidUsage);
  EXPECT_THAT(text(), HasSubstr("has a weight"));
  const UniqueCompressor summing = CompressorOf({.ranks = 1}, comm);
  ASSERT_EQ(onebitAllReduce(x, x, kCount, onebitFloat32, onebitSum, summing.get(), comm, nullptr),
            onebitSuccess);
  EXPECT_EQ(onebitCompressorSetWeight(summing.get(), 1), onebitInvalidUsage);
  EXPECT_THAT(text(), HasSubstr("used with onebitSum"));
}

TEST(WeightArgumentsTest, AreSetOnAllRanksOrNone) {
  CommGroup group(2);
  const WeightCase c = {.ranks = 2};
  const auto outcomes = group.Call([&](int rank) {
    const UniqueCompressor compressor = CompressorOf(c, group.comm(rank));
    if (rank == 1) {
      EXPECT_EQ(onebitCompressorSetWeight(compressor.get(), 1), onebitSuccess);
    }
    Floats x(kCount, 1.0f);
    return Call(c, compressor.get(), x, &x, group.comm(rank));
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.result, onebitMismatch);
  EXPECT_THAT(outcomes[0].text + outcomes[1].text, HasSubstr("weighted"));
}

}  // namespace
}  // namespace onebit::testing
