// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls of compressors in full precision: they pay exactly what is owed, fill all copies of an
// all-gather, and change nothing if a value is not finite or a rank cannot take part.
#include <cmath>
#include <functional>
#include <limits>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/collectives/low_bit_calls.h"
#include "tests/support/comm_group.h"
#include "tests/support/residuals.h"
#include "tests/support/tensor.h"

namespace onebit::testing {
namespace {

using kernels::DataType;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr uint32_t kSeed = 5150;
constexpr int kRanks = 3;
constexpr size_t kCount = 700;

struct Subject {
  const char* name;
  onebitCollective_t collective = onebitCollectiveAllReduce;
  onebitCodec_t codec = onebitCodecSign;
  DataType type = DataType::kF32;
  onebitRedOp_t op = onebitAvg;
  onebitDataType_t residual_type = onebitFloat32;
  bool is_one_exchange = false;
  bool is_transactional = true;
  bool is_masked = false;

  size_t elements() const {
    return collective == onebitCollectiveAllReduce ? kCount : kRanks * kCount;
  }
};
std::ostream& operator<<(std::ostream& out, const Subject& subject) { return out << subject.name; }

constexpr Subject kSubjects[] = {
    {.name = "AllReduce"},
    {.name = "AllReduceSum", .op = onebitSum},
    {.name = "AllReduceFp4", .codec = onebitCodecFp4},
    {.name = "AllReduceFp16", .type = DataType::kF16},
    {.name = "AllReduceOneExchange", .codec = onebitCodecInt2, .is_one_exchange = true},
    {.name = "AllReduceOneGeneration", .is_transactional = false},
    {.name = "AllReduceBf16Residuals", .residual_type = onebitBfloat16},
    {.name = "AllReduceMasked", .is_masked = true},
    {.name = "ReduceScatter", .collective = onebitCollectiveReduceScatter},
    {.name = "ReduceScatterSumMasked",
     .collective = onebitCollectiveReduceScatter,
     .codec = onebitCodecInt8,
     .op = onebitSum,
     .is_masked = true},
    {.name = "AllToAll", .collective = onebitCollectiveAllToAll},
    {.name = "AllToAllFp16Masked",
     .collective = onebitCollectiveAllToAll,
     .codec = onebitCodecUint8mm,
     .type = DataType::kF16,
     .is_masked = true},
};

constexpr Subject kGathers[] = {
    {.name = "AllGather", .collective = onebitCollectiveAllGather},
    {.name = "AllGatherFp4Bf16",
     .collective = onebitCollectiveAllGather,
     .codec = onebitCodecFp4,
     .type = DataType::kBf16},
};

std::vector<uint8_t> MaskOf(const Subject& subject) {
  std::vector<uint8_t> mask;
  if (subject.is_masked) mask.assign(kernels::BitBytes(subject.elements()), 0xed);
  return mask;
}

UniqueCompressor Make(onebitComm_t comm, const Subject& subject) {
  const std::vector<uint8_t> mask = MaskOf(subject);
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.collective = subject.collective;
  config.codec = subject.codec;
  config.block = 64;
  config.residualType = subject.residual_type;
  config.transactional = subject.is_transactional ? 1 : 0;
  config.mask = mask.empty() ? nullptr : mask.data();
  return NewCompressor(comm, kCount, ApiType(subject.type), config);
}

// A rank's inputs and outputs of compressed calls and of the call in full precision behind them,
// summed in fp64.
struct RankSums {
  std::vector<double> inputs;
  std::vector<double> outputs;
  std::vector<float> last_input;
  std::vector<float> last_output;
  std::vector<float> owed_by_worker;  // afterwards
  std::vector<float> owed_by_server;
};

void AddTo(std::vector<double>& sum, const Tensor& values) {
  sum.resize(values.count());
  for (size_t i = 0; i < values.count(); ++i) sum[i] += values.Get(i);
}

std::vector<float> Floats(const Tensor& values) {
  std::vector<float> floats;
  for (size_t i = 0; i < values.count(); ++i) floats.push_back(values.Get(i));
  return floats;
}

RankSums RunRank(onebitComm_t comm, int rank, const Subject& subject, int calls) {
  RankSums sums;
  const UniqueCompressor compressor = Make(comm, subject);
  std::mt19937 random(kSeed + static_cast<uint32_t>(rank));
  Tensor input(kCount * SendParts(subject.collective, kRanks), subject.type);
  Tensor output(kCount * ReceiveParts(subject.collective, kRanks), subject.type);
  for (int call = 0; call <= calls; ++call) {
    input.FillNormal(random);
    const onebitResult_t result = call < calls
                                      ? MakeCall(subject.collective,
                                                 {.send = input.data(),
                                                  .receive = output.data(),
                                                  .count = kCount,
                                                  .type = ApiType(subject.type),
                                                  .op = subject.op,
                                                  .compressor = compressor.get()},
                                                 comm)
                                      : onebitCompressorPrime(compressor.get(), input.data(),
                                                              output.data(), subject.op, nullptr);
    EXPECT_EQ(result, onebitSuccess) << onebitGetLastError(nullptr);
    AddTo(sums.inputs, input);
    AddTo(sums.outputs, output);
  }
  EXPECT_EQ(StatsOf(compressor.get()).epoch, static_cast<uint64_t>(calls) + 1);
  sums.last_input = Floats(input);
  sums.last_output = Floats(output);
  sums.owed_by_worker = WorkerResidualOf(compressor.get());
  sums.owed_by_server = ServerResidualOf(compressor.get());
  return sums;
}

class PrimeTest : public ::testing::TestWithParam<Subject> {
 protected:
  std::vector<RankSums> Run(int calls) {
    CommGroup group(kRanks, GetParam().is_one_exchange ? kPatientOneExchange : kPatient);
    std::vector<RankSums> ranks(kRanks);
    group.Run([&](int rank) {
      ranks[static_cast<size_t>(rank)] = RunRank(group.comm(rank), rank, GetParam(), calls);
    });
    return ranks;
  }
  bool TakesPart(size_t element) const {
    const std::vector<uint8_t> mask = MaskOf(GetParam());
    return mask.empty() || (mask[element / 8] >> (element % 8) & 1) != 0;
  }
};

class PrimeSumTest : public PrimeTest {};

// All outputs together are all inputs together: nothing is owed any more.
TEST_P(PrimeSumTest, PaysWhatIsOwed) {
  const Subject& s = GetParam();
  const std::vector<RankSums> ranks = Run(4);
  const bool is_narrow = s.type != DataType::kF32 || s.residual_type != onebitFloat32;
  const double tolerance = is_narrow ? 0.05 : 2e-5;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    for (size_t i = 0; i < ranks[rank].outputs.size(); ++i) {
      double expected = 0;
      size_t element = i;
      if (s.collective == onebitCollectiveAllToAll) {
        element = rank * kCount + i % kCount;
        expected = ranks[i / kCount].inputs[element];
      } else {
        if (s.collective == onebitCollectiveReduceScatter) element += rank * kCount;
        for (const RankSums& other : ranks) expected += other.inputs[element];
        if (s.op == onebitAvg) expected /= kRanks;
      }
      if (!TakesPart(element)) expected = 0;
      ASSERT_NEAR(ranks[rank].outputs[i], expected, tolerance) << "rank " << rank << ", " << i;
    }
    if (s.type == DataType::kF32) {
      EXPECT_THAT(ranks[rank].owed_by_worker, Each(0.0f));
      EXPECT_THAT(ranks[rank].owed_by_server, Each(0.0f));
    }
  }
}

class PrimeGatherTest : public PrimeTest {};

// The first call of an all-gather with feedback would send less than half of a value.
TEST_P(PrimeGatherTest, FillsAllCopiesOfAnAllGather) {
  for (const int calls : {0, 2}) {
    const std::vector<RankSums> ranks = Run(calls);
    for (const RankSums& rank : ranks) {
      for (size_t i = 0; i < rank.last_output.size(); ++i) {
        ASSERT_EQ(rank.last_output[i], ranks[i / kCount].last_input[i % kCount]) << i;
        ASSERT_EQ(rank.owed_by_worker[i], 0 - rank.last_output[i]) << "negated copy " << i;
      }
    }
  }
}

TEST_P(PrimeTest, ANanOfOneRankChangesNothing) {
  const Subject& s = GetParam();
  CommGroup group(kRanks, s.is_one_exchange ? kPatientOneExchange : kPatient);
  group.Run([&](int rank) {
    const UniqueCompressor compressor = Make(group.comm(rank), s);
    Tensor input(kCount * SendParts(s.collective, kRanks), s.type);
    Tensor output(kCount * ReceiveParts(s.collective, kRanks), s.type);
    input.Fill(0.75f);
    const auto prime = [&] {
      return onebitCompressorPrime(compressor.get(), input.data(), output.data(), s.op, nullptr);
    };
    ASSERT_EQ(prime(), onebitSuccess) << onebitGetLastError(nullptr);
    const Residuals before = ResidualsOf(compressor.get());
    if (rank == 1) input.Set(8, std::numeric_limits<float>::quiet_NaN());
    ASSERT_EQ(prime(), onebitSuccess) << onebitGetLastError(nullptr);
    for (size_t i = 0; i < output.count(); ++i) ASSERT_TRUE(std::isnan(output.Get(i))) << i;
    EXPECT_EQ(StatsOf(compressor.get()).nonfinite_calls, 1u);
    if (s.is_transactional) {
      EXPECT_EQ(ResidualsOf(compressor.get()), before);
      EXPECT_EQ(StatsOf(compressor.get()).epoch, 1u);
    }
  });
}

std::string NameOfSubject(const ::testing::TestParamInfo<Subject>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Sums, PrimeTest, ::testing::ValuesIn(kSubjects), NameOfSubject);
INSTANTIATE_TEST_SUITE_P(Gathers, PrimeTest, ::testing::ValuesIn(kGathers), NameOfSubject);
INSTANTIATE_TEST_SUITE_P(Sums, PrimeSumTest, ::testing::ValuesIn(kSubjects), NameOfSubject);
INSTANTIATE_TEST_SUITE_P(Gathers, PrimeGatherTest, ::testing::ValuesIn(kGathers), NameOfSubject);

class PrimeRefusalTest : public ::testing::Test {
 protected:
  Outcome Prime(onebitCompressor_t compressor, onebitRedOp_t op = onebitAvg) {
    return CallHere([&] {
      return onebitCompressorPrime(compressor, values_.data(), values_.data(), op, nullptr);
    });
  }

  std::vector<float> values_ = std::vector<float>(kCount);
};

TEST_F(PrimeRefusalTest, CompressorsWithoutFeedbackOweNothing) {
  CommGroup group(1);
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.mode = onebitModePlain;
  const UniqueCompressor plain = NewCompressor(group.comm(0), kCount, onebitFloat32, config);
  const Outcome outcome = Prime(plain.get());
  EXPECT_EQ(outcome.result, onebitInvalidUsage);
  EXPECT_THAT(outcome.text, HasSubstr("no error feedback"));
  EXPECT_EQ(Prime(nullptr).result, onebitInvalidArgument);
}

TEST_F(PrimeRefusalTest, OneRankGetsItsInput) {
  CommGroup group(1);
  const UniqueCompressor compressor = Make(group.comm(0), kSubjects[0]);
  values_.assign(kCount, 0.1f);
  EXPECT_EQ(Prime(compressor.get()).result, onebitSuccess);
  EXPECT_THAT(values_, Each(0.1f));
  EXPECT_EQ(StatsOf(compressor.get()).epoch, 0u);
}

TEST_F(PrimeRefusalTest, AnotherOpOrAGroupIsRefused) {
  CommGroup group(1);
  const UniqueCompressor compressor = Make(group.comm(0), kSubjects[0]);
  EXPECT_EQ(Prime(compressor.get(), onebitSum).result, onebitSuccess);
  EXPECT_THAT(Prime(compressor.get(), onebitAvg).text, HasSubstr("used with another op"));
  onebitGroupStart();
  EXPECT_THAT(Prime(compressor.get(), onebitSum).text, HasSubstr("cannot be part of a group"));
  EXPECT_EQ(onebitGroupEnd(), onebitSuccess);
}

// The communicator stays healthy, because ranks compare before they exchange anything.
TEST_F(PrimeRefusalTest, RanksWithOtherCompressorsOrOpsLearnIt) {
  const std::pair<const char*, std::function<void(onebitCompressorConfig_t&)>> changes[] = {
      {"tensorId of the compressor", [](auto& c) { c.tensorId = 11; }},
      {"codec of the compressor", [](auto& c) { c.block = 64; }},
      {"residualType of the compressor", [](auto& c) { c.residualType = onebitBfloat16; }},
      {"chunkAlignment of the compressor", [](auto& c) { c.chunkAlignment = 8; }},
      {"op", [](auto&) {}}};
  CommGroup group(2);
  for (const auto& [text, change] : changes) {
    std::vector<UniqueCompressor> compressors;
    for (int rank = 0; rank < 2; ++rank) {
      onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
      config.tensorId = 10;
      if (rank == 1) change(config);
      compressors.push_back(NewCompressor(group.comm(rank), kCount, onebitFloat32, config));
    }
    std::vector<std::vector<float>> values(2, std::vector<float>(kCount, 1.0f));
    const bool is_op = std::string(text) == "op";
    for (const Outcome& outcome : group.Call([&](int rank) {
           const auto r = static_cast<size_t>(rank);
           return onebitCompressorPrime(compressors[r].get(), values[r].data(), values[r].data(),
                                        is_op && rank == 1 ? onebitSum : onebitAvg, nullptr);
         })) {
      EXPECT_EQ(outcome.result, onebitMismatch) << text;
      EXPECT_THAT(outcome.text, HasSubstr(text));
    }
  }
  group.Run([&](int rank) { EXPECT_EQ(onebitBarrier(group.comm(rank), nullptr), onebitSuccess); });
}

#if defined(__x86_64__)
// Copies of subnormal numbers would differ between ranks.
TEST(PrimeFpEnvironmentTest, DoesNotDependOnTheCallersControlRegister) {
  CommGroup group(2);
  std::vector<std::vector<float>> held(2);
  group.Run([&](int rank) {
    const UniqueCompressor compressor = Make(group.comm(rank), kGathers[0]);
    const std::vector<float> x(kCount, 3e-40f);
    std::vector<float> output(2 * kCount);
    const unsigned saved = _mm_getcsr();
    if (rank == 1) _mm_setcsr(saved | 0x8040);  // flush to zero, denormals are zero
    EXPECT_EQ(onebitCompressorPrime(compressor.get(), x.data(), output.data(), onebitSum, nullptr),
              onebitSuccess);
    _mm_setcsr(saved);
    held[static_cast<size_t>(rank)] = WorkerResidualOf(compressor.get());
  });
  EXPECT_EQ(held[0], held[1]);
  EXPECT_THAT(held[0], Each(-3e-40f));
}
#endif

TEST(PrimeStreamTest, TakesItsTurnOnAHostStream) {
  CommGroup group(2);
  group.Run([&](int rank) {
    const UniqueCompressor compressor = Make(group.comm(rank), kSubjects[0]);
    onebitStream_t stream = nullptr;
    ASSERT_EQ(onebitStreamCreate(&stream), onebitSuccess);
    std::vector<float> x(kCount, rank == 0 ? 1.0f : 3.0f);
    std::vector<float> first(kCount);
    std::vector<float> second(kCount);
    EXPECT_EQ(onebitAllReduce(x.data(), first.data(), kCount, onebitFloat32, onebitAvg,
                              compressor.get(), group.comm(rank), stream),
              onebitSuccess);
    EXPECT_EQ(onebitCompressorPrime(compressor.get(), x.data(), second.data(), onebitAvg, stream),
              onebitSuccess);
    EXPECT_EQ(onebitStreamSynchronize(stream), onebitSuccess) << onebitGetLastError(nullptr);
    for (size_t i = 0; i < kCount; ++i) ASSERT_NEAR(first[i] + second[i], 4.0f, 1e-5);
    EXPECT_EQ(onebitStreamDestroy(stream), onebitSuccess);
  });
}

}  // namespace
}  // namespace onebit::testing
