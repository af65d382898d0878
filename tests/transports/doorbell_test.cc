// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/transport_local/doorbell.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace onebit::local {
namespace {

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
