// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The doorbell, and the state machine of a slot in orders of events that threads produce only by
// chance.
#include "plugins/transport_local/slot.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "plugins/transport_local/doorbell.h"

namespace onebit::local {
namespace {

constexpr size_t kEagerBytes = 32;

class SlotTest : public testing::Test {
 protected:
  void Offer() { slot_.Publish("head", 4, payload_, sizeof payload_, kEagerBytes); }

  // A slot is zeroed memory, followed by the capacity for an eager payload.
  alignas(64) unsigned char memory_[sizeof(Slot) + kEagerBytes] = {};
  Slot& slot_ = *reinterpret_cast<Slot*>(memory_);
  char payload_[100] = "payload";
};

TEST_F(SlotTest, ZeroedMemoryIsFree) { EXPECT_EQ(slot_.state(), SlotState::kFree); }

TEST_F(SlotTest, CarriesAnEagerPayload) {
  slot_.Publish("head", 4, "payload", 7, kEagerBytes);
  EXPECT_EQ(slot_.state(), SlotState::kEager);
  ASSERT_EQ(slot_.header_bytes(), 4u);
  EXPECT_EQ(std::memcmp(slot_.header(), "head", 4), 0);
  ASSERT_EQ(slot_.payload_bytes(), 7u);
  EXPECT_EQ(std::memcmp(slot_.eager_payload(), "payload", 7), 0);
}

TEST_F(SlotTest, OffersALargePayload) {
  Offer();
  EXPECT_EQ(slot_.state(), SlotState::kOffered);
  EXPECT_EQ(slot_.offered_payload(), payload_);
  EXPECT_TRUE(slot_.StartCopying());
  EXPECT_FALSE(slot_.WithdrawOffer());
  EXPECT_FALSE(slot_.is_withdrawing());
  slot_.Free();
  EXPECT_TRUE(slot_.Withdraw());
  EXPECT_EQ(slot_.state(), SlotState::kFree);
}

TEST_F(SlotTest, AWithdrawnOfferIsNotCopied) {
  Offer();
  EXPECT_TRUE(slot_.Withdraw());
  EXPECT_FALSE(slot_.StartCopying());
  EXPECT_EQ(slot_.state(), SlotState::kWithdrawn);
  slot_.Refuse();
  EXPECT_EQ(slot_.state(), SlotState::kFree);
}

TEST_F(SlotTest, WithdrawalWaitsForTheReader) {
  Offer();
  ASSERT_TRUE(slot_.StartCopying());
  EXPECT_FALSE(slot_.Withdraw());
  EXPECT_FALSE(slot_.Withdraw());
  EXPECT_TRUE(slot_.is_withdrawing());
  slot_.Refuse();
  EXPECT_TRUE(slot_.Withdraw());
  EXPECT_EQ(slot_.state(), SlotState::kFree);
}

TEST_F(SlotTest, ARefusalReachesTheSender) {
  Offer();
  slot_.Refuse();
  EXPECT_EQ(slot_.state(), SlotState::kRefused);
  EXPECT_TRUE(slot_.Withdraw());
  EXPECT_EQ(slot_.state(), SlotState::kFree);
}

TEST_F(SlotTest, AnAbortedCopyIsARefusal) {
  Offer();
  ASSERT_TRUE(slot_.StartCopying());
  slot_.Refuse();
  EXPECT_EQ(slot_.state(), SlotState::kRefused);
}

uint64_t NowNs() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

TEST(DoorbellTest, RingBeforeTheWaitEndsIt) {
  Doorbell doorbell;
  const uint32_t seen = doorbell.count();
  doorbell.Ring();
  const uint64_t start = NowNs();
  doorbell.Wait(seen, 10'000'000'000, 0, NowNs);
  EXPECT_LT(NowNs() - start, 1'000'000'000u);
}

// Each side sleeps until the other rings; a lost ring costs ten seconds.
TEST(DoorbellTest, LosesNoRing) {
  for (const uint64_t spin_ns : {0, 2'000}) {
    Doorbell doorbells[2];
    const uint64_t start = NowNs();
    const auto play = [&doorbells, spin_ns](int me) {
      uint32_t seen = 0;
      for (int i = 0; i < 3000; ++i) {
        if (me == 1) doorbells[1].Wait(seen, 10'000'000'000, spin_ns, NowNs);
        seen += static_cast<uint32_t>(me);
        doorbells[1 - me].Ring();
        if (me == 0) doorbells[0].Wait(seen++, 10'000'000'000, spin_ns, NowNs);
      }
    };
    std::jthread other(play, 1);
    play(0);
    other.join();
    EXPECT_LT(NowNs() - start, 5'000'000'000u);
  }
}

}  // namespace
}  // namespace onebit::local
