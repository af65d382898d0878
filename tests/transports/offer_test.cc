// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The state machine of an offer, in orders of events that threads produce only by chance.
#include "plugins/transport_local/offer.h"

#include <signal.h>
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

// Memory at whose first access a thread stops until it is let go, as if it had been interrupted
// there. One at a time.
class StoppingPage {
 public:
  StoppingPage() {
    data_ = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    is_reached_ = may_go_ = false;
    struct sigaction action = {};
    action.sa_handler = &OnAccess;
    sigaction(SIGSEGV, &action, &before_);
  }
  ~StoppingPage() {
    sigaction(SIGSEGV, &before_, nullptr);
    munmap(data_, kBytes);
  }
  StoppingPage(const StoppingPage&) = delete;
  StoppingPage& operator=(const StoppingPage&) = delete;

  static constexpr size_t kBytes = 4096;
  void* data() const { return data_; }
  static bool is_reached() { return is_reached_; }
  static void LetGo() { may_go_ = true; }

 private:
  static void OnAccess(int) {
    is_reached_ = true;
    while (!may_go_) {
    }
    mprotect(data_, kBytes, PROT_READ | PROT_WRITE);
  }

  static inline std::atomic<bool> is_reached_, may_go_;
  static inline void* data_;
  struct sigaction before_ = {};
};

TEST_F(OfferTest, IsNotRecalledAsLongAsItIsRead) {
  const StoppingPage target;
  offer_.Set(payload_, sizeof payload_);
  Pulled outcome = Pulled::kAll;
  std::jthread reader([&] { outcome = offer_.Pull(target.data(), sizeof payload_); });
  while (!target.is_reached()) std::this_thread::yield();
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(offer_.Recall());
  target.LetGo();
  reader.join();
  EXPECT_EQ(outcome, Pulled::kRecalledWhileReading);
  EXPECT_TRUE(offer_.Recall());
}

// The sender takes its memory back while the receiver copies. Once Recall has returned true, no
// byte is read any more: AddressSanitizer and ThreadSanitizer see a read that is.
TEST_F(OfferTest, ARecallWaitsForTheReader) {
  constexpr size_t kBytes = 4u << 20;
  int recalled_while_reading = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<char> payload(kBytes, 'p');
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
    std::memset(payload.data(), 'x', kBytes);
    reader.join();
    if (outcome == Pulled::kAll) {
      EXPECT_EQ(std::memchr(target.data(), 'x', kBytes), nullptr);
    }
    recalled_while_reading += outcome == Pulled::kRecalledWhileReading ? 1 : 0;
  }
  RecordProperty("recalled_while_reading", recalled_while_reading);
}

}  // namespace
}  // namespace onebit::local
