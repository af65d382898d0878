// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Wrong arguments of collectives of parts and pairs: the right code, a helpful text, nothing sent,
// and the communicator still usable.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/chunk_calls.h"
#include "tests/support/comm_group.h"

namespace onebit::testing {
namespace {

constexpr size_t kCount = 64;
constexpr size_t kRanks = 2;

// Rank 1 makes the calls; its part is the second of two.
class ChunkArgumentsTest : public ::testing::Test {
 protected:
  ~ChunkArgumentsTest() override {
    EXPECT_EQ(StatsOf(comm()).messages_sent, 0u);
    EXPECT_STREQ(onebitGetLastError(comm()), "");
    const auto barrier = [&](int rank) { return onebitBarrier(group_.comm(rank), nullptr); };
    for (const Outcome& outcome : group_.Call(barrier)) EXPECT_EQ(outcome.result, onebitSuccess);
  }

  onebitComm_t comm() const { return group_.comm(1); }
  float* values() { return values_.data(); }
  onebitResult_t Call(onebitCollective_t collective, const void* send, void* receive,
                      size_t count = kCount) {
    return MakeCall(collective, {.send = send, .receive = receive, .count = count}, comm());
  }

  static void ExpectRefused(onebitResult_t result, const std::string& text) {
    EXPECT_EQ(result, onebitInvalidArgument) << text;
    const std::string actual = onebitGetLastError(nullptr);
    EXPECT_NE(actual.find(text), std::string::npos) << actual << "\nlacks: " << text;
  }

  CommGroup group_{kRanks};
  std::vector<float> values_ = std::vector<float>(8 * kCount, 1.0f);
};

TEST_F(ChunkArgumentsTest, OfNoBuffers) {
  for (const onebitCollective_t collective : kChunkCollectives) {
    ExpectRefused(Call(collective, nullptr, values()), "sendbuff is NULL, but count is 64");
    ExpectRefused(Call(collective, values(), nullptr), "recvbuff is NULL, but count is 64");
    auto* odd = reinterpret_cast<char*>(values() + 4 * kCount) + 2;
    ExpectRefused(Call(collective, odd, values()), "is not aligned to its element size of 4 bytes");
    ExpectRefused(Call(collective, values(), odd), "is not aligned to its element size of 4 bytes");
  }
}

TEST_F(ChunkArgumentsTest, OfBuffersThatOverlap) {
  float* own = values() + kCount;  // rank 1's part
  const auto scatter = onebitCollectiveReduceScatter;
  const auto gather = onebitCollectiveAllGather;
  // One element off, the other rank's part, the last element.
  for (float* part : {own + 1, own - 1, values(), values() + 2 * kCount - 1}) {
    ExpectRefused(Call(scatter, values(), part), "of the larger one, part 1: pass");
    ExpectRefused(Call(gather, part, values()), "of the larger one, part 1: pass");
  }
  for (float* other : {values(), own, values() + 2 * kCount - 1}) {
    ExpectRefused(Call(onebitCollectiveAllToAll, values(), other), "cannot work in place");
  }
}

TEST_F(ChunkArgumentsTest, OfCountsThatNoMemoryHolds) {
  for (const onebitCollective_t collective : kChunkCollectives) {
    ExpectRefused(Call(collective, values(), values(), SIZE_MAX), "more than memory can hold");
    // Half of this count would do for one part.
    ExpectRefused(Call(collective, values(), values(), SIZE_MAX / 2 / sizeof(float)),
                  "more than memory can hold");
  }
}

TEST_F(ChunkArgumentsTest, OfWrongNumbersAndHandles) {
  ExpectRefused(onebitReduceScatter(values(), values() + kCount, kCount, onebitFloat32,
                                    static_cast<onebitRedOp_t>(1), nullptr, comm(), nullptr),
                "op 1 is unknown");
  ExpectRefused(onebitAllGather(values() + kCount, values(), kCount,
                                static_cast<onebitDataType_t>(3), nullptr, comm(), nullptr),
                "datatype 3 is unknown");
  ExpectRefused(onebitAllToAll(values(), values() + 4 * kCount, kCount, onebitFloat32, nullptr,
                               nullptr, nullptr),
                "comm is NULL");
  ExpectRefused(onebitReduceScatter(values(), values() + kCount, kCount, onebitFloat32, onebitSum,
                                    nullptr, comm(), reinterpret_cast<onebitStream_t>(values())),
                "stream was not made by onebitStreamCreate");
}

class PairArgumentsTest : public ChunkArgumentsTest {
 protected:
  struct Pairs {
    size_t send_counts[kRanks] = {10, 20};
    size_t send_begins[kRanks] = {0, 10};
    size_t receive_counts[kRanks] = {5, 20};
    size_t receive_begins[kRanks] = {0, 5};
  };
  onebitResult_t Exchange(const Pairs& p, const void* send, void* receive) {
    return onebitAllToAllv(send, p.send_counts, p.send_begins, receive, p.receive_counts,
                           p.receive_begins, onebitFloat32, nullptr, comm(), nullptr);
  }
  void ExpectPairsRefused(const Pairs& p, const std::string& text) {
    ExpectRefused(Exchange(p, values(), values() + 2 * kCount), text);
  }
  static constexpr size_t kHuge = SIZE_MAX / 8;
};

TEST_F(PairArgumentsTest, OfNoArrays) {
  const size_t some[kRanks] = {1, 1};
  const auto exchange = [&](const size_t* a, const size_t* b, const size_t* c, const size_t* d) {
    return onebitAllToAllv(values(), a, b, values() + kCount, c, d, onebitFloat32, nullptr, comm(),
                           nullptr);
  };
  ExpectRefused(exchange(nullptr, some, some, some), "sendcounts is NULL");
  ExpectRefused(exchange(some, nullptr, some, some), "sdispls is NULL");
  ExpectRefused(exchange(some, some, nullptr, some), "recvcounts is NULL");
  ExpectRefused(exchange(some, some, some, nullptr), "rdispls is NULL");
}

TEST_F(PairArgumentsTest, OfWrongRanges) {
  Pairs pairs;
  ExpectRefused(Exchange(pairs, nullptr, values()), "sendbuff is NULL, but sendcounts[0] is 10");
  ExpectRefused(Exchange(pairs, values(), nullptr), "recvbuff is NULL, but recvcounts[0] is 5");
  auto* odd = reinterpret_cast<char*>(values()) + 2;
  ExpectRefused(Exchange(pairs, odd, values() + kCount), "is not aligned");
  pairs.send_counts[0] = kHuge;
  ExpectPairsRefused(pairs, "more than memory can hold");
  pairs = {};
  pairs.receive_begins[1] = kHuge;
  ExpectPairsRefused(pairs, "rdispls[1] is");
  pairs = {};
  for (const size_t count : {19, 21}) {
    pairs.receive_counts[1] = count;
    ExpectPairsRefused(pairs, "rank 1 sends itself 20 elements (sendcounts[1]), but receives " +
                                  std::to_string(count));
  }
}

TEST_F(PairArgumentsTest, OfRangesThatOverlap) {
  Pairs pairs;
  ExpectRefused(Exchange(pairs, values(), values()),
                "the data sent to rank 0 and the data received from rank 0 overlap");
  // One array holds both; a range may begin where another one ends.
  pairs.receive_begins[0] = 30;
  pairs.receive_begins[1] = 34;
  ExpectRefused(Exchange(pairs, values() + 1, values()),
                "the data sent to rank 1 and the data received from rank 0 overlap");
}

// Alternating ranges of both kinds are valid.
TEST(PairRangesTest, MayLieBetweenEachOther) {
  CommGroup group(2);
  group.Run([&](int rank) {
    std::vector<float> values(40, static_cast<float>(rank));
    const size_t counts[2] = {10, 10};
    const size_t send_begins[2] = {0, 20};
    const size_t receive_begins[2] = {10, 30};
    ASSERT_EQ(onebitAllToAllv(values.data(), counts, send_begins, values.data(), counts,
                              receive_begins, onebitFloat32, nullptr, group.comm(rank), nullptr),
              onebitSuccess)
        << onebitGetLastError(nullptr);
    EXPECT_EQ(values[10], 0);
    EXPECT_EQ(values[39], 1);
    EXPECT_EQ(values[20], static_cast<float>(rank));
  });
}

// An empty range overlaps nothing, even if its displacement lies inside another range.
TEST(PairRangesTest, NothingLiesNowhere) {
  CommGroup group(3);
  group.Run([&](int rank) {
    const auto self = static_cast<size_t>(rank), next = (self + 1) % 3, last = (self + 2) % 3;
    std::vector<float> values(40, static_cast<float>(rank));
    size_t send_counts[3] = {}, send_begins[3] = {}, receive_counts[3] = {}, receive_begins[3] = {};
    send_counts[self] = send_counts[next] = receive_counts[self] = receive_counts[last] = 10;
    send_begins[self] = 0;
    receive_begins[self] = 10;
    send_begins[next] = 20;
    receive_begins[last] = 30;
    send_begins[last] = 35;
    receive_begins[next] = 5;
    ASSERT_EQ(
        onebitAllToAllv(values.data(), send_counts, send_begins, values.data(), receive_counts,
                        receive_begins, onebitFloat32, nullptr, group.comm(rank), nullptr),
        onebitSuccess)
        << onebitGetLastError(nullptr);
    EXPECT_EQ(values[10], static_cast<float>(self));
    EXPECT_EQ(values[39], static_cast<float>(last));
  });
}

}  // namespace
}  // namespace onebit::testing
