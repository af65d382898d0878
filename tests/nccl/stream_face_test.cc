// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The stream face of transport nccl over the stand-ins: messages, groups, allreduces, graphs.
#include <gtest/gtest.h>

#include <numeric>

#include "kernels/reference/float_formats.h"
#include "tests/nccl/modes.h"
#include "tests/nccl/ranks.h"
#include "tests/support/nccl/nccl_stand_in.h"

namespace onebit::testing {
namespace {

class StreamFaceTest : public ::testing::TestWithParam<Mode> {
 protected:
  const Plugin plugin_{GetParam().settings};
};

INSTANTIATE_TEST_SUITE_P(Modes, StreamFaceTest, ::testing::ValuesIn(kModes), NameOf);

std::vector<uint8_t> Pattern(size_t bytes, int seed) {
  std::vector<uint8_t> pattern(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    pattern[i] = static_cast<uint8_t>(i * 31 + static_cast<size_t>(seed) * 17);
  }
  return pattern;
}

TEST_P(StreamFaceTest, CarriesEveryMessageToItsPlace) {
  for (const int ranks : {1, 2, 5}) {
    RunRanks(plugin_, ranks, [&](Rank& self) {
      for (const size_t bytes : {size_t{1}, size_t{63}, size_t{4097}, size_t{100000}}) {
        const size_t all = bytes * static_cast<size_t>(ranks);
        Buffer out(all);
        Buffer in(all);
        std::vector<uint8_t> expected;
        for (int peer = 0; peer < ranks; ++peer) {
          const size_t offset = bytes * static_cast<size_t>(peer);
          Buffer::Write(out.at(offset), Pattern(bytes, self.rank * ranks + peer), *self.stream);
          const auto from_peer = Pattern(bytes, peer * ranks + self.rank);
          expected.insert(expected.end(), from_peer.begin(), from_peer.end());
        }
        EXPECT_EQ(self.endpoint->GroupBegin(), onebitSuccess);
        for (int peer = 0; peer < ranks; ++peer) {
          const size_t offset = bytes * static_cast<size_t>(peer);
          EXPECT_EQ(self.endpoint->Receive(peer, in.at(offset), bytes, *self.stream),
                    onebitSuccess);
          EXPECT_EQ(self.endpoint->Send(peer, out.at(offset), bytes, *self.stream), onebitSuccess);
        }
        EXPECT_EQ(self.endpoint->GroupEnd(), onebitSuccess) << Plugin::warnings();
        self.stream->Await();
        EXPECT_EQ(in.Read(*self.stream), expected);
      }
    });
  }
}

TEST_P(StreamFaceTest, MatchesMessagesOfTwoRanksInTheirOrder) {
  RunRanks(plugin_, 2, [&](Rank& self) {
    constexpr size_t kBytes = 100;
    constexpr size_t kMessages = 7;
    Buffer buffer(kBytes * kMessages);
    const int peer = 1 - self.rank;
    if (self.rank == 0) buffer.Set(Pattern(kBytes * kMessages, 3), *self.stream);
    EXPECT_EQ(self.endpoint->GroupBegin(), onebitSuccess);
    for (size_t i = 0; i < kMessages; ++i) {
      void* at = buffer.at(i * kBytes);
      const auto result = self.rank == 0 ? self.endpoint->Send(peer, at, kBytes, *self.stream)
                                         : self.endpoint->Receive(peer, at, kBytes, *self.stream);
      EXPECT_EQ(result, onebitSuccess);
    }
    EXPECT_EQ(self.endpoint->GroupEnd(), onebitSuccess);
    self.stream->Await();
    EXPECT_EQ(buffer.Read(*self.stream), Pattern(kBytes * kMessages, 3));
  });
}

TEST_P(StreamFaceTest, IsInTheOrderOfTheStream) {
  RunRanks(plugin_, 2, [&](Rank& self) {
    constexpr size_t kBytes = 1000;
    Buffer out(kBytes);
    Buffer in(kBytes);
    Buffer copy(kBytes);
    const int peer = 1 - self.rank;
    for (int round = 0; round < 5; ++round) {
      out.Set(Pattern(kBytes, 2 * round + self.rank), *self.stream);
      EXPECT_EQ(self.endpoint->GroupBegin(), onebitSuccess);
      EXPECT_EQ(self.endpoint->Send(peer, out.at(0), kBytes, *self.stream), onebitSuccess);
      EXPECT_EQ(self.endpoint->Receive(peer, in.at(0), kBytes, *self.stream), onebitSuccess);
      EXPECT_EQ(self.endpoint->GroupEnd(), onebitSuccess);
      // Without waiting for the device: later work on the stream follows the messages.
      EXPECT_EQ(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(copy.at(0)),
                              reinterpret_cast<CUdeviceptr>(in.at(0)), kBytes, *self.stream),
                CUDA_SUCCESS);
      self.stream->Await();
      EXPECT_EQ(copy.Read(*self.stream), Pattern(kBytes, 2 * round + peer));
    }
  });
}

TEST_P(StreamFaceTest, SendsNothingForMessagesWithoutBytes) {
  const Counts before = Counts::Get(GetParam());
  RunRanks(plugin_, 2, [&](Rank& self) {
    EXPECT_EQ(self.endpoint->GroupBegin(), onebitSuccess);
    EXPECT_EQ(self.endpoint->Send(1 - self.rank, nullptr, 0, *self.stream), onebitSuccess);
    EXPECT_EQ(self.endpoint->Receive(1 - self.rank, nullptr, 0, *self.stream), onebitSuccess);
    EXPECT_EQ(self.endpoint->GroupEnd(), onebitSuccess);
    EXPECT_EQ(self.endpoint->AllReduce(nullptr, nullptr, 0, onebitFloat32, onebitSum, *self.stream),
              onebitSuccess);
    self.stream->Await();
  });
  const Counts after = Counts::Get(GetParam());
  EXPECT_EQ(after.sends, before.sends);
  EXPECT_EQ(after.all_reduces, before.all_reduces);
}

TEST_P(StreamFaceTest, CountsWhatItSends) {
  RunRanks(plugin_, 2, [&](Rank& self) {
    Buffer buffer(300);
    EXPECT_EQ(self.endpoint->GroupBegin(), onebitSuccess);
    for (const size_t bytes : {size_t{100}, size_t{50}, size_t{30}}) {
      const int sender = bytes == 30 ? 1 : 0;
      EXPECT_EQ(self.rank == sender
                    ? self.endpoint->Send(1 - sender, buffer.at(0), bytes, *self.stream)
                    : self.endpoint->Receive(sender, buffer.at(100 + bytes), bytes, *self.stream),
                onebitSuccess);
    }
    EXPECT_EQ(self.endpoint->GroupEnd(), onebitSuccess);
    self.stream->Await();
    uint64_t bytes = 0;
    uint64_t messages = 0;
    EXPECT_EQ(Endpoint::table().getCounters(self.endpoint->comm(), &bytes, &messages),
              onebitSuccess);
    EXPECT_EQ(bytes, self.rank == 0 ? 150u : 30u);
    EXPECT_EQ(messages, self.rank == 0 ? 2u : 1u);
  });
}

TEST_P(StreamFaceTest, AddsUpEveryType) {
  using namespace kernels::reference;
  constexpr int kRanks = 3;
  constexpr size_t kCount = 1001;
  RunRanks(plugin_, kRanks, [&](Rank& self) {
    std::vector<float> input(kCount);
    std::vector<float> sum(kCount);
    for (size_t i = 0; i < kCount; ++i) {
      for (int rank = 0; rank < kRanks; ++rank) {
        const float value = static_cast<float>(i % 8) * 3.0f + static_cast<float>(3 * rank);
        if (rank == self.rank) input[i] = value;
        sum[i] += value;
      }
    }
    for (const onebitRedOp_t op : {onebitSum, onebitAvg}) {
      std::vector<float> expected = sum;
      if (op == onebitAvg) {
        for (float& value : expected) value /= kRanks;
      }
      Buffer wide(kCount * sizeof(float));
      wide.Set(input, *self.stream);
      EXPECT_EQ(
          self.endpoint->AllReduce(wide.at(0), wide.at(0), kCount, onebitFloat32, op, *self.stream),
          onebitSuccess);
      self.stream->Await();
      EXPECT_EQ(wide.Read<float>(*self.stream), expected);
      for (const onebitDataType_t type : {onebitFloat16, onebitBfloat16}) {
        std::vector<uint16_t> narrow(kCount);
        std::vector<uint16_t> narrow_expected(kCount);
        for (size_t i = 0; i < kCount; ++i) {
          const bool is_fp16 = type == onebitFloat16;
          narrow[i] = is_fp16 ? Fp16OfFloat(input[i]) : Bf16OfFloat(input[i]);
          narrow_expected[i] = is_fp16 ? Fp16OfFloat(expected[i]) : Bf16OfFloat(expected[i]);
        }
        Buffer in(kCount * 2);
        Buffer out(kCount * 2);
        in.Set(narrow, *self.stream);
        EXPECT_EQ(self.endpoint->AllReduce(in.at(0), out.at(0), kCount, type, op, *self.stream),
                  onebitSuccess);
        self.stream->Await();
        EXPECT_EQ(out.Read<uint16_t>(*self.stream), narrow_expected);
      }
    }
  });
}

TEST_P(StreamFaceTest, PassesEveryTypeAndReductionOn) {
  const auto check = [&]<typename Element>(Element small, Element large, onebitDataType_t type) {
    RunRanks(plugin_, 2, [&](Rank& self) {
      const auto reduced = [&](onebitRedOp_t op) {
        Buffer buffer(sizeof(Element));
        buffer.Set(std::vector<Element>(1, self.rank == 0 ? small : large), *self.stream);
        EXPECT_EQ(self.endpoint->AllReduce(buffer.at(0), buffer.at(0), 1, type, op, *self.stream),
                  onebitSuccess);
        self.stream->Await();
        return buffer.Read<Element>(*self.stream)[0];
      };
      EXPECT_EQ(reduced(onebitMax), large) << "type " << type;
      EXPECT_EQ(reduced(onebitMin), small) << "type " << type;
      EXPECT_EQ(reduced(onebitSum), static_cast<Element>(small + large)) << "type " << type;
      EXPECT_EQ(reduced(onebitAvg), static_cast<Element>((small + large) / 2)) << "type " << type;
    });
  };
  check(uint8_t{3}, uint8_t{200}, onebitUint8);
  check(int32_t{-70'000}, int32_t{11}, onebitInt32);
  check(int64_t{-1} << 40, int64_t{7}, onebitInt64);
  check(-0.25, 1e300, onebitFloat64);
  check(-2.5f, 3.0f, onebitFloat32);
}

TEST_P(StreamFaceTest, MakesTheOtherCollectives) {
  constexpr int kRanks = 3;
  constexpr size_t kPart = 1000;
  constexpr size_t kWhole = kPart * kRanks;
  RunRanks(plugin_, kRanks, [&](Rank& self) {
    const auto value = [](int rank, size_t i) {
      return static_cast<float>(i % 16) + static_cast<float>(100 * rank);
    };
    std::vector<float> mine(kWhole);
    for (size_t i = 0; i < kWhole; ++i) mine[i] = value(self.rank, i);
    const size_t begin = static_cast<size_t>(self.rank) * kPart;
    std::vector<float> sum(kPart);
    std::vector<float> gathered;
    for (int rank = 0; rank < kRanks; ++rank) {
      for (size_t i = 0; i < kPart; ++i) {
        sum[i] += value(rank, begin + i);
        gathered.push_back(value(rank, i));
      }
    }
    Buffer in(kWhole * sizeof(float));
    in.Set(mine, *self.stream);
    const auto make = [&](onebitTransportCollective_t collective, const void* send, size_t count) {
      Buffer out(kWhole * sizeof(float));
      EXPECT_EQ(self.endpoint->Collective({.collective = collective,
                                           .send = send,
                                           .recv = out.at(0),
                                           .count = count,
                                           .datatype = onebitFloat32,
                                           .op = onebitSum,
                                           .root = 2},
                                          *self.stream),
                onebitSuccess)
          << Plugin::warnings();
      self.stream->Await();
      return out.Read<float>(*self.stream);
    };
    std::vector<float> found = make(onebitTransportReduceScatter, in.at(0), kPart);
    found.resize(kPart);
    EXPECT_EQ(found, sum);
    EXPECT_EQ(make(onebitTransportAllGather, in.at(0), kPart), gathered);
    const void* const root_input = self.rank == 2 ? in.at(0) : nullptr;
    found = make(onebitTransportBroadcast, root_input, kWhole);
    for (size_t i = 0; i < kWhole; ++i) EXPECT_EQ(found[i], value(2, i)) << i;
  });
}

TEST_P(StreamFaceTest, IsCapturedAndReplayed) {
  RunRanks(plugin_, 2, [&](Rank& self) {
    constexpr size_t kCount = 256;
    constexpr size_t kBytes = kCount * sizeof(float);
    Buffer out(kBytes);
    Buffer in(kBytes);
    Buffer sum(kBytes);
    const int peer = 1 - self.rank;
    const Graph graph(*self.stream, [&] {
      EXPECT_EQ(self.endpoint->GroupBegin(), onebitSuccess);
      EXPECT_EQ(self.endpoint->Send(peer, out.at(0), kBytes, *self.stream), onebitSuccess);
      EXPECT_EQ(self.endpoint->Receive(peer, in.at(0), kBytes, *self.stream), onebitSuccess);
      EXPECT_EQ(self.endpoint->GroupEnd(), onebitSuccess) << Plugin::warnings();
      EXPECT_EQ(self.endpoint->AllReduce(in.at(0), sum.at(0), kCount, onebitFloat32, onebitSum,
                                         *self.stream),
                onebitSuccess)
          << Plugin::warnings();
    });
    for (int round = 0; round < 4; ++round) {
      const auto value = [&](int rank) { return static_cast<float>(10 * round + rank); };
      out.Set(std::vector<float>(kCount, value(self.rank)), *self.stream);
      graph.Launch(*self.stream);
      self.stream->Await();
      EXPECT_EQ(in.Read<float>(*self.stream), std::vector<float>(kCount, value(peer)));
      EXPECT_EQ(sum.Read<float>(*self.stream), std::vector<float>(kCount, value(0) + value(1)));
    }
    self.meet();
  });
}

TEST_P(StreamFaceTest, KeepsCommunicatorsApart) {
  ASSERT_EQ(plugin_.start_result(), onebitSuccess);
  constexpr int kRanks = 2;
  AddressExchange exchange(kRanks);
  RunThreads(kRanks, [&](int rank) {
    const Stream stream;
    Endpoint endpoints[3];
    uint64_t comm_id = 100;
    for (Endpoint& endpoint : endpoints) {
      EXPECT_EQ(endpoint.Open(plugin_, rank, kRanks, comm_id++), onebitSuccess);
      EXPECT_EQ(endpoint.Connect(exchange.Exchange(rank, endpoint.Address())), onebitSuccess);
      exchange.Wait();
    }
    Buffer out(3 * 64);
    Buffer in(3 * 64);
    out.Set(Pattern(3 * 64, rank), stream);
    // Messages of three communicators, of which one is aborted and the others continue.
    for (size_t i = 0; i < 3; ++i) {
      if (i == 1) {
        EXPECT_EQ(endpoints[i].Abort(), onebitSuccess);
        continue;
      }
      EXPECT_EQ(endpoints[i].GroupBegin(), onebitSuccess);
      EXPECT_EQ(endpoints[i].Send(1 - rank, out.at(i * 64), 64, stream), onebitSuccess);
      EXPECT_EQ(endpoints[i].Receive(1 - rank, in.at(i * 64), 64, stream), onebitSuccess);
      EXPECT_EQ(endpoints[i].GroupEnd(), onebitSuccess);
    }
    stream.Await();
    const auto received = in.Read(stream);
    const auto expected = Pattern(3 * 64, 1 - rank);
    for (const size_t i : {size_t{0}, size_t{2}}) {
      const auto at = static_cast<ptrdiff_t>(i * 64);
      EXPECT_TRUE(
          std::equal(expected.begin() + at, expected.begin() + at + 64, received.begin() + at));
    }
  });
}

}  // namespace
}  // namespace onebit::testing
