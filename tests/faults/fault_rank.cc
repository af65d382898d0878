// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A rank that is a process and may be hit by a fault: fault_rank CALLS COUNT dense|sign|ef
//
// Joins by its launch variables, says "ready" and makes the calls until one fails. After each that
// succeeds it says "call NUMBER EPOCH RESIDUALS OUTPUT", the last two being hashes. In the end it
// says "state EPOCH RESIDUALS" and "ended RESULT SECONDS TEXT", SECONDS being the monotonic clock
// when the last call returned.
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
#include "tests/support/residuals.h"

namespace {

using onebit::Format;

constexpr uint32_t kSeed = 9137;

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
    config.mode = mode == "ef" ? onebitModeEf : onebitModeSign;
    config.block = 64;
    const onebitResult_t made =
        onebit::MakeCompressor(compressor_, comm, count, onebitFloat32, &config);
    if (made != onebitSuccess) Say("no compressor: " + onebit::Explain(made));
  }

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

  // Epoch and hash of the residuals; dense calls have neither, so they count themselves.
  std::string State() const {
    if (compressor_ == nullptr) return Format("{} 0", calls_);
    onebitCompressorStats_t stats = {.size = sizeof(stats)};
    onebitCompressorGetStats(compressor_.get(), &stats);
    const auto residuals = onebit::testing::ResidualsOf(compressor_.get());
    return Format("{} {:016x}", stats.epoch, HashOf(residuals.server, HashOf(residuals.worker)));
  }

 private:
  const onebitComm_t comm_;
  const size_t count_;
  int rank_ = 0;
  int calls_ = 0;
  onebit::UniqueCompressor compressor_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: fault_rank CALLS COUNT dense|sign|ef\n");
    return 2;
  }
  onebitComm_t comm = nullptr;
  if (onebitCommInitEnv(&comm, nullptr) != onebitSuccess) {
    std::fprintf(stderr, "onebitCommInitEnv: %s\n", onebitGetLastError(nullptr));
    return 1;
  }
  const onebit::UniqueComm owner(comm);
  Rank rank(comm, static_cast<size_t>(std::atol(argv[2])), argv[3]);
  Say("ready");
  onebitResult_t result = onebitSuccess;
  for (int call = 0; call < std::atoi(argv[1]) && result == onebitSuccess; ++call) {
    result = rank.Call();
  }
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  const std::string text = result == onebitSuccess ? "ok" : onebitGetLastError(comm);
  Say("state " + rank.State());
  Say(Format("ended {} {:.3f} {}", static_cast<int>(result), now.count(), text));
  return 0;
}
