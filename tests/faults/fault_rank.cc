// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A rank as a process that a fault may strike: fault_rank CALLS COUNT dense|sign|ef LEAVER
//
// It joins by its launch variables, prints "ready" and makes calls until one fails. After each
// successful call, and before the first one as number 0, it prints "call NUMBER EPOCH WORKER SERVER
// OUTPUT", the last three being hashes. After an error it prints "state EPOCH WORKER SERVER" and
// "ended RESULT SECONDS TEXT", SECONDS being the monotonic clock when the last call returned. Then,
// except for rank LEAVER, it shrinks the communicator, rebinds the compressor, prints "recovered
// RANK RANKS LOST EPOCH WORKER SERVER", LOST being the lost elements, and makes three more calls,
// numbered from 101.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/format.h"
#include "onebit/onebit.h"
#include "onebit/onebit.hpp"
#include "tests/support/faulty_transport.h"
#include "tests/support/residuals.h"

namespace {

using onebit::Format;

constexpr uint32_t kSeed = 9137;
constexpr int kCallsAfter = 3;
constexpr int kFirstCallAfter = 100;

void Say(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

uint64_t HashOf(std::span<const std::byte> bytes, uint64_t hash = 0xcbf29ce484222325u) {
  for (const std::byte byte : bytes) {
    hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3u;
  }
  return hash;
}

class Rank {
 public:
  Rank(onebitComm_t comm, size_t count, const std::string& mode) : comm_(comm), count_(count) {
    onebitCommUserRank(comm, &rank_);
    if (mode == "dense") return;
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.mode = mode == "ef" ? onebitModeEf : onebitModePlain;
    config.block = 64;
    const onebitResult_t made =
        onebit::MakeCompressor(compressor_, comm, count, onebitFloat32, &config);
    if (made != onebitSuccess) Say("no compressor: " + onebit::Explain(made));
  }

  // Runs before the first call.
  void SayStart() const { Say(Format("call 0 {} 0", State())); }

  int number() const { return rank_; }

  onebitResult_t Call() {
    std::mt19937 random(kSeed + static_cast<uint32_t>(100 * calls_ + rank_));
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<float> values(count_);
    for (float& value : values) value = uniform(random);
    const onebitResult_t result =
        onebitAllReduce(values.data(), values.data(), count_, onebitFloat32, onebitAvg,
                        compressor_.get(), comm_, nullptr);
    if (result != onebitSuccess) return result;
    ++calls_;
    Say(Format("call {} {} {:016x}", calls_, State(), HashOf(std::as_bytes(std::span(values)))));
    return result;
  }

  // Epoch and hashes of the residuals. Dense calls have neither, so they are counted here.
  std::string State() const {
    if (compressor_ == nullptr) return Format("{} 0 0", calls_ % kFirstCallAfter);
    const auto residuals = onebit::testing::ResidualsOf(compressor_.get());
    return Format("{} {:016x} {:016x}", StatsOf().epoch, HashOf(residuals.worker),
                  HashOf(residuals.server));
  }

  // Continues with the remaining ranks, even if another one is lost meanwhile.
  onebitResult_t Recover() {
    onebitResult_t result = Regroup();
    if (result != onebitSuccess && !successors_.empty()) {
      Say(Format("again after {}: {}", static_cast<int>(result), onebitGetLastError(nullptr)));
      result = Regroup();
    }
    if (result != onebitSuccess) return result;
    int rank = 0;
    int ranks = 0;
    onebitCommUserRank(comm_, &rank);
    onebitCommCount(comm_, &ranks);
    const uint64_t lost = compressor_ == nullptr ? 0 : StatsOf().lost_elements;
    Say(Format("recovered {} {} {} {}", rank, ranks, lost, State()));
    calls_ = kFirstCallAfter;
    for (int i = 0; i < kCallsAfter && result == onebitSuccess; ++i) result = Call();
    return result;
  }

 private:
  // Creates a communicator of the remaining ranks and rebinds the compressor to it.
  onebitResult_t Regroup() {
    onebitComm_t newcomm = nullptr;
    const onebitResult_t result =
        onebitCommShrink(comm_, nullptr, 0, &newcomm, nullptr, ONEBIT_SHRINK_DEFAULT);
    if (result != onebitSuccess) return result;
    successors_.emplace_back(newcomm);
    comm_ = newcomm;
    int source = 0;
    return compressor_ == nullptr ? onebitSuccess
                                  : onebitCompressorRebind(compressor_.get(), newcomm, &source);
  }

  onebitCompressorStats_t StatsOf() const {
    onebitCompressorStats_t stats = {.size = sizeof(stats)};
    onebitCompressorGetStats(compressor_.get(), &stats);
    return stats;
  }

  onebitComm_t comm_;
  const size_t count_;
  int rank_ = 0;
  int calls_ = 0;
  onebit::UniqueCompressor compressor_;  // may outlive its communicators
  std::vector<onebit::UniqueComm> successors_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: fault_rank CALLS COUNT dense|sign|ef LEAVER\n");
    return 2;
  }
  onebit::testing::RegisterFaultyTransports();
  onebitComm_t comm = nullptr;
  if (onebitCommInitEnv(&comm, nullptr) != onebitSuccess) {
    std::fprintf(stderr, "onebitCommInitEnv: %s\n", onebitGetLastError(nullptr));
    return 1;
  }
  const onebit::UniqueComm owner(comm);
  Rank rank(comm, static_cast<size_t>(std::atol(argv[2])), argv[3]);
  Say("ready");
  rank.SayStart();
  onebitResult_t result = onebitSuccess;
  for (int call = 0; call < std::atoi(argv[1]) && result == onebitSuccess; ++call) {
    result = rank.Call();
  }
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  const std::string text = result == onebitSuccess ? "ok" : onebitGetLastError(comm);
  Say("state " + rank.State());
  Say(Format("ended {} {:.6f} {}", static_cast<int>(result), now.count(), text));
  if (result == onebitSuccess || rank.number() == std::atoi(argv[4])) return 0;
  result = rank.Recover();
  Say(Format("done {} {}", static_cast<int>(result),
             result == onebitSuccess ? "ok" : onebitGetLastError(nullptr)));
  return 0;
}
