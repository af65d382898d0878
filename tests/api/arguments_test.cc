// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Wrong arguments of communicators and collectives: the right code, a helpful text, nothing sent,
// and the communicator still usable.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/comm_group.h"

namespace onebit::testing {
namespace {

constexpr size_t kCount = 64;

class ArgumentsTest : public ::testing::Test {
 protected:
  ArgumentsTest() : values_(2 * kCount, 1.0f) {
    const onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    for (int rank = 0; rank < 2; ++rank) {
      compressors_.push_back(NewCompressor(group_.comm(rank), kCount, onebitFloat32, config));
    }
  }
  // Calls refused on rank 0 have left nothing behind: call numbers and residuals still agree.
  ~ArgumentsTest() override {
    EXPECT_EQ(StatsOf(comm()).messages_sent, 0u);
    EXPECT_STREQ(onebitGetLastError(comm()), "");
    const std::vector<Outcome> outcomes = group_.Call([&](int rank) {
      std::vector<float> values(kCount, 3.0f);
      const onebitResult_t result = onebitAllReduce(
          values.data(), values.data(), kCount, onebitFloat32, onebitAvg,
          compressors_[static_cast<size_t>(rank)].get(), group_.comm(rank), nullptr);
      EXPECT_EQ(values, std::vector<float>(kCount, 3.0f));
      return result;
    });
    for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.result, onebitSuccess);
  }

  onebitComm_t comm() const { return group_.comm(0); }
  onebitCompressor_t compressor() const { return compressors_[0].get(); }
  float* values() { return values_.data(); }
  onebitStream_t stream() { return reinterpret_cast<onebitStream_t>(values()); }

  static void ExpectRefused(onebitResult_t result, const std::string& text,
                            onebitResult_t expected = onebitInvalidArgument) {
    EXPECT_EQ(result, expected) << text;
    const std::string actual = onebitGetLastError(nullptr);
    EXPECT_NE(actual.find(text), std::string::npos) << actual << "\nlacks: " << text;
  }

  CommGroup group_{2};
  std::vector<UniqueCompressor> compressors_;
  std::vector<float> values_;
};

TEST_F(ArgumentsTest, AllReduceOfWrongBuffers) {
  const auto reduce = [&](const void* sendbuff, void* recvbuff) {
    return onebitAllReduce(sendbuff, recvbuff, kCount, onebitFloat32, onebitSum, nullptr, comm(),
                           nullptr);
  };
  ExpectRefused(reduce(nullptr, values()), "sendbuff is NULL, but count is 64");
  ExpectRefused(reduce(values(), nullptr), "recvbuff is NULL, but count is 64");
  ExpectRefused(reduce(values(), values() + 1), "overlap");
  ExpectRefused(reduce(values() + kCount - 1, values()), "overlap");
  const auto* odd = reinterpret_cast<const char*>(values()) + 2;
  ExpectRefused(reduce(odd + 4 * kCount, values()),
                "is not aligned to its element size of 4 bytes");
}

TEST_F(ArgumentsTest, AllReduceOfWrongNumbers) {
  const auto reduce = [&](size_t count, int type, int op) {
    return onebitAllReduce(values(), values(), count, static_cast<onebitDataType_t>(type),
                           static_cast<onebitRedOp_t>(op), nullptr, comm(), nullptr);
  };
  ExpectRefused(reduce(kCount, 3, onebitSum),
                "datatype 3 is unknown: use onebitFloat32, onebitFloat16, onebitBfloat16, "
                "onebitFloat64, onebitInt32, onebitInt64 or onebitUint8");
  ExpectRefused(reduce(kCount, 0, onebitSum), "datatype 0 is unknown");
  ExpectRefused(reduce(kCount, onebitFloat32, 1),
                "op 1 is unknown: use onebitSum, onebitAvg, onebitMax or onebitMin");
  ExpectRefused(reduce(kCount, onebitFloat32, 5), "op 5 is unknown");
  ExpectRefused(reduce(SIZE_MAX, onebitFloat32, onebitSum), "more than memory can hold");
  ExpectRefused(reduce(SIZE_MAX / 4, onebitFloat32, onebitSum), "more than memory can hold");
}

// In a group and on their own.
TEST_F(ArgumentsTest, CompressedCallsOfDenseTypesAndReductions) {
  const auto reduce = [&](onebitDataType_t type, onebitRedOp_t op) {
    return onebitAllReduce(values(), values(), kCount, type, op, compressor(), comm(), nullptr);
  };
  ExpectRefused(reduce(onebitInt32, onebitSum),
                "call has 64 int32, but the compressor of tensor 0");
  const char* const text =
      "but a compressor takes onebitSum or onebitAvg: call without a compressor";
  ExpectRefused(reduce(onebitFloat32, onebitMax), "op is onebitMax");
  ExpectRefused(reduce(onebitFloat32, onebitMin), text);
  EXPECT_EQ(onebitGroupStart(), onebitSuccess);
  ExpectRefused(reduce(onebitFloat32, onebitMax), text);
  EXPECT_EQ(onebitGroupEnd(), onebitInvalidArgument);
}

TEST_F(ArgumentsTest, BuffersOfWideTypesHaveTheirAlignment) {
  ExpectRefused(onebitBroadcast(values() + 1, values() + 1, 4, onebitInt64, 0, comm(), nullptr),
                "is not aligned to its element size of 8 bytes");
  ExpectRefused(
      onebitBroadcast(values(), values(), SIZE_MAX / 8, onebitFloat64, 0, comm(), nullptr),
      "more than memory can hold");
}

TEST_F(ArgumentsTest, AllReduceOfWrongHandles) {
  ExpectRefused(onebitAllReduce(values(), values(), kCount, onebitFloat32, onebitSum, nullptr,
                                nullptr, nullptr),
                "comm is NULL");
  ExpectRefused(onebitAllReduce(values(), values(), kCount, onebitFloat32, onebitSum, nullptr,
                                comm(), stream()),
                "stream was not made by onebitStreamCreate");
}

TEST_F(ArgumentsTest, AllReduceThatDiffersFromItsCompressor) {
  const auto reduce = [&](size_t count, onebitDataType_t type) {
    return onebitAllReduce(values(), values(), count, type, onebitAvg, compressor(), comm(),
                           nullptr);
  };
  ExpectRefused(reduce(kCount - 1, onebitFloat32),
                "call has 63 float32, but the compressor of tensor 0 was created for 64 float32");
  ExpectRefused(reduce(0, onebitFloat32), "call has 0 float32");
  ExpectRefused(reduce(kCount, onebitFloat16), "call has 64 float16");
}

TEST_F(ArgumentsTest, AllReduceWithACompressorOfAnotherCommunicator) {
  const auto reduce = [&](onebitCompressor_t compressor) {
    return onebitAllReduce(values(), values(), kCount, onebitFloat32, onebitAvg, compressor, comm(),
                           nullptr);
  };
  ExpectRefused(reduce(compressors_[1].get()),
                "compressor of tensor 0 belongs to another communicator", onebitInvalidUsage);
  UniqueCompressor detached;
  {
    CommGroup other(1);
    const onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    detached = NewCompressor(other.comm(0), kCount, onebitFloat32, config);
    ExpectRefused(reduce(detached.get()), "belongs to another communicator", onebitInvalidUsage);
  }
  ExpectRefused(reduce(detached.get()), "its communicator was destroyed", onebitDetached);
}

TEST_F(ArgumentsTest, BroadcastOfWrongArguments) {
  const auto broadcast = [&](const void* sendbuff, void* recvbuff, int root, onebitComm_t comm,
                             onebitStream_t stream) {
    return onebitBroadcast(sendbuff, recvbuff, kCount, onebitFloat32, root, comm, stream);
  };
  ExpectRefused(broadcast(values(), values(), -1, comm(), nullptr),
                "root is -1, but ranks are 0 to 1");
  ExpectRefused(broadcast(values(), values(), 2, comm(), nullptr),
                "root is 2, but ranks are 0 to 1");
  ExpectRefused(broadcast(nullptr, values(), 0, comm(), nullptr), "sendbuff is NULL");
  ExpectRefused(broadcast(values(), nullptr, 1, comm(), nullptr), "recvbuff is NULL");
  ExpectRefused(broadcast(values(), values() + 1, 0, comm(), nullptr), "overlap");
  ExpectRefused(broadcast(values(), values(), 0, nullptr, nullptr), "comm is NULL");
  ExpectRefused(broadcast(values(), values(), 0, comm(), stream()),
                "stream was not made by onebitStreamCreate");
  ExpectRefused(onebitBroadcast(values(), values(), kCount, static_cast<onebitDataType_t>(0), 0,
                                comm(), nullptr),
                "datatype 0 is unknown");
}

TEST_F(ArgumentsTest, BarrierOfWrongArguments) {
  ExpectRefused(onebitBarrier(nullptr, nullptr), "comm is NULL");
  ExpectRefused(onebitBarrier(comm(), stream()), "stream was not made by onebitStreamCreate");
}

TEST_F(ArgumentsTest, CommFunctionsOfWrongArguments) {
  int number = -7;
  onebitResult_t result = onebitInternalError;
  onebitCommStats_t stats = {.size = sizeof(stats)};
  ExpectRefused(onebitCommCount(nullptr, &number), "comm is NULL");
  ExpectRefused(onebitCommCount(comm(), nullptr), "count is NULL");
  ExpectRefused(onebitCommUserRank(nullptr, &number), "comm is NULL");
  ExpectRefused(onebitCommUserRank(comm(), nullptr), "rank is NULL");
  ExpectRefused(onebitCommGetAsyncError(nullptr, &result), "comm is NULL");
  ExpectRefused(onebitCommGetAsyncError(comm(), nullptr), "result is NULL");
  int count = -1;
  int lost = 0;
  ExpectRefused(onebitCommGetLost(nullptr, &lost, &count), "comm is NULL");
  ExpectRefused(onebitCommGetLost(comm(), &lost, nullptr), "count is NULL");
  ExpectRefused(onebitCommGetLost(comm(), &lost, &count), "count is -1");
  EXPECT_EQ(onebitCommGetLost(comm(), nullptr, &count), onebitSuccess);
  EXPECT_EQ(count, 0);
  ExpectRefused(onebitCommGetStats(nullptr, &stats), "comm is NULL");
  ExpectRefused(onebitCommGetStats(comm(), nullptr), "stats is NULL");
  ExpectRefused(onebitCommAbort(nullptr), "comm is NULL");
  EXPECT_EQ(onebitCommDestroy(nullptr), onebitSuccess);
  EXPECT_EQ(number, -7) << "written after an error";
  EXPECT_EQ(result, onebitInternalError) << "written after an error";
}

TEST_F(ArgumentsTest, InitAllOfWrongArguments) {
  onebitComm_t comms[2] = {nullptr, nullptr};
  const int devices[2] = {0, 1};
  ExpectRefused(onebitCommInitAll(nullptr, 2, nullptr), "comms is NULL");
  ExpectRefused(onebitCommInitAll(comms, 0, nullptr), "n is 0: one process can hold 1 to 1024");
  ExpectRefused(onebitCommInitAll(comms, -3, nullptr), "n is -3");
  ExpectRefused(onebitCommInitAll(comms, 1025, nullptr), "n is 1025");
  EXPECT_EQ(onebitCommInitAll(comms, 2, devices), onebitInvalidUsage);
  EXPECT_NE(std::string(onebitGetLastError(nullptr)).find("libcuda"), std::string::npos);
  EXPECT_EQ(comms[0], nullptr);
}

TEST_F(ArgumentsTest, SettingOutOfTheTableEndsAnEnumeration) {
  onebitSetting_t setting = {};
  ExpectRefused(onebitGetSetting(0, nullptr), "setting is NULL");
  ExpectRefused(onebitGetSetting(-1, &setting), "there is no setting -1");
  int end = 0;
  while (end < 1000 && onebitGetSetting(end, &setting) == onebitSuccess) ++end;
  const std::string number = std::to_string(end);
  ExpectRefused(onebitGetSetting(end, &setting),
                "there is no setting " + number + ": there are " + number);
}

// Arguments that are not used are not checked, such as the sendbuff of a rank that is not the root.
TEST(BroadcastArgumentsTest, SendbuffOfOtherRanksIsIgnored) {
  CommGroup group(2);
  const std::vector<Outcome> outcomes = group.Call([&](int rank) {
    std::vector<float> values(kCount, static_cast<float>(rank));
    const void* sendbuff =
        rank == 0 ? static_cast<const void*>(values.data()) : reinterpret_cast<const void*>(1);
    const onebitResult_t result = onebitBroadcast(sendbuff, values.data(), kCount, onebitFloat32, 0,
                                                  group.comm(rank), nullptr);
    EXPECT_EQ(values, std::vector<float>(kCount, 0.0f));
    return result;
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.result, onebitSuccess) << outcome.text;
}

TEST(EmptyTensorTest, NeedsNoBuffers) {
  CommGroup group(3);
  const std::vector<Outcome> outcomes = group.Call([&](int rank) {
    const onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    const UniqueCompressor compressor = NewCompressor(group.comm(rank), 0, onebitFloat32, config);
    for (const onebitCompressor_t handle : {onebitCompressor_t{}, compressor.get()}) {
      const onebitResult_t result = onebitAllReduce(nullptr, nullptr, 0, onebitFloat32, onebitSum,
                                                    handle, group.comm(rank), nullptr);
      if (result != onebitSuccess) return result;
    }
    return onebitBroadcast(nullptr, nullptr, 0, onebitFloat32, 1, group.comm(rank), nullptr);
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.result, onebitSuccess) << outcome.text;
}

}  // namespace
}  // namespace onebit::testing
