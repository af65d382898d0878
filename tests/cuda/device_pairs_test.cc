// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sends and receives on device memory: they give what the same calls give on host memory, in rings,
// in groups with other calls, and for a rank with itself.
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onebit/onebit.hpp"
#include "onebit/parts.h"
#include "tests/cuda/cuda_test_memory.h"
#include "tests/cuda/device_ranks.h"
#include "tests/cuda/stream_gate.h"

namespace onebit::testing {
namespace {

using Bytes = std::vector<std::byte>;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr size_t kLong = 20'000;
constexpr int kDense = -1;
constexpr int kCodecs[] = {
    kDense,          onebitCodecSign,           onebitCodecFp4, onebitCodecInt8, onebitCodecUint8mm,
    onebitCodecInt2, onebitCodecInt8Stochastic, onebitCodecBf16};

std::string LastError() { return onebitGetLastError(nullptr); }

size_t BytesOf(onebitDataType_t type) { return type == onebitFloat32 ? 4 : 2; }

// A message of one rank to another.
struct Message {
  int from = 0;
  int to = 0;
  size_t count = 0;
  int codec = kDense;
  onebitDataType_t type = onebitFloat32;
  int32_t block = 64;
  bool has_nan = false;
  onebitMode_t mode = onebitModePlain;
  int32_t is_transactional = 1;
};

// Finite numbers of moderate size, or one NaN among them.
Bytes InputOf(const Message& message, unsigned seed) {
  std::mt19937 random(seed);
  Bytes input(message.count * BytesOf(message.type));
  for (size_t i = 0; i < message.count; ++i) {
    float value = std::ldexp(static_cast<float>(random() % 512) - 255.5f, -8);
    if (message.has_nan && i == message.count / 2) value = NAN;
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    const auto half = static_cast<uint16_t>(bits >> 16);
    if (message.type == onebitFloat32) {
      std::memcpy(&input[4 * i], &bits, 4);
    } else {
      std::memcpy(&input[2 * i], &half, 2);
    }
  }
  return input;
}

// Memory of a device or of the host.
class Block {
 public:
  Block(bool is_on_device, const Bytes& content) : host_(content) {
    host_.reserve(1);  // so that it has an address
    if (is_on_device) device_ = std::make_unique<CudaBuffer>(content);
  }
  void* data() { return device_ != nullptr ? device_->data() : host_.data(); }
  Bytes Read() const { return device_ != nullptr ? device_->Read() : host_; }

 private:
  Bytes host_;
  std::unique_ptr<CudaBuffer> device_;
};

UniqueCompressor NewCompressor(onebitComm_t comm, const Message& message, bool is_on_device,
                               int64_t tensor_id) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.collective = onebitCollectiveSendRecv;
  config.mode = message.mode;
  config.transactional = message.is_transactional;
  config.codec = static_cast<onebitCodec_t>(message.codec);
  if (message.codec != onebitCodecBf16) config.block = message.block;
  config.tensorId = tensor_id;
  if (is_on_device) config.memory = onebitMemoryDevice;
  onebitCompressor_t compressor = nullptr;
  if (onebitCompressorCreate(&compressor, comm, message.count, message.type, &config) !=
      onebitSuccess) {
    throw std::runtime_error(LastError());
  }
  return UniqueCompressor(compressor);
}

// The part of one rank in an exchange of messages.
class Exchange {
 public:
  Exchange(onebitComm_t comm, int rank, const std::vector<Message>& messages, bool is_on_device)
      : comm_(comm), rank_(rank), messages_(messages) {
    for (size_t i = 0; i < messages.size(); ++i) {
      const Message& message = messages[i];
      const bool is_here = message.from == rank || message.to == rank;
      Bytes input = message.from == rank ? InputOf(message, static_cast<unsigned>(i)) : Bytes();
      inputs_.emplace_back(is_on_device, input);
      const Bytes former(message.to == rank ? message.count * BytesOf(message.type) : 0,
                         std::byte{0x5a});
      outputs_.emplace_back(is_on_device, former);
      // A rank needs one for each of its calls with itself.
      const auto id = static_cast<int64_t>(2 * i);
      const bool is_compressed = is_here && message.codec != kDense;
      for (const bool is_receive : {false, true}) {
        const bool is_used = rank == (is_receive ? message.to : message.from);
        const bool is_second = is_receive && message.from == message.to;
        auto& list = is_receive ? receivers_ : senders_;
        list.push_back(is_compressed && is_used
                           ? NewCompressor(comm, message, is_on_device, id + (is_second ? 1 : 0))
                           : UniqueCompressor());
      }
    }
  }

  void Make(onebitStream_t stream) {
    for (size_t i = 0; i < messages_.size(); ++i) {
      const Message& message = messages_[i];
      if (message.from == rank_) {
        EXPECT_EQ(onebitSend(inputs_[i].data(), message.count, message.type, message.to,
                             senders_[i].get(), comm_, stream),
                  onebitSuccess)
            << LastError();
      }
      if (message.to == rank_) {
        EXPECT_EQ(onebitRecv(outputs_[i].data(), message.count, message.type, message.from,
                             receivers_[i].get(), comm_, stream),
                  onebitSuccess)
            << LastError();
      }
    }
  }
  void MakeGroup(onebitStream_t stream) {
    EXPECT_EQ(onebitGroupStart(), onebitSuccess);
    Make(stream);
    EXPECT_EQ(onebitGroupEnd(), onebitSuccess) << LastError();
  }
  std::vector<Bytes> Outputs() const {
    std::vector<Bytes> outputs;
    for (const Block& output : outputs_) outputs.push_back(output.Read());
    return outputs;
  }
  onebitCompressor_t compressor(size_t message, bool is_receiver) const {
    return (is_receiver ? receivers_ : senders_)[message].get();
  }
  onebitCompressorStats_t StatsOf(size_t message, bool is_receiver) const {
    onebitCompressorStats_t stats{};
    stats.size = sizeof(stats);
    EXPECT_EQ(onebitCompressorGetStats(compressor(message, is_receiver), &stats), onebitSuccess);
    return stats;
  }

 private:
  const onebitComm_t comm_;
  const int rank_;
  const std::vector<Message>& messages_;
  std::vector<Block> inputs_, outputs_;
  std::vector<UniqueCompressor> senders_, receivers_;
};

// The outputs of each rank after `calls` groups of these messages on host memory.
std::vector<std::vector<Bytes>> OnHost(int ranks, const std::vector<Message>& messages, int calls) {
  std::vector<std::vector<Bytes>> outputs(static_cast<size_t>(ranks));
  RunDeviceRanks(Over::kLocal, ranks, [&](onebitComm_t comm, int rank) {
    Exchange exchange(comm, rank, messages, false);
    for (int call = 0; call < calls; ++call) exchange.MakeGroup(nullptr);
    outputs[static_cast<size_t>(rank)] = exchange.Outputs();
  });
  return outputs;
}

// The messages of a ring, one from each rank to the next.
std::vector<Message> RingOf(int ranks, Message message) {
  std::vector<Message> ring;
  for (int rank = 0; rank < ranks; ++rank) {
    message.from = rank;
    message.to = (rank + 1) % ranks;
    ring.push_back(message);
  }
  return ring;
}

class DevicePairsTest : public ::testing::TestWithParam<Over> {
 protected:
  static void Run(int ranks, const std::function<void(onebitComm_t, int)>& body) {
    RunDeviceRanks(GetParam(), ranks, body);
  }
  // Makes groups of these messages on devices, and compares with the same on host memory.
  static void ExpectAsOnHost(int ranks, const std::vector<Message>& messages, int calls = 2) {
    const auto expected = OnHost(ranks, messages, calls);
    Run(ranks, [&](onebitComm_t comm, int rank) {
      const CudaStream stream;
      Exchange exchange(comm, rank, messages, true);
      for (int call = 0; call < calls; ++call) exchange.MakeGroup(stream.handle());
      stream.Synchronize();
      EXPECT_EQ(exchange.Outputs(), expected[static_cast<size_t>(rank)]) << "rank " << rank;
    });
  }
};

TEST_P(DevicePairsTest, RingsOfEveryCodecGiveWhatTheyGiveOnTheHost) {
  for (const int codec : kCodecs) {
    for (const onebitDataType_t type : {onebitFloat32, onebitFloat16, onebitBfloat16}) {
      SCOPED_TRACE(codec);
      ExpectAsOnHost(3, RingOf(3, {.count = 1003, .codec = codec, .type = type}));
    }
  }
}

TEST_P(DevicePairsTest, SizesFromNothingToManySlots) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{65}, size_t{3'000'000}}) {
    SCOPED_TRACE(count);
    ExpectAsOnHost(2, RingOf(2, {.count = count}), 1);
    ExpectAsOnHost(2, RingOf(2, {.count = count, .codec = onebitCodecInt8}), 1);
    ExpectAsOnHost(
        2, RingOf(2, {.count = count, .codec = onebitCodecSign, .block = ONEBIT_BLOCK_TENSOR}), 1);
  }
}

TEST_P(DevicePairsTest, MessagesOfManyPairsGoTogether) {
  std::mt19937 random(5);
  std::vector<Message> messages;
  for (int i = 0; i < 40; ++i) {
    messages.push_back({.from = static_cast<int>(random() % 3),
                        .to = static_cast<int>(random() % 3),
                        .count = random() % 5 == 0 ? random() % 3 : random() % 5000,
                        .codec = kCodecs[random() % std::size(kCodecs)],
                        .type = random() % 2 == 0 ? onebitFloat32 : onebitBfloat16});
  }
  ExpectAsOnHost(3, messages, 3);
}

TEST_P(DevicePairsTest, ARankCopiesWhatItSendsToItself) {
  for (const int ranks : {1, 2}) {
    for (const int codec : {kDense, static_cast<int>(onebitCodecFp4)}) {
      ExpectAsOnHost(ranks, {{.count = 100, .codec = codec}, {.count = 3, .codec = codec}});
    }
  }
}

TEST_P(DevicePairsTest, ANanReachesItsBlockOrWithSignsTheWholeOutput) {
  for (const int codec : {static_cast<int>(onebitCodecFp4), static_cast<int>(onebitCodecSign)}) {
    const std::vector<Message> messages = {
        {.from = 0, .to = 1, .count = 400, .codec = codec, .has_nan = true},
        {.from = 0, .to = 1, .count = 200, .codec = codec}};
    ExpectAsOnHost(2, messages);
    const bool is_lost = codec == onebitCodecSign;
    Run(2, [&](onebitComm_t comm, int rank) {
      const CudaStream stream;
      Exchange exchange(comm, rank, messages, true);
      exchange.MakeGroup(stream.handle());
      stream.Synchronize();
      EXPECT_EQ(exchange.StatsOf(0, rank == 1).epoch, is_lost ? 0u : 1u);
      EXPECT_EQ(exchange.StatsOf(0, rank == 1).nonfinite_calls, is_lost ? 1u : 0u);
      EXPECT_EQ(exchange.StatsOf(1, rank == 1).epoch, 1u);
    });
  }
}

// 20 calls: one of them compares checksums over host transports.
TEST_P(DevicePairsTest, EstimatesAreThoseOfTheHost) {
  for (const int codec : kCodecs) {
    if (codec == kDense || codec == onebitCodecInt8Stochastic) continue;
    SCOPED_TRACE(codec);
    std::vector<Message> messages =
        RingOf(2, {.count = 1003, .codec = codec, .mode = onebitModeEf});
    messages.push_back({.from = 0,
                        .to = 1,
                        .count = 700,
                        .codec = codec,
                        .type = onebitFloat16,
                        .mode = onebitModeEf,
                        .is_transactional = 0});
    messages.push_back({.from = 1, .to = 0, .count = 90, .codec = codec});
    messages.push_back({.from = 1, .to = 1, .count = 90, .codec = codec, .mode = onebitModeEf});
    messages.push_back(
        {.from = 0, .to = 1, .count = 90, .codec = codec, .has_nan = true, .mode = onebitModeEf});
    ExpectAsOnHost(2, messages, 20);
  }
  ExpectAsOnHost(2,
                 RingOf(2, {.count = 5000,
                            .codec = onebitCodecSign,
                            .block = ONEBIT_BLOCK_TENSOR,
                            .mode = onebitModeEf}),
                 3);
}

TEST_P(DevicePairsTest, ANanChangesNoEstimate) {
  const std::vector<Message> messages = {
      {.from = 0, .to = 1, .count = 400, .codec = onebitCodecFp4, .mode = onebitModeEf}};
  std::vector<Message> bad = messages;
  bad[0].has_nan = true;
  const auto expected = OnHost(2, messages, 3);
  Run(2, [&](onebitComm_t comm, int rank) {
    const CudaStream stream;
    Exchange exchange(comm, rank, messages, true);
    exchange.MakeGroup(stream.handle());
    const Bytes nan = InputOf(bad[0], 0);
    const CudaBuffer input(nan);
    CudaBuffer output(nan);
    for (int call = 0; call < 2; ++call) {
      const onebitResult_t result =
          rank == 0 ? onebitSend(input.data(), 400, onebitFloat32, 1, exchange.compressor(0, false),
                                 comm, stream.handle())
                    : onebitRecv(output.data(), 400, onebitFloat32, 0, exchange.compressor(0, true),
                                 comm, stream.handle());
      ASSERT_EQ(result, onebitSuccess) << LastError();
    }
    exchange.MakeGroup(stream.handle());
    exchange.MakeGroup(stream.handle());
    stream.Synchronize();
    EXPECT_EQ(exchange.Outputs(), expected[static_cast<size_t>(rank)]);
    if (rank == 1) {
      std::vector<float> values(400);
      std::memcpy(values.data(), output.Read().data(), 1600);
      for (const float value : values) ASSERT_TRUE(std::isnan(value));
    }
    EXPECT_EQ(exchange.StatsOf(0, rank == 1).nonfinite_calls, 2u);
    EXPECT_EQ(exchange.StatsOf(0, rank == 1).epoch, 3u);
  });
}

TEST_P(DevicePairsTest, CallsOutsideOfGroupsKeepTheirOrder) {
  const std::vector<Message> messages = {
      {.from = 0, .to = 1, .count = 5000, .codec = onebitCodecInt8},
      {.from = 1, .to = 0, .count = 7},
      {.from = 0, .to = 1, .count = 9000},
      {.from = 0, .to = 1, .count = 0},
      {.from = 1, .to = 0, .count = 300, .codec = onebitCodecInt2}};
  const auto expected = OnHost(2, messages, 1);
  Run(2, [&](onebitComm_t comm, int rank) {
    const CudaStream stream;
    Exchange exchange(comm, rank, messages, true);
    exchange.Make(stream.handle());
    stream.Synchronize();
    EXPECT_EQ(exchange.Outputs(), expected[static_cast<size_t>(rank)]);
  });
}

// Calls on different streams are executed one after the other.
TEST_P(DevicePairsTest, TakeTheirTurnOnSeveralStreams) {
  const std::vector<Message> messages = RingOf(2, {.count = 5000, .codec = onebitCodecFp4});
  const auto expected = OnHost(2, messages, 1);
  Run(2, [&](onebitComm_t comm, int rank) {
    const CudaStream first;
    const CudaStream second;
    CudaBuffer sum(4 * 1000);
    Exchange exchange(comm, rank, messages, true);
    StreamGate gate(first);
    exchange.MakeGroup(first.handle());
    ASSERT_EQ(onebitAllReduce(sum.data(), sum.data(), 1000, onebitFloat32, onebitSum, nullptr, comm,
                              second.handle()),
              onebitSuccess)
        << LastError();
    EXPECT_FALSE(second.IsIdle());
    gate.Open();
    second.Synchronize();  // `first` may still tell the host that its calls have ended
    EXPECT_EQ(exchange.Outputs(), expected[static_cast<size_t>(rank)]);
  });
}

TEST_P(DevicePairsTest, GroupsMixThemWithCollectives) {
  const std::vector<Message> messages = {
      {.from = 0, .to = 2, .count = 900, .codec = onebitCodecInt8},
      {.from = 2, .to = 2, .count = 5}};
  const auto expected = OnHost(3, messages, 1);
  Run(3, [&](onebitComm_t comm, int rank) {
    const CudaStream stream;
    const std::vector<float> ones(500, 1.0f);
    Bytes bytes(2000);
    std::memcpy(bytes.data(), ones.data(), bytes.size());
    CudaBuffer x(bytes);
    Exchange exchange(comm, rank, messages, true);
    ASSERT_EQ(onebitGroupStart(), onebitSuccess);
    exchange.Make(stream.handle());
    ASSERT_EQ(onebitAllReduce(x.data(), x.data(), 500, onebitFloat32, onebitSum, nullptr, comm,
                              stream.handle()),
              onebitSuccess);
    ASSERT_EQ(onebitGroupEnd(), onebitSuccess) << LastError();
    stream.Synchronize();
    EXPECT_EQ(exchange.Outputs(), expected[static_cast<size_t>(rank)]);
    std::vector<float> sums(500);
    std::memcpy(sums.data(), x.Read().data(), 2000);
    EXPECT_THAT(sums, Each(3.0f));
  });
}

// Collectives are matched among all ranks and pairs by their two ranks, in whatever groups they
// are.
TEST_P(DevicePairsTest, RanksMayGroupThemDifferently) {
  const std::vector<Message> messages = {{.from = 0, .to = 1, .count = 70, .codec = onebitCodecFp4},
                                         {.from = 0, .to = 1, .count = 9000}};
  const auto expected = OnHost(2, messages, 1);
  Run(2, [&](onebitComm_t comm, int rank) {
    const CudaStream stream;
    const CudaBuffer x(4 * kLong);
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.memory = onebitMemoryDevice;
    config.tensorId = 77;
    onebitCompressor_t created = nullptr;
    ASSERT_EQ(onebitCompressorCreate(&created, comm, kLong, onebitFloat32, &config), onebitSuccess);
    const UniqueCompressor compressor(created);
    Exchange exchange(comm, rank, messages, true);
    if (rank == 0) onebitGroupStart();
    ASSERT_EQ(onebitAllReduce(x.data(), x.data(), kLong, onebitFloat32, onebitSum, created, comm,
                              stream.handle()),
              onebitSuccess)
        << LastError();
    exchange.Make(stream.handle());
    if (rank == 0) {
      ASSERT_EQ(onebitGroupEnd(), onebitSuccess) << LastError();
    }
    stream.Synchronize();
    EXPECT_EQ(exchange.Outputs(), expected[static_cast<size_t>(rank)]);
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, DevicePairsTest, ::testing::Values(Over::kLocal, Over::kNccl),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

// Over NCCL ranks join from threads of their own.
TEST(LocalPairsTest, OneThreadMovesARingOfAllRanks) {
  const std::vector<Message> messages = RingOf(3, {.count = 30'000, .codec = onebitCodecInt8});
  const auto expected = OnHost(3, messages, 1);
  UseCudaDevice(0);
  const int devices[] = {0, 0, 0};  // a group has one stream
  onebitComm_t comms[3];
  ASSERT_EQ(onebitCommInitAll(comms, 3, devices), onebitSuccess) << LastError();
  const CudaStream stream;
  std::vector<std::unique_ptr<Exchange>> exchanges;
  for (int rank = 0; rank < 3; ++rank) {
    exchanges.push_back(std::make_unique<Exchange>(comms[rank], rank, messages, true));
  }
  ASSERT_EQ(onebitGroupStart(), onebitSuccess);
  for (int rank = 0; rank < 3; ++rank) {
    exchanges[static_cast<size_t>(rank)]->Make(stream.handle());
  }
  ASSERT_EQ(onebitGroupEnd(), onebitSuccess) << LastError();
  stream.Synchronize();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(exchanges[static_cast<size_t>(rank)]->Outputs(), expected[static_cast<size_t>(rank)]);
  }
  exchanges.clear();
  for (const onebitComm_t comm : comms) onebitCommDestroy(comm);
}

// A message does not show in which memory it began.
TEST(DeviceAndHostPairsTest, OneSideMayBeOnTheHost) {
  for (const int codec : kCodecs) {
    SCOPED_TRACE(codec);
    const std::vector<Message> messages = RingOf(2, {.count = 3'000, .codec = codec});
    const auto expected = OnHost(2, messages, 1);
    RunDeviceRanks(Over::kLocal, 2, [&](onebitComm_t comm, int rank) {
      const CudaStream stream;
      Exchange exchange(comm, rank, messages, rank == 0);
      exchange.MakeGroup(rank == 0 ? stream.handle() : nullptr);
      stream.Synchronize();
      EXPECT_EQ(exchange.Outputs(), expected[static_cast<size_t>(rank)]);
    });
  }
}

TEST(DeviceAndHostPairsTest, GraphsCannotHoldThem) {
  RunDeviceRanks(Over::kLocal, 2, [&](onebitComm_t comm, int rank) {
    const CudaStream stream;
    const CudaBuffer buffer(40);
    CudaGraph::Begin(stream);
    EXPECT_EQ(
        onebitSend(buffer.data(), 10, onebitFloat32, 1 - rank, nullptr, comm, stream.handle()),
        onebitInvalidUsage);
    EXPECT_THAT(LastError(), HasSubstr("use transport nccl"));
    const CudaGraph graph(stream);
  });
}

// Draws depend on the calls before, and headers on the messages before: both are in device memory.
TEST(NcclPairsTest, GraphsReplayThem) {
  std::vector<Message> messages = RingOf(3, {.count = 1003, .codec = onebitCodecInt8Stochastic});
  for (const int codec : {static_cast<int>(onebitCodecSign), kDense}) {
    for (const Message& message : RingOf(3, {.count = 2000, .codec = codec})) {
      messages.push_back(message);
      messages.push_back({.from = message.to, .to = message.from, .count = 500, .codec = codec});
    }
  }
  for (const Message& message : RingOf(3, {.count = 700, .codec = onebitCodecFp4})) {
    messages.push_back(message);
    messages.back().mode = onebitModeEf;
  }
  constexpr int kReplays = 3;
  const auto expected = OnHost(3, messages, 1 + kReplays);
  RunDeviceRanks(Over::kNccl, 3, [&](onebitComm_t comm, int rank) {
    const CudaStream stream;
    Exchange exchange(comm, rank, messages, true);
    exchange.MakeGroup(stream.handle());
    CudaGraph::Begin(stream);
    exchange.MakeGroup(stream.handle());
    const CudaGraph graph(stream);
    for (int i = 0; i < kReplays; ++i) graph.Launch(stream);
    stream.Synchronize();
    EXPECT_EQ(exchange.Outputs(), expected[static_cast<size_t>(rank)]);
    EXPECT_EQ(onebitBarrier(comm, stream.handle()), onebitSuccess) << LastError();
    stream.Synchronize();
  });
}

TEST(NcclPairsTest, DenseCallsOnHostMemoryBlock) {
  const std::vector<Message> messages = {{.from = 0, .to = 1, .count = 700},
                                         {.from = 1, .to = 0, .count = 1000},
                                         {.from = 1, .to = 1, .count = 30}};
  const auto expected = OnHost(2, messages, 1);
  RunDeviceRanks(Over::kNccl, 2, [&](onebitComm_t comm, int rank) {
    Exchange exchange(comm, rank, messages, false);
    exchange.MakeGroup(nullptr);
    EXPECT_EQ(exchange.Outputs(), expected[static_cast<size_t>(rank)]);
  });
}

// Packets of one length tell the receiver what they are.
TEST(NcclPairsTest, PacketsOfAnotherCallAreAMismatch) {
  RunDeviceRanks(Over::kNccl, 2, [&](onebitComm_t comm, int rank) {
    const CudaStream stream;
    const CudaBuffer buffer(4 * kLong);
    const Message message = {.count = kLong, .codec = onebitCodecInt8};
    const UniqueCompressor compressor = NewCompressor(comm, message, true, rank);
    if (rank == 0) {
      ASSERT_EQ(onebitSend(buffer.data(), kLong, onebitFloat32, 1, compressor.get(), comm,
                           stream.handle()),
                onebitSuccess);
    } else {
      ASSERT_EQ(onebitRecv(buffer.data(), kLong, onebitFloat32, 0, compressor.get(), comm,
                           stream.handle()),
                onebitSuccess);
    }
    const Outcome error = AwaitError(comm);
    EXPECT_THAT(error.result, AnyOf(onebitMismatch, onebitRemoteError));
    EXPECT_THAT(error.text, HasSubstr("tensor id 1 here, 0 there"));
    stream.Synchronize();
  });
}

}  // namespace
}  // namespace onebit::testing
