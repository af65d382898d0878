// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Ranks as threads, which exchange texts under one mutex.
#include "tests/transports/rank_threads.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace onebit::conformance {
namespace {

constexpr std::chrono::seconds kTestTimeout{60};

struct MeetingPlace {
  explicit MeetingPlace(int nranks) : texts(static_cast<size_t>(nranks)) {}

  std::mutex mutex;
  std::condition_variable changed;
  // All guarded by mutex.
  std::vector<std::string> texts;
  std::vector<std::string> last_texts;  // of the exchange that was completed last
  size_t arrived = 0;
  uint64_t exchanges = 0;
  std::string failure;  // of the rank that failed first
};

class ThreadMeeting : public OutOfBand {
 public:
  ThreadMeeting(MeetingPlace* place, int rank) : place_(*place), rank_(rank) {}

  int rank() const override { return rank_; }
  int nranks() const override { return static_cast<int>(place_.texts.size()); }

  std::vector<std::string> Exchange(const std::string& mine) override {
    std::unique_lock lock(place_.mutex);
    place_.texts[static_cast<size_t>(rank_)] = mine;
    const uint64_t exchange = place_.exchanges;
    if (++place_.arrived == place_.texts.size()) {
      place_.arrived = 0;
      ++place_.exchanges;
      place_.last_texts = place_.texts;
      place_.changed.notify_all();
    }
    const bool is_over = place_.changed.wait_for(lock, kTestTimeout, [this, exchange] {
      return place_.exchanges != exchange || !place_.failure.empty();
    });
    Expect(is_over, "the other ranks did not come");
    Expect(place_.failure.empty(), "another rank failed");
    return place_.last_texts;
  }

 private:
  MeetingPlace& place_;
  const int rank_;
};

void RunRank(MeetingPlace* place, int rank, const std::function<void(OutOfBand&)>& body) {
  try {
    ThreadMeeting oob(place, rank);
    body(oob);
  } catch (const std::exception& error) {
    const std::lock_guard lock(place->mutex);
    if (place->failure.empty()) place->failure = Text("rank ", rank, ": ", error.what());
    place->changed.notify_all();
  }
}

}  // namespace

std::string RunRankThreads(int nranks, const std::function<void(OutOfBand&)>& body) {
  MeetingPlace place(nranks);
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < nranks; ++rank) {
      threads.emplace_back([&place, rank, &body] { RunRank(&place, rank, body); });
    }
  }
  return place.failure;
}

}  // namespace onebit::conformance
