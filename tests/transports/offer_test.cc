// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The state machine of an offer, in orders of events that threads produce only by chance.
#include "plugins/transport_local/offer.h"

#include <sys/mman.h>

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

namespace onebit::local {
namespace {

using Pulled = Offer::Pulled;

// An offer is zeroed memory.
class OfferTest : public testing::Test {
 protected:
  Pulled Pull(size_t bytes) { return offer_.Pull(target_, bytes); }

  alignas(Offer) unsigned char memory_[sizeof(Offer)] = {};
  Offer& offer_ = *reinterpret_cast<Offer*>(memory_);
  char payload_[100] = "payload";
  char target_[100] = "before";
};

TEST_F(OfferTest, ThereIsNoneAtFirst) {
  EXPECT_EQ(Pull(sizeof payload_), Pulled::kRecalled);
  EXPECT_TRUE(offer_.Recall());
  EXPECT_STREQ(target_, "before");
}

TEST_F(OfferTest, IsCopiedOnce) {
  offer_.Set(payload_, sizeof payload_);
  EXPECT_EQ(Pull(sizeof payload_), Pulled::kAll);
  EXPECT_STREQ(target_, "payload");
  EXPECT_EQ(Pull(sizeof payload_), Pulled::kRecalled);
  EXPECT_TRUE(offer_.Recall());
}

TEST_F(OfferTest, IsNotCopiedOnceRecalled) {
  offer_.Set(payload_, sizeof payload_);
  EXPECT_TRUE(offer_.Recall());
  EXPECT_EQ(Pull(sizeof payload_), Pulled::kRecalled);
  EXPECT_STREQ(target_, "before");
}

TEST_F(OfferTest, AnotherSizeIsNotCopied) {
  offer_.Set(payload_, sizeof payload_);
  EXPECT_EQ(Pull(sizeof payload_ - 1), Pulled::kRecalled);
  EXPECT_STREQ(target_, "before");
}

TEST_F(OfferTest, CanBeMadeAgain) {
  for (int round = 0; round < 3; ++round) {
    offer_.Set(payload_, sizeof payload_);
    EXPECT_EQ(Pull(sizeof payload_), Pulled::kAll);
    offer_.Set(payload_, sizeof payload_);
    EXPECT_TRUE(offer_.Recall());
  }
}

// Memory that can be taken from whoever reads it.
class Payload {
 public:
  explicit Payload(size_t bytes)
      : bytes_(bytes),
        data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    std::memset(data_, 'p', bytes_);
  }
  ~Payload() { munmap(data_, bytes_); }
  Payload(const Payload&) = delete;
  Payload& operator=(const Payload&) = delete;

  const void* data() const { return data_; }
  void Give() { mprotect(data_, bytes_, PROT_READ); }
  void Take() { mprotect(data_, bytes_, PROT_NONE); }

 private:
  const size_t bytes_;
  void* const data_;
};

// The sender takes its memory back while the receiver copies. Once Recall has returned true, no
// byte is read any more: a receiver that does crashes.
TEST_F(OfferTest, ARecallWaitsForTheReader) {
  constexpr size_t kBytes = 4u << 20;
  int recalled_while_reading = 0;
  Payload payload(kBytes);
  for (int round = 0; round < 200; ++round) {
    payload.Give();
    std::vector<char> target(kBytes, 't');
    offer_.Set(payload.data(), kBytes);
    std::atomic<bool> has_begun = false;
    Pulled outcome = Pulled::kAll;
    std::jthread reader([&] {
      has_begun = true;
      outcome = offer_.Pull(target.data(), kBytes);
    });
    while (!has_begun) std::this_thread::yield();
    for (int pause = 0; pause < round % 20 * 100; ++pause)
      std::atomic_signal_fence(std::memory_order_seq_cst);
    while (!offer_.Recall()) std::this_thread::yield();
    payload.Take();
    reader.join();
    if (outcome == Pulled::kAll) {
      EXPECT_EQ(std::memchr(target.data(), 't', kBytes), nullptr);
    }
    recalled_while_reading += outcome == Pulled::kRecalledWhileReading ? 1 : 0;
  }
  RecordProperty("recalled_while_reading", recalled_while_reading);
}

}  // namespace
}  // namespace onebit::local
