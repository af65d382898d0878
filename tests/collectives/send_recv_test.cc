// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sends and receives: exchanges and rings in groups, several messages of a pair, a rank with
// itself, codecs, calls beside collectives, and calls that do not match.
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/collectives/low_bit_calls.h"
#include "tests/support/comm_group.h"
#include "tests/support/process_figures.h"
#include "tests/support/tensor.h"

namespace onebit::testing {
namespace {

using kernels::DataType;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr onebitCodec_t kCodecs[] = {onebitCodecSign, onebitCodecFp4,
                                     onebitCodecInt8, onebitCodecUint8mm,
                                     onebitCodecInt2, onebitCodecInt8Stochastic};

UniqueCompressor Make(onebitComm_t comm, size_t count, onebitCodec_t codec, int64_t id = 3,
                      onebitDataType_t type = onebitFloat32) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.collective = onebitCollectiveSendRecv;
  config.mode = onebitModePlain;
  config.codec = codec;
  config.block = 64;
  config.tensorId = id;
  return NewCompressor(comm, count, type, config);
}

// The elements that a rank sends.
std::vector<float> Values(size_t count, int rank) {
  std::mt19937 random(17 + static_cast<uint32_t>(rank));
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// Returns the values that arrive from a sender.
std::vector<float> Decoded(const std::vector<float>& values, onebitCodec_t codec, int sender,
                           uint32_t calls_before) {
  std::vector<float> output(values.size());
  if (codec == onebitCodecSign) {
    std::vector<float> scales(kernels::BlockCount(values.size(), 64));
    std::vector<uint8_t> bits(kernels::BitBytes(values.size()));
    kernels::reference::CompressBlocks({.input = values.data(), .count = values.size()}, 64,
                                       scales.data(), bits.data());
    kernels::reference::Decode(bits.data(), scales.data(), values.size(), 64, nullptr,
                               DataType::kF32, output.data());
    return output;
  }
  const kernels::LowBitFormat format = {KernelCodec(codec), 64};
  std::vector<uint16_t> scales(kernels::BlockCount(values.size(), 64));
  std::vector<uint16_t> minimums(scales.size());
  std::vector<uint8_t> codes(kernels::CodeBytes(format.codec, values.size()));
  kernels::reference::LowBitCompress(
      {.input = values.data(), .count = values.size()}, format,
      {.epoch = calls_before, .tensor = 3, .stream = static_cast<uint32_t>(sender)},
      {scales.data(), minimums.data(), codes.data()});
  kernels::reference::LowBitDecode({scales.data(), minimums.data(), codes.data()}, format,
                                   values.size(), nullptr, DataType::kF32, output.data());
  return output;
}

TEST(SendRecvTest, APairExchangesBuffersInAGroup) {
  CommGroup group(2);
  for (const DataType type : {DataType::kF32, DataType::kF16, DataType::kBf16}) {
    for (const size_t count : {0, 1, 777, 300'000}) {
      group.Run([&](int rank) {
        SCOPED_TRACE(count);
        Tensor mine(count, type);
        Tensor theirs(count, type);
        mine.Fill(static_cast<float>(rank + 1));
        ASSERT_EQ(onebitGroupStart(), onebitSuccess);
        onebitSend(mine.data(), count, ApiType(type), 1 - rank, nullptr, group.comm(rank), nullptr);
        onebitRecv(theirs.data(), count, ApiType(type), 1 - rank, nullptr, group.comm(rank),
                   nullptr);
        ASSERT_EQ(onebitGroupEnd(), onebitSuccess) << onebitGetLastError(nullptr);
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(theirs.Get(i), static_cast<float>(2 - rank));
        EXPECT_TRUE(theirs.HasIntactGuards());
      });
    }
  }
}

TEST(SendRecvTest, APairOfBlockingCallsMatches) {
  CommGroup group(3);
  group.Run([&](int rank) {
    std::vector<float> values(1000, 7.0f);
    if (rank == 0) {
      EXPECT_EQ(onebitSend(values.data(), 1000, onebitFloat32, 2, nullptr, group.comm(0), nullptr),
                onebitSuccess);
    } else if (rank == 2) {
      values.assign(1000, 0.0f);
      EXPECT_EQ(onebitRecv(values.data(), 1000, onebitFloat32, 0, nullptr, group.comm(2), nullptr),
                onebitSuccess);
      EXPECT_THAT(values, Each(7.0f));
    }
    EXPECT_EQ(onebitBarrier(group.comm(rank), nullptr), onebitSuccess) << "collectives go on";
  });
}

class RingTest : public ::testing::TestWithParam<onebitCodec_t> {};

// Even ranks send to the next one before they receive from the one before, odd ranks afterwards.
TEST_P(RingTest, EveryRankGetsTheValuesOfTheOneBefore) {
  for (const int ranks : {2, 4}) {
    CommGroup group(ranks);
    constexpr size_t kCount = 1003;
    group.Run([&](int rank) {
      const onebitComm_t comm = group.comm(rank);
      const int before = (rank + ranks - 1) % ranks;
      const UniqueCompressor compressor = Make(comm, kCount, GetParam());
      const std::vector<float> mine = Values(kCount, rank);
      std::vector<float> theirs(kCount);
      const auto send = [&] {
        return onebitSend(mine.data(), kCount, onebitFloat32, (rank + 1) % ranks, compressor.get(),
                          comm, nullptr);
      };
      const auto receive = [&] {
        return onebitRecv(theirs.data(), kCount, onebitFloat32, before, compressor.get(), comm,
                          nullptr);
      };
      ASSERT_EQ(rank % 2 == 0 ? send() : receive(), onebitSuccess) << onebitGetLastError(nullptr);
      // Draws depend on the calls before, of which odd ranks have made one when they send.
      const std::vector<float> expected =
          Decoded(Values(kCount, before), GetParam(), before, before % 2 == 0 ? 0 : 1);
      ASSERT_EQ(rank % 2 == 0 ? receive() : send(), onebitSuccess) << onebitGetLastError(nullptr);
      EXPECT_EQ(theirs, expected);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, RingTest, ::testing::ValuesIn(kCodecs),
                         [](const auto& info) { return std::string(TextOf(info.param)); });

// Compressed messages become ready after dense ones, and long ones after short ones.
// Every other call has a compressor, from the first or from the second on.
class PairOrderTest : public ::testing::TestWithParam<size_t> {};

TEST_P(PairOrderTest, MessagesOfAPairKeepTheirOrder) {
  CommGroup group(2);
  const std::vector<size_t> counts = {100'000, 3, 50'000, 0, 70'001};
  group.Run([&](int rank) {
    const onebitComm_t comm = group.comm(rank);
    std::vector<UniqueCompressor> compressors;
    std::vector<std::vector<float>> buffers;
    onebitGroupStart();
    for (size_t i = 0; i < counts.size(); ++i) {
      compressors.push_back(
          i % 2 == GetParam() ? Make(comm, counts[i], onebitCodecInt8, static_cast<int64_t>(10 + i))
                              : UniqueCompressor());
      buffers.emplace_back(counts[i] + 1, rank == 0 ? static_cast<float>(i + 1) : 0.0f);
      if (rank == 0) {
        onebitSend(buffers[i].data(), counts[i], onebitFloat32, 1, compressors[i].get(), comm,
                   nullptr);
      } else {
        onebitRecv(buffers[i].data(), counts[i], onebitFloat32, 0, compressors[i].get(), comm,
                   nullptr);
      }
    }
    ASSERT_EQ(onebitGroupEnd(), onebitSuccess) << onebitGetLastError(nullptr);
    if (rank == 0) return;
    for (size_t i = 0; i < counts.size(); ++i) {
      for (size_t k = 0; k < counts[i]; ++k) {
        ASSERT_NEAR(buffers[i][k], static_cast<float>(i + 1), 0.02f * static_cast<float>(i + 1));
      }
      EXPECT_EQ(buffers[i][counts[i]], 0.0f) << "nothing behind the buffer";
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Compressed, PairOrderTest, ::testing::Values(0, 1));

// More messages than a peer has room for must not hold up those to another one.
TEST(SendRecvTest, APeerWithoutRoomHoldsUpNoOther) {
  constexpr size_t kMessages = 100;
  CommGroup group(3);
  group.Run([&](int rank) {
    const onebitComm_t comm = group.comm(rank);
    std::vector<std::vector<float>> buffers(kMessages, std::vector<float>(2000, 1.0f));
    std::vector<float> token(10, 5.0f);
    if (rank == 0) {
      onebitGroupStart();
      for (auto& buffer : buffers) {
        onebitSend(buffer.data(), 2000, onebitFloat32, 1, nullptr, comm, nullptr);
      }
      onebitSend(token.data(), 10, onebitFloat32, 2, nullptr, comm, nullptr);
      EXPECT_EQ(onebitGroupEnd(), onebitSuccess) << onebitGetLastError(nullptr);
    } else if (rank == 1) {  // begins when rank 2 has what stands behind its messages
      EXPECT_EQ(onebitRecv(token.data(), 10, onebitFloat32, 2, nullptr, comm, nullptr),
                onebitSuccess)
          << onebitGetLastError(nullptr);
      onebitGroupStart();
      for (auto& buffer : buffers) {
        onebitRecv(buffer.data(), 2000, onebitFloat32, 0, nullptr, comm, nullptr);
      }
      EXPECT_EQ(onebitGroupEnd(), onebitSuccess) << onebitGetLastError(nullptr);
    } else {
      token.assign(10, 0.0f);
      EXPECT_EQ(onebitRecv(token.data(), 10, onebitFloat32, 0, nullptr, comm, nullptr),
                onebitSuccess)
          << onebitGetLastError(nullptr);
      EXPECT_THAT(token, Each(5.0f));
      EXPECT_EQ(onebitSend(token.data(), 10, onebitFloat32, 1, nullptr, comm, nullptr),
                onebitSuccess);
    }
  });
}

// Every rank of a ring sends before it receives, and no message fits an eager slot.
TEST(SendRecvTest, ARingOfLongMessagesMovesInAGroup) {
  constexpr size_t kCount = size_t{1} << 20;
  constexpr int kRanks = 4;
  CommGroup group(kRanks);
  group.Run([&](int rank) {
    const onebitComm_t comm = group.comm(rank);
    const std::vector<float> mine(kCount, static_cast<float>(rank));
    std::vector<float> theirs(kCount);
    onebitGroupStart();
    onebitSend(mine.data(), kCount, onebitFloat32, (rank + 1) % kRanks, nullptr, comm, nullptr);
    onebitRecv(theirs.data(), kCount, onebitFloat32, (rank + kRanks - 1) % kRanks, nullptr, comm,
               nullptr);
    ASSERT_EQ(onebitGroupEnd(), onebitSuccess) << onebitGetLastError(nullptr);
    EXPECT_THAT(theirs, Each(static_cast<float>((rank + kRanks - 1) % kRanks)));
  });
}

TEST(SendRecvTest, OneThreadMovesARingOfAllRanks) {
  CommGroup group(3);
  std::vector<std::vector<float>> mine(3, std::vector<float>(50'000));
  auto theirs = mine;
  onebitGroupStart();
  for (int rank = 0; rank < 3; ++rank) {
    const auto r = static_cast<size_t>(rank);
    mine[r].assign(50'000, static_cast<float>(rank + 1));
    onebitSend(mine[r].data(), 50'000, onebitFloat32, (rank + 1) % 3, nullptr, group.comm(rank),
               nullptr);
    onebitRecv(theirs[r].data(), 50'000, onebitFloat32, (rank + 2) % 3, nullptr, group.comm(rank),
               nullptr);
  }
  ASSERT_EQ(onebitGroupEnd(), onebitSuccess) << onebitGetLastError(nullptr);
  for (size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(theirs[rank], mine[(rank + 2) % 3]);
}

TEST(SendRecvTest, AbortEndsAPendingReceive) {
  CommGroup group(2);
  float value = 0;
  std::thread aborting([&] {
    EXPECT_TRUE(AwaitOtherThreadsAsleep());
    onebitCommAbort(group.comm(0));
  });
  const Outcome outcome = CallHere(
      [&] { return onebitRecv(&value, 1, onebitFloat32, 1, nullptr, group.comm(0), nullptr); });
  aborting.join();
  EXPECT_EQ(outcome.result, onebitAborted);
  EXPECT_THAT(outcome.text, HasSubstr("onebitCommAbort was called"));
}

TEST(SendRecvTest, BytesAreThoseOfThePayloadAndOneHeader) {
  CommGroup group(2);
  constexpr size_t kCount = 6400;
  group.Run([&](int rank) {
    const UniqueCompressor compressor = Make(group.comm(rank), kCount, onebitCodecFp4);
    std::vector<float> values(kCount, 1.5f);
    const onebitCommStats_t before = StatsOf(group.comm(rank));
    const onebitResult_t result = rank == 0 ? onebitSend(values.data(), kCount, onebitFloat32, 1,
                                                         compressor.get(), group.comm(0), nullptr)
                                            : onebitRecv(values.data(), kCount, onebitFloat32, 0,
                                                         compressor.get(), group.comm(1), nullptr);
    ASSERT_EQ(result, onebitSuccess) << onebitGetLastError(nullptr);
    const onebitCommStats_t after = StatsOf(group.comm(rank));
    const uint64_t bytes = 64 + PayloadBytes({kernels::LowBitCodec::kFp4, 64}, {kCount});
    EXPECT_EQ(after.bytes_sent - before.bytes_sent, rank == 0 ? bytes : 0);
    EXPECT_EQ(after.messages_sent - before.messages_sent, rank == 0 ? 1u : 0u);
    EXPECT_EQ(StatsOf(compressor.get()).wire_bytes, bytes);
    EXPECT_EQ(StatsOf(compressor.get()).epoch, 1u);
  });
}

TEST(SendRecvTest, ARankCopiesWhatItSendsToItself) {
  CommGroup group(2);
  group.Run([&](int rank) {
    const onebitComm_t comm = group.comm(rank);
    const std::vector<float> first(10, 1.0f);
    const std::vector<float> second(20, 2.0f);
    std::vector<float> a(10);
    std::vector<float> b(20);
    onebitGroupStart();
    onebitRecv(a.data(), 10, onebitFloat32, rank, nullptr, comm, nullptr);
    onebitSend(first.data(), 10, onebitFloat32, rank, nullptr, comm, nullptr);
    onebitSend(second.data(), 20, onebitFloat32, rank, nullptr, comm, nullptr);
    onebitRecv(b.data(), 20, onebitFloat32, rank, nullptr, comm, nullptr);
    ASSERT_EQ(onebitGroupEnd(), onebitSuccess) << onebitGetLastError(nullptr);
    EXPECT_EQ(a, first);
    EXPECT_EQ(b, second);
    onebitGroupStart();
    onebitSend(first.data(), 10, onebitFloat32, rank, nullptr, comm, nullptr);
    EXPECT_EQ(onebitGroupEnd(), onebitInvalidUsage);
    EXPECT_THAT(onebitGetLastError(nullptr), HasSubstr("with itself without a receive"));
    EXPECT_EQ(onebitSend(first.data(), 10, onebitFloat32, rank, nullptr, comm, nullptr),
              onebitInvalidUsage);
    EXPECT_THAT(onebitGetLastError(nullptr), HasSubstr("into one group"));
  });
}

// Collectives of a group are cut into messages alike, wherever the pairs stand among them.
TEST(SendRecvTest, GroupsMixThemWithCollectives) {
  CommGroup group(3);
  group.Run([&](int rank) {
    const onebitComm_t comm = group.comm(rank);
    std::vector<float> x(500, static_cast<float>(rank));
    std::vector<float> y(40, 1.0f);
    std::vector<float> moved(9, rank == 0 ? 4.0f : 0.0f);
    onebitGroupStart();
    if (rank == 0) onebitSend(moved.data(), 9, onebitFloat32, 2, nullptr, comm, nullptr);
    onebitAllReduce(x.data(), x.data(), 500, onebitFloat32, onebitSum, nullptr, comm, nullptr);
    if (rank == 2) onebitRecv(moved.data(), 9, onebitFloat32, 0, nullptr, comm, nullptr);
    onebitAllReduce(y.data(), y.data(), 40, onebitFloat32, onebitSum, nullptr, comm, nullptr);
    ASSERT_EQ(onebitGroupEnd(), onebitSuccess) << onebitGetLastError(nullptr);
    EXPECT_THAT(x, Each(3.0f));
    EXPECT_THAT(y, Each(3.0f));
    if (rank != 1) {
      EXPECT_THAT(moved, Each(4.0f));
    }
  });
}

TEST(SendRecvTest, TakesItsTurnOnAHostStream) {
  CommGroup group(2);
  group.Run([&](int rank) {
    onebitStream_t stream = nullptr;
    ASSERT_EQ(onebitStreamCreate(&stream), onebitSuccess);
    std::vector<float> x(100, static_cast<float>(rank));
    std::vector<float> y(100, -1.0f);
    onebitAllReduce(x.data(), x.data(), 100, onebitFloat32, onebitSum, nullptr, group.comm(rank),
                    stream);
    onebitGroupStart();
    onebitSend(x.data(), 100, onebitFloat32, 1 - rank, nullptr, group.comm(rank), stream);
    onebitRecv(y.data(), 100, onebitFloat32, 1 - rank, nullptr, group.comm(rank), stream);
    EXPECT_EQ(onebitGroupEnd(), onebitSuccess);
    EXPECT_EQ(onebitStreamSynchronize(stream), onebitSuccess) << onebitGetLastError(nullptr);
    EXPECT_THAT(y, Each(1.0f));
    EXPECT_EQ(onebitStreamDestroy(stream), onebitSuccess);
  });
}

TEST(SendRecvTest, ANanReachesItsBlockOrWithSignsTheWholeOutput) {
  for (const onebitCodec_t codec : {onebitCodecFp4, onebitCodecSign}) {
    CommGroup group(2);
    group.Run([&](int rank) {
      std::vector<float> values(200, rank == 0 ? 1.0f : 0.0f);
      if (rank == 0) values[70] = std::numeric_limits<float>::quiet_NaN();
      const UniqueCompressor compressor = Make(group.comm(rank), 200, codec);
      const onebitResult_t result = rank == 0
                                        ? onebitSend(values.data(), 200, onebitFloat32, 1,
                                                     compressor.get(), group.comm(0), nullptr)
                                        : onebitRecv(values.data(), 200, onebitFloat32, 0,
                                                     compressor.get(), group.comm(1), nullptr);
      ASSERT_EQ(result, onebitSuccess) << onebitGetLastError(nullptr);
      if (rank == 0) return;
      for (size_t i = 0; i < 200; ++i) {
        const bool is_lost = codec == onebitCodecSign || i / 64 == 1;
        ASSERT_EQ(std::isnan(values[i]), is_lost) << i;
      }
    });
  }
}

// The second message waits for the packet of the first one, but not for its values.
TEST(SendRecvTest, ANanReachesNoOtherMessageOfAGroup) {
  CommGroup group(2);
  group.Run([&](int rank) {
    std::vector<float> lost(200, rank == 0 ? std::numeric_limits<float>::infinity() : 0.0f);
    std::vector<float> kept(200, rank == 0 ? 1.0f : 0.0f);
    const UniqueCompressor first = Make(group.comm(rank), 200, onebitCodecSign, 1);
    const UniqueCompressor second = Make(group.comm(rank), 200, onebitCodecSign, 2);
    const auto call = [&](std::vector<float>& values, const UniqueCompressor& compressor) {
      if (rank == 0) {
        onebitSend(values.data(), 200, onebitFloat32, 1, compressor.get(), group.comm(0), nullptr);
      } else {
        onebitRecv(values.data(), 200, onebitFloat32, 0, compressor.get(), group.comm(1), nullptr);
      }
    };
    onebitGroupStart();
    call(lost, first);
    call(kept, second);
    ASSERT_EQ(onebitGroupEnd(), onebitSuccess) << onebitGetLastError(nullptr);
    EXPECT_EQ(StatsOf(first.get()).nonfinite_calls, 1u);
    EXPECT_EQ(StatsOf(second.get()).nonfinite_calls, 0u);
    EXPECT_THAT(kept, Each(1.0f));
  });
}

struct Side {
  size_t count = 500;
  onebitDataType_t type = onebitFloat32;
  onebitCodec_t codec = onebitCodecInt8;
  bool is_dense = true;
  int64_t tensor_id = 3;
};
struct Difference {
  const char* name;
  Side sender;
  Side receiver;
  const char* text;
};

class PairMismatchTest : public ::testing::TestWithParam<Difference> {};

TEST_P(PairMismatchTest, BothRanksLearnIt) {
  CommGroup group(2);
  const auto outcomes = group.Call([&](int rank) {
    const Side& side = rank == 0 ? GetParam().sender : GetParam().receiver;
    Tensor values(side.count, DataType::kF32);
    UniqueCompressor compressor;
    if (!side.is_dense) {
      compressor = Make(group.comm(rank), side.count, side.codec, side.tensor_id, side.type);
    }
    const onebitResult_t sent = rank == 0 ? onebitSend(values.data(), side.count, side.type, 1,
                                                       compressor.get(), group.comm(0), nullptr)
                                          : onebitRecv(values.data(), side.count, side.type, 0,
                                                       compressor.get(), group.comm(1), nullptr);
    // A short message leaves its sender before the receiver looks at it.
    return sent == onebitSuccess ? onebitBarrier(group.comm(rank), nullptr) : sent;
  });
  EXPECT_EQ(outcomes[1].result, onebitMismatch);
  EXPECT_THAT(outcomes[1].text, HasSubstr(GetParam().text));
  EXPECT_THAT(outcomes[0].result, AnyOf(onebitMismatch, onebitRemoteError)) << outcomes[0].text;
  EXPECT_THAT(outcomes[0].text, HasSubstr(GetParam().text));
}

INSTANTIATE_TEST_SUITE_P(
    Differences, PairMismatchTest,
    ::testing::Values(
        Difference{"Count", {}, {.count = 501}, "count 501 here, 500 there"},
        Difference{"Type", {}, {.type = onebitBfloat16}, "type bfloat16 here, float32 there"},
        Difference{"Mode", {}, {.is_dense = false}, "mode plain here, dense there"},
        Difference{"Codec",
                   {.codec = onebitCodecFp4, .is_dense = false},
                   {.is_dense = false},
                   "codec int8 here, fp4 there"},
        Difference{"TensorId",
                   {.is_dense = false},
                   {.is_dense = false, .tensor_id = 4},
                   "tensor id 4 here, 3 there"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(SendRecvRefusalTest, ArgumentsAreChecked) {
  CommGroup group(2);
  float value = 0;
  const auto send = [&](const void* buffer, size_t count, int peer) {
    return CallHere([&] {
      return onebitSend(buffer, count, onebitFloat32, peer, nullptr, group.comm(0), nullptr);
    });
  };
  EXPECT_THAT(send(&value, 1, 2).text, HasSubstr("peer is 2, but ranks are 0 to 1"));
  EXPECT_THAT(send(&value, 1, -1).text, HasSubstr("peer is -1"));
  EXPECT_THAT(send(nullptr, 1, 1).text, HasSubstr("sendbuff is NULL"));
  EXPECT_THAT(CallHere([&] {
                return onebitRecv(nullptr, 1, onebitFloat32, 1, nullptr, group.comm(0), nullptr);
              }).text,
              HasSubstr("recvbuff is NULL"));
  EXPECT_EQ(onebitSend(&value, 1, onebitFloat32, 1, nullptr, nullptr, nullptr),
            onebitInvalidArgument);
}

}  // namespace
}  // namespace onebit::testing
