// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls without a compressor on every element type, with every reduction.
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/kernels.h"
#include "tests/support/chunk_calls.h"
#include "tests/support/comm_group.h"
#include "tests/support/dense_types.h"
#include "tests/support/tensor.h"

namespace onebit::testing {
namespace {

using kernels::DataType;
using kernels::DenseOp;
using kernels::kDenseOps;
using kernels::kDenseTypes;

constexpr uint32_t kSeed = 7301;
// The last one is large enough for segments and for several chunks in each of them.
constexpr size_t kCounts[] = {0, 1, 65, 1001, 20'001};

std::vector<Tensor> RandomTensors(size_t tensors, size_t count, DataType type,
                                  std::mt19937& random) {
  std::vector<Tensor> made;
  for (size_t i = 0; i < tensors; ++i) made.emplace_back(count, type).FillRandom(random);
  return made;
}

// Reduces the ranks' elements from `begin` on.
Tensor Reduced(const std::vector<Tensor>& inputs, size_t begin, size_t count, DenseOp op) {
  std::vector<const void*> pointers;
  const size_t offset = begin * kernels::BytesOf(inputs[0].type());
  for (const Tensor& input : inputs) pointers.push_back(input.data() + offset);
  Tensor output(count, inputs[0].type());
  kernels::reference::DenseReduce(pointers.data(), pointers.size(), count, output.type(), op,
                                  output.data());
  return output;
}

class DenseTypesTest : public ::testing::TestWithParam<int> {
 protected:
  int ranks() const { return GetParam(); }
  std::mt19937 random_{kSeed + static_cast<uint32_t>(GetParam())};
};

TEST_P(DenseTypesTest, AllReduceAndReduceScatterReduceEveryType) {
  CommGroup whole(ranks());
  CommGroup segments(ranks(), {.timeout_ms = 20'000, .segment_elements = 1000});
  const auto n = static_cast<size_t>(ranks());
  for (const DataType type : kDenseTypes) {
    for (const DenseOp op : kDenseOps) {
      for (const size_t count : kCounts) {
        const bool is_in_place = random_() % 2 == 0;
        const std::vector<Tensor> inputs = RandomTensors(n, count * n, type, random_);
        for (CommGroup* group : {&whole, &segments}) {
          group->Run([&](int rank) {
            SCOPED_TRACE(::testing::Message()
                         << "type " << ApiType(type) << " op " << ApiOp(op) << " count " << count
                         << (is_in_place ? " in place" : "") << " rank " << rank);
            const auto r = static_cast<size_t>(rank);
            Tensor sent(count * n, type);
            Tensor received(count * n, type);
            for (const onebitCollective_t collective :
                 {onebitCollectiveAllReduce, onebitCollectiveReduceScatter}) {
              const bool has_parts = collective == onebitCollectiveReduceScatter;
              const size_t begin = has_parts ? r * count : 0;
              sent.CopyFrom(inputs[r]);
              std::byte* const to =
                  is_in_place ? sent.data() + begin * kernels::BytesOf(type) : received.data();
              ASSERT_EQ(MakeCall(collective,
                                 {.send = sent.data(),
                                  .receive = to,
                                  .count = count,
                                  .type = ApiType(type),
                                  .op = ApiOp(op)},
                                 group->comm(rank)),
                        onebitSuccess)
                  << onebitGetLastError(nullptr);
              const Tensor expected = Reduced(inputs, begin, count, op);
              EXPECT_EQ(std::memcmp(to, expected.data(), expected.bytes()), 0)
                  << TextOf(collective);
              EXPECT_TRUE(sent.HasIntactGuards() && received.HasIntactGuards());
            }
          });
        }
      }
    }
  }
}

TEST_P(DenseTypesTest, TheOthersCopyEveryType) {
  CommGroup whole(ranks());
  CommGroup segments(ranks(), {.timeout_ms = 20'000, .segment_elements = 1000});
  const auto n = static_cast<size_t>(ranks());
  for (const DataType type : kDenseTypes) {
    for (const size_t count : kCounts) {
      const std::vector<Tensor> inputs = RandomTensors(n, count * n, type, random_);
      const size_t bytes = count * kernels::BytesOf(type);
      const int root = static_cast<int>(random_() % n);
      for (CommGroup* group : {&whole, &segments}) {
        group->Run([&](int rank) {
          SCOPED_TRACE(::testing::Message()
                       << "type " << ApiType(type) << " count " << count << " rank " << rank);
          const auto r = static_cast<size_t>(rank);
          Tensor received(count * n, type);
          for (const onebitCollective_t collective :
               {onebitCollectiveAllGather, onebitCollectiveAllToAll, onebitCollectiveAllToAllv}) {
            ASSERT_EQ(MakeCall(collective,
                               {.send = inputs[r].data(),
                                .receive = received.data(),
                                .count = count,
                                .type = ApiType(type)},
                               group->comm(rank)),
                      onebitSuccess)
                << onebitGetLastError(nullptr);
            for (size_t from = 0; from < n; ++from) {
              const size_t part = collective == onebitCollectiveAllGather ? 0 : r;
              EXPECT_EQ(std::memcmp(received.data() + from * bytes,
                                    inputs[from].data() + part * bytes, bytes),
                        0)
                  << TextOf(collective) << " from " << from;
            }
          }
          ASSERT_EQ(onebitBroadcast(inputs[r].data(), received.data(), count * n, ApiType(type),
                                    root, group->comm(rank), nullptr),
                    onebitSuccess)
              << onebitGetLastError(nullptr);
          EXPECT_TRUE(received.HasBytesOf(inputs[static_cast<size_t>(root)]));
          EXPECT_TRUE(received.HasIntactGuards());
        });
      }
    }
  }
}

// A compressed call among them has its usual result, whatever the sizes before it.
TEST_P(DenseTypesTest, GroupsAndStreamsMixTypes) {
  constexpr size_t kCount = 333;
  CommGroup group(ranks());
  const auto n = static_cast<size_t>(ranks());
  std::vector<std::vector<Tensor>> inputs;  // by type, by rank
  for (const DataType type : kDenseTypes) {
    inputs.push_back(RandomTensors(n, kCount, type, random_));
  }
  enum class How { kOneByOne, kGroup, kStream };
  group.Run([&](int rank) {
    const onebitComm_t comm = group.comm(rank);
    const auto r = static_cast<size_t>(rank);
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.mode = onebitModePlain;
    const UniqueCompressor compressor = NewCompressor(comm, kCount, onebitFloat32, config);
    onebitStream_t stream = nullptr;
    ASSERT_EQ(onebitStreamCreate(&stream), onebitSuccess);
    std::vector<float> compressed[3];
    for (const How how : {How::kOneByOne, How::kGroup, How::kStream}) {
      const onebitStream_t on = how == How::kStream ? stream : nullptr;
      std::vector<Tensor> outputs;
      for (const DataType type : kDenseTypes) outputs.emplace_back(kCount, type);
      std::vector<float>& signs = compressed[static_cast<size_t>(how)];
      signs.resize(kCount);
      if (how == How::kGroup) {
        EXPECT_EQ(onebitGroupStart(), onebitSuccess);
      }
      for (size_t i = 0; i < outputs.size(); ++i) {
        if (i == 5) {
          ASSERT_EQ(onebitAllReduce(inputs[0][r].data(), signs.data(), kCount, onebitFloat32,
                                    onebitAvg, compressor.get(), comm, on),
                    onebitSuccess);
        }
        ASSERT_EQ(
            onebitAllReduce(inputs[i][r].data(), outputs[i].data(), kCount, outputs[i].api_type(),
                            ApiOp(kDenseOps[i % 4]), nullptr, comm, on),
            onebitSuccess)
            << onebitGetLastError(nullptr);
      }
      if (how == How::kGroup) {
        EXPECT_EQ(onebitGroupEnd(), onebitSuccess);
      }
      if (how == How::kStream) {
        EXPECT_EQ(onebitStreamSynchronize(stream), onebitSuccess);
      }
      for (size_t i = 0; i < outputs.size(); ++i) {
        EXPECT_TRUE(outputs[i].HasBytesOf(Reduced(inputs[i], 0, kCount, kDenseOps[i % 4])))
            << "type " << outputs[i].api_type();
      }
      EXPECT_EQ(signs, compressed[0]);
    }
    EXPECT_EQ(onebitStreamDestroy(stream), onebitSuccess);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, DenseTypesTest, ::testing::Range(1, 5));

// The rules that the header states, in numbers: what two ranks with one element each get.
template <typename Element>
Element ResultOf(Element first, Element second, onebitDataType_t type, onebitRedOp_t op) {
  static CommGroup group(2);
  std::vector<Element> values = {first, second};
  group.Run([&](int rank) {
    Element& value = values[static_cast<size_t>(rank)];
    EXPECT_EQ(onebitAllReduce(&value, &value, 1, type, op, nullptr, group.comm(rank), nullptr),
              onebitSuccess);
  });
  EXPECT_EQ(std::memcmp(&values[0], &values[1], sizeof(Element)), 0) << "ranks differ";
  return values[0];
}

TEST(DenseRulesTest, IntegerSumsWrapAndAveragesAreTruncated) {
  const auto sum = [](int64_t a, int64_t b) { return ResultOf(a, b, onebitInt64, onebitSum); };
  const auto mean = [](int64_t a, int64_t b) { return ResultOf(a, b, onebitInt64, onebitAvg); };
  EXPECT_EQ(sum(INT64_MIN, INT64_MIN), 0);
  EXPECT_EQ(sum(INT64_MIN, -1), INT64_MAX);
  EXPECT_EQ(mean(-3, 0), -1);
  EXPECT_EQ(mean(3, 0), 1);
  EXPECT_EQ(mean(INT64_MAX, 1), INT64_MIN / 2);
  EXPECT_EQ(ResultOf<int32_t>(-5, -2, onebitInt32, onebitAvg), -3);
  EXPECT_EQ(ResultOf<uint8_t>(255, 2, onebitUint8, onebitSum), 1);
  EXPECT_EQ(ResultOf<uint8_t>(255, 2, onebitUint8, onebitAvg), 0);
}

TEST(DenseRulesTest, CountsAboveTheMantissaOfFp32AreExact) {
  const int64_t tokens = (int64_t{1} << 53) + 1;
  EXPECT_EQ(ResultOf<int64_t>(tokens, 2, onebitInt64, onebitSum), tokens + 2);
  EXPECT_EQ(ResultOf<int64_t>(tokens, tokens - 1, onebitInt64, onebitMin), tokens - 1);
}

TEST(DenseRulesTest, NanWinsAndNegativeZeroIsLess) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const onebitRedOp_t op : {onebitMax, onebitMin}) {
    EXPECT_TRUE(std::isnan(ResultOf(nan, 1.0f, onebitFloat32, op)));
    EXPECT_TRUE(std::isnan(ResultOf(1.0f, nan, onebitFloat32, op)));
    EXPECT_TRUE(std::isnan(ResultOf(HUGE_VAL, double{nan}, onebitFloat64, op)));
  }
  EXPECT_FALSE(std::signbit(ResultOf(-0.0, 0.0, onebitFloat64, onebitMax)));
  EXPECT_TRUE(std::signbit(ResultOf(0.0, -0.0, onebitFloat64, onebitMin)));
  EXPECT_EQ(ResultOf(-HUGE_VALF, 3.0f, onebitFloat32, onebitMin), -HUGE_VALF);
}

}  // namespace
}  // namespace onebit::testing
