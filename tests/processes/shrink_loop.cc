// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A rank for tests that hurt several processes, and go on with those that are left:
//
//   shrink_loop [SLEEPER MS]
//
// It joins by its launch variables, prints "ready" and averages with error feedback until that
// fails: "ended RESULT SECONDS TEXT". Rank SLEEPER then does something else for MS. Ranks shrink
// the communicator without a list, rebind the compressor, and make calls: "went on RESULT SECONDS
// TEXT", TEXT being the former ranks that take part, "/", those that onebitCommGetLost names, and
// the levels of the compressor, or the error. SECONDS are those of the monotonic clock. The process
// ends when its input does, so that a rank may come late.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "onebit/onebit.hpp"

namespace {

constexpr size_t kCount = 100'000;
constexpr int kCallsAfter = 3;

void Say(const char* what, onebitResult_t result, const std::string& text) {
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  std::printf("%s %d %.3f %s\n", what, static_cast<int>(result), now.count(), text.c_str());
  std::fflush(stdout);
}

class Rank {
 public:
  explicit Rank(onebitComm_t comm) : first_(comm), comm_(comm) {
    onebitCommUserRank(comm, &number_);
    onebitCommCount(comm, &ranks_);
  }

  int number() const { return number_; }

  onebitResult_t Prepare() {
    return onebit::MakeCompressor(compressor_, comm_, kCount, onebitFloat32);
  }

  onebitResult_t Call() {
    return onebitAllReduce(data_.data(), out_.data(), kCount, onebitFloat32, onebitAvg,
                           compressor_.get(), comm_, nullptr);
  }

  onebitResult_t GoOn() {
    onebitResult_t result = onebit::ShrinkComm(smaller_, comm_);
    if (result != onebitSuccess) return result;
    comm_ = smaller_.get();
    int source = 0;
    result = onebitCompressorRebind(compressor_.get(), comm_, &source);
    for (int i = 0; i < kCallsAfter && result == onebitSuccess; ++i) result = Call();
    return result;
  }

  // "0 1 / 2 3, levels 1"
  std::string Members() {
    std::vector<float> is_here(static_cast<size_t>(ranks_));
    is_here[static_cast<size_t>(number_)] = 1;
    if (onebitAllReduce(is_here.data(), is_here.data(), is_here.size(), onebitFloat32, onebitSum,
                        nullptr, comm_, nullptr) != onebitSuccess) {
      return onebitGetLastError(nullptr);
    }
    std::string text;
    for (size_t rank = 0; rank < is_here.size(); ++rank) {
      if (is_here[rank] == 1) text += std::to_string(rank) + " ";
    }
    text += "/";
    std::vector<int> lost(is_here.size());
    int count = ranks_;
    onebitCommGetLost(first_, lost.data(), &count);
    for (int i = 0; i < count; ++i) text += " " + std::to_string(lost[static_cast<size_t>(i)]);
    onebitCompressorStats_t stats = {.size = sizeof stats};
    onebitCompressorGetStats(compressor_.get(), &stats);
    return text + ", levels " + std::to_string(stats.levels);
  }

 private:
  onebitComm_t first_;
  onebitComm_t comm_;
  int number_ = 0;
  int ranks_ = 0;
  std::vector<float> data_ = std::vector<float>(kCount, 0.5f);
  std::vector<float> out_ = std::vector<float>(kCount);
  onebit::UniqueComm smaller_;
  onebit::UniqueCompressor compressor_;
};

}  // namespace

int main(int argc, char** argv) {
  onebit::UniqueComm owner;
  if (onebit::JoinComm(owner) != onebitSuccess) {
    std::fprintf(stderr, "onebitCommInitEnv: %s\n", onebitGetLastError(nullptr));
    return 1;
  }
  Rank rank(owner.get());
  onebitResult_t result = rank.Prepare();
  std::puts("ready");
  std::fflush(stdout);
  while (result == onebitSuccess) result = rank.Call();
  Say("ended", result, onebitGetLastError(owner.get()));
  if (argc == 3 && std::atoi(argv[1]) == rank.number()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(std::atol(argv[2])));
  }
  result = rank.GoOn();
  Say("went on", result, result == onebitSuccess ? rank.Members() : onebitGetLastError(nullptr));
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return 0;
}
