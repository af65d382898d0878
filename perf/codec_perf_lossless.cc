// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/codec_perf_lossless.h"

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kernels/lossless.h"
#include "perf/codec_perf_buffers.h"
#include "perf/codec_perf_measure.h"

namespace onebit::perf {
namespace {

using kernels::kLosslessBlock;
using kernels::LosslessWord;

// The ceiling is one pass over the tensor: reading it, and writing another.
constexpr size_t kCount = Buffers::kElements;
constexpr size_t kBytes = kCount * sizeof(uint16_t);
constexpr size_t kBlocks = kCount / kLosslessBlock;

// A tensor of bf16, and the same some steps later: a share of its elements has moved by a unit in
// the last place, one in seven of these by more.
class Versions {
 public:
  explicit Versions(double share)
      : before_(static_cast<const uint16_t*>(Buffers::Get().Halves())),
        now_(reinterpret_cast<uint16_t*>(Buffers::Get().Output(0))),
        packet_(reinterpret_cast<uint8_t*>(Buffers::Get().Output(1))) {
    std::mt19937_64 random(1);
    std::uniform_real_distribution<double> unit;
    std::geometric_distribution<uint16_t> more(0.86);
    std::memcpy(now_, before_, kBytes);
    for (size_t i = 0; i < kCount; ++i) {
      if (unit(random) >= share) continue;
      const auto distance = static_cast<uint16_t>(1 + more(random));
      const uint16_t order = kernels::OrderOf(before_[i]);
      now_[i] = kernels::OrderOf(
          static_cast<uint16_t>(random() % 2 == 0 ? order + distance : order - distance));
    }
  }

  const uint16_t* before() const { return before_; }
  const uint16_t* now() const { return now_; }
  void Encode() {
    uint8_t* at = packet_;
    for (size_t block = 0; block < kBlocks; ++block) {
      const size_t begin = block * kLosslessBlock;
      words_[block] = kernels::cpu::LosslessEncode(now_ + begin, before_ + begin, kLosslessBlock,
                                                   sizeof(uint16_t), scratch_.get(), at);
      at += words_[block].bytes;
    }
  }
  void Decode(uint16_t* copy) const {
    const uint8_t* at = packet_;
    for (size_t block = 0; block < kBlocks; ++block) {
      benchmark::DoNotOptimize(kernels::cpu::LosslessDecode(
          words_[block], at, kLosslessBlock, sizeof(uint16_t), copy + block * kLosslessBlock));
      at += words_[block].bytes;
    }
  }

 private:
  const uint16_t* before_;
  uint16_t* now_;
  uint8_t* packet_;
  std::vector<LosslessWord> words_ = std::vector<LosslessWord>(kBlocks);
  std::unique_ptr<kernels::LosslessScratch> scratch_ = std::make_unique<kernels::LosslessScratch>();
};

void Encode(benchmark::State& state, double share) {
  Versions versions(share);
  Measure(state, kBytes, Shape::kCopyHalf,
          {.read = {versions.before()}, .write = {Buffers::Get().Output(2)}},
          [&] { versions.Encode(); });
}

void Decode(benchmark::State& state, double share) {
  Versions versions(share);
  versions.Encode();
  auto* const copy = reinterpret_cast<uint16_t*>(Buffers::Get().Output(3));
  std::memcpy(copy, versions.before(), kBytes);
  // Changes are applied to what they have made, which costs the same.
  Measure(state, kBytes, Shape::kCopyHalf,
          {.read = {versions.before()}, .write = {Buffers::Get().Output(2)}},
          [&] { versions.Decode(copy); });
}

}  // namespace

void RegisterLosslessBenchmarks() {
  const auto add = [](const char* name, auto function, double share) {
    benchmark::RegisterBenchmark(name, function, share)->Unit(benchmark::kMillisecond);
  };
  add("LosslessEncode/bf16/0.1%", Encode, 0.001);
  add("LosslessEncode/bf16/2%", Encode, 0.02);
  add("LosslessEncode/bf16/15%", Encode, 0.15);
  add("LosslessDecode/bf16/0.1%", Decode, 0.001);
  add("LosslessDecode/bf16/2%", Decode, 0.02);
  add("LosslessDecode/bf16/15%", Decode, 0.15);
}

}  // namespace onebit::perf
