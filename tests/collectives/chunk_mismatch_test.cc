// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Ranks whose calls of parts and pairs differ, and compressors made for another collective.
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "api/handles.h"
#include "tests/support/chunk_calls.h"
#include "tests/support/comm_group.h"
#include "tests/support/residuals.h"

namespace onebit::testing {
namespace {

constexpr size_t kRanks = 3;
constexpr size_t kCount = 100;
constexpr onebitCollective_t kAll[] = {onebitCollectiveReduceScatter, onebitCollectiveAllGather,
                                       onebitCollectiveAllToAll, onebitCollectiveAllToAllv};

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

using Change = std::function<void(onebitCompressorConfig_t&)>;

UniqueCompressor CompressorOf(onebitCollective_t collective, onebitComm_t comm,
                              const Change& change = {}) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.collective = collective;
  if (collective == onebitCollectiveAllToAllv) config.mode = onebitModePlain;
  if (change) change(config);
  return NewCompressor(comm, collective == onebitCollectiveAllToAllv ? 0 : kCount, onebitFloat32,
                       config);
}

// A buffer large enough for any call here.
struct Room {
  std::vector<float> sent = std::vector<float>(kRanks * kCount, 1.5f);
  std::vector<float> received = std::vector<float>(kRanks * kCount);

  ChunkCall Call(size_t count = kCount, onebitCompressor_t compressor = nullptr) {
    return {
        .send = sent.data(), .receive = received.data(), .count = count, .compressor = compressor};
  }
};

// Every rank must fail at once, naming `odd_rank` and both sides in either order.
void ExpectMismatch(const std::vector<Outcome>& outcomes, int odd_rank, const std::string& sides,
                    const std::string& other_sides) {
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.result, onebitMismatch) << outcome.text;
    EXPECT_TRUE(Contains(outcome.text, "rank " + std::to_string(odd_rank))) << outcome.text;
    EXPECT_TRUE(Contains(outcome.text, sides) || Contains(outcome.text, other_sides))
        << outcome.text;
  }
}

TEST(ChunkMismatchTest, CountsThatDifferAreNamed) {
  for (const onebitCollective_t collective : kChunkCollectives) {
    SCOPED_TRACE(TextOf(collective));
    CommGroup group(kRanks);
    const std::vector<Outcome> outcomes = group.Call([&](int rank) {
      Room room;
      return MakeCall(collective, room.Call(rank == 1 ? 99 : 100), group.comm(rank));
    });
    ExpectMismatch(outcomes, 1, "count 100 here, 99 there", "count 99 here, 100 there");
  }
}

TEST(ChunkMismatchTest, CollectivesThatDifferAreNamed) {
  const char* names[] = {"reduce-scatter", "all-gather", "all-to-all", "all-to-all-v"};
  for (size_t a = 0; a < 4; ++a) {
    for (const bool is_compressed : {false, true}) {
      const size_t b = (a + 1) % 4;
      CommGroup group(kRanks);
      const std::vector<Outcome> outcomes = group.Call([&](int rank) {
        const onebitCollective_t collective = kAll[rank == 2 ? b : a];
        const UniqueCompressor compressor =
            is_compressed ? CompressorOf(collective, group.comm(rank)) : nullptr;
        Room room;
        return MakeCall(collective, room.Call(kCount, compressor.get()), group.comm(rank));
      });
      const std::string name_a = names[a], name_b = names[b];
      ExpectMismatch(outcomes, 2, "collective " + name_a + " here, " + name_b + " there",
                     "collective " + name_b + " here, " + name_a + " there");
    }
  }
}

// One rank sends another a different number of elements than that one expects.
TEST(ChunkMismatchTest, CountsOfAPairThatDifferAreNamedWithThePeer) {
  for (const bool is_compressed : {false, true}) {
    CommGroup group(kRanks);
    const std::vector<Outcome> outcomes = group.Call([&](int rank) {
      const UniqueCompressor compressor =
          is_compressed ? CompressorOf(onebitCollectiveAllToAllv, group.comm(rank)) : nullptr;
      Room room;
      const size_t begins[kRanks] = {0, kCount, 2 * kCount};
      size_t send_counts[kRanks] = {70, 70, 70};
      if (rank == 2) send_counts[0] = 69;
      const size_t receive_counts[kRanks] = {70, 70, 70};
      return onebitAllToAllv(room.sent.data(), send_counts, begins, room.received.data(),
                             receive_counts, begins, onebitFloat32, compressor.get(),
                             group.comm(rank), nullptr);
    });
    EXPECT_EQ(outcomes[0].result, onebitMismatch);
    EXPECT_TRUE(Contains(outcomes[0].text, "rank 2 made a different call")) << outcomes[0].text;
    EXPECT_TRUE(Contains(outcomes[0].text, "recvcounts has 70 here, sendcounts 69 there"))
        << outcomes[0].text;
    for (int rank = 1; rank < 3; ++rank) {
      // Without verdicts, ranks whose own counts agree may finish before they hear of the mismatch.
      const Outcome& outcome = outcomes[static_cast<size_t>(rank)];
      if (!is_compressed && outcome.result == onebitSuccess) continue;
      EXPECT_EQ(outcome.result, onebitMismatch) << outcome.text;
      EXPECT_TRUE(Contains(outcome.text, "recvcounts has 70 here, sendcounts 69 there"))
          << outcome.text;
    }
    const std::vector<Outcome> refusals =
        group.Call([&](int rank) { return onebitBarrier(group.comm(rank), nullptr); });
    for (const Outcome& refusal : refusals) EXPECT_EQ(refusal.result, onebitMismatch);
  }
}

TEST(ChunkMismatchTest, MasksAndBlocksThatDifferAreNamed) {
  const std::vector<uint8_t> mask(kRanks * kCount / 8 + 1, 0x77);
  for (const onebitCollective_t collective : kChunkCollectives) {
    for (const bool is_mask : {false, true}) {
      CommGroup group(kRanks);
      const std::vector<Outcome> outcomes = group.Call([&](int rank) {
        const UniqueCompressor compressor =
            CompressorOf(collective, group.comm(rank), [&](onebitCompressorConfig_t& config) {
              if (rank != 0) return;
              if (is_mask) config.mask = mask.data();
              if (!is_mask) config.block = 64;
            });
        Room room;
        return MakeCall(collective, room.Call(kCount, compressor.get()), group.comm(rank));
      });
      ExpectMismatch(outcomes, 0, is_mask ? "mask digest" : "block 4096 here, 64 there",
                     is_mask ? "mask digest" : "block 64 here, 4096 there");
    }
  }
}

TEST(ChunkMismatchTest, GathersOfOtherAgesOrTransactionsAreNamed) {
  for (const bool is_age : {false, true}) {
    CommGroup group(kRanks);
    std::vector<UniqueCompressor> compressors;
    for (int rank = 0; rank < 3; ++rank) {
      compressors.push_back(CompressorOf(onebitCollectiveAllGather, group.comm(rank), [&](auto& c) {
        c.transactional = !is_age && rank == 1 ? 0 : 1;
      }));
    }
    const auto call = [&](int rank) {
      Room room;
      return MakeCall(onebitCollectiveAllGather,
                      room.Call(kCount, compressors[static_cast<size_t>(rank)].get()),
                      group.comm(rank));
    };
    if (is_age) {
      for (const Outcome& outcome : group.Call(call)) EXPECT_EQ(outcome.result, onebitSuccess);
      ASSERT_EQ(onebitCompressorReset(compressors[1].get()), onebitSuccess);
    }
    const std::vector<Outcome> outcomes = group.Call(call);
    const std::string age = "age of what ranks hold of each other (calls since it was zero) ";
    ExpectMismatch(outcomes, 1,
                   is_age ? age + "1 here, 0 there" : "transactional true here, false there",
                   is_age ? age + "0 here, 1 there" : "transactional false here, true there");
  }
}

TEST(ChunkMismatchTest, ResetOnAllRanksBeginsAnew) {
  CommGroup group(kRanks);
  group.Run([&](int rank) {
    const UniqueCompressor compressor = CompressorOf(onebitCollectiveAllGather, group.comm(rank));
    Room first, second;
    for (Room* room : {&first, &second}) {
      for (int call = 0; call < 20; ++call) {
        ASSERT_EQ(MakeCall(onebitCollectiveAllGather, room->Call(kCount, compressor.get()),
                           group.comm(rank)),
                  onebitSuccess);
      }
      ASSERT_EQ(onebitCompressorReset(compressor.get()), onebitSuccess);
    }
    EXPECT_EQ(first.received, second.received);
  });
}

// A value that is changed behind the library's back is found by the next comparison; every 16th
// call compares.
TEST(DriftTest, OfWhatARankHoldsIsFound) {
  for (const size_t part : {size_t{0}, size_t{1}}) {  // another rank's part, and the own one
    CommGroup group(kRanks);
    std::vector<UniqueCompressor> compressors;
    for (int rank = 0; rank < 3; ++rank) {
      compressors.push_back(CompressorOf(onebitCollectiveAllGather, group.comm(rank)));
    }
    const auto call = [&](int rank) {
      Room room;
      return MakeCall(onebitCollectiveAllGather,
                      room.Call(kCount, compressors[static_cast<size_t>(rank)].get()),
                      group.comm(rank));
    };
    for (int number = 0; number < 16; ++number) {
      for (const Outcome& outcome : group.Call(call)) EXPECT_EQ(outcome.result, onebitSuccess);
    }
    const Compressor& state = compressors[1]->planned.compressor;
    auto* held = reinterpret_cast<float*>(const_cast<std::byte*>(state.worker_in(0)));
    held[part * kCount + 3] += 1;
    const std::vector<Outcome> outcomes = group.Call(call);
    const size_t finder = part == 0 ? 1 : 0;
    EXPECT_EQ(outcomes[finder].result, onebitMismatch) << outcomes[finder].text;
    const std::string names = "this rank and rank " + std::to_string(part) + " hold different";
    EXPECT_TRUE(Contains(outcomes[finder].text, names)) << outcomes[finder].text;
    EXPECT_EQ(StatsOf(compressors[finder].get()).epoch, 16u);
    for (const Outcome& outcome : group.Call(call)) EXPECT_EQ(outcome.result, onebitMismatch);
  }
}

TEST(WrongCollectiveTest, IsRefusedWithBothNames) {
  CommGroup group(1);
  const char* names[] = {"reduce-scatter", "all-gather", "all-to-all", "all-to-all-v"};
  for (size_t made = 0; made < 4; ++made) {
    const UniqueCompressor compressor = CompressorOf(kAll[made], group.comm(0));
    for (size_t called = 0; called < 4; ++called) {
      if (called == made) continue;
      Room room;
      const Outcome outcome = CallHere([&] {
        return MakeCall(kAll[called], room.Call(kCount, compressor.get()), group.comm(0));
      });
      EXPECT_EQ(outcome.result, onebitInvalidArgument);
      const std::string call = names[called], creation = names[made];
      EXPECT_TRUE(Contains(outcome.text, "call is " + call + ",")) << outcome.text;
      EXPECT_TRUE(Contains(outcome.text, "created for " + creation + ";")) << outcome.text;
    }
    Room room;
    const Outcome reduce = CallHere([&] {
      return MakeCall(onebitCollectiveAllReduce, room.Call(kCount, compressor.get()),
                      group.comm(0));
    });
    EXPECT_EQ(reduce.result, onebitInvalidArgument);
    EXPECT_TRUE(Contains(reduce.text, "call is allreduce,")) << reduce.text;
  }
}

TEST(ScatterOpTest, OfTheFirstCallBindsTheLaterOnes) {
  CommGroup group(2);
  group.Run([&](int rank) {
    const UniqueCompressor compressor =
        CompressorOf(onebitCollectiveReduceScatter, group.comm(rank));
    Room room;
    ChunkCall call = room.Call(kCount, compressor.get());
    ASSERT_EQ(MakeCall(onebitCollectiveReduceScatter, call, group.comm(rank)), onebitSuccess);
    call.op = onebitSum;
    EXPECT_EQ(MakeCall(onebitCollectiveReduceScatter, call, group.comm(rank)), onebitInvalidUsage);
    ASSERT_EQ(onebitCompressorReset(compressor.get()), onebitSuccess);
    EXPECT_EQ(MakeCall(onebitCollectiveReduceScatter, call, group.comm(rank)), onebitSuccess);
  });
}

TEST(ChunkRebindTest, IsRefusedOnAllRanksWhichStayInOrder) {
  CommGroup group(2), next(2);
  group.Run([&](int rank) {
    const UniqueCompressor compressor =
        CompressorOf(onebitCollectiveReduceScatter, group.comm(rank));
    int source = 0;
    EXPECT_EQ(onebitCompressorRebind(compressor.get(), next.comm(rank), &source),
              onebitInvalidUsage);
    EXPECT_TRUE(Contains(onebitGetLastError(nullptr), "is for reduce-scatter"));
    EXPECT_EQ(onebitBarrier(next.comm(rank), nullptr), onebitSuccess);
  });
}

}  // namespace
}  // namespace onebit::testing
