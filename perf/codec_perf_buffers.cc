// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Fills the buffers with numbers that are ordinary in every type that reads them.
#include "perf/codec_perf_buffers.h"

#include <cstdlib>
#include <cstring>
#include <new>

namespace onebit::perf {
namespace {

// xorshift: fast enough to fill gigabytes.
class Random {
 public:
  uint64_t Next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }

 private:
  uint64_t state_ = 0x9E3779B97F4A7C15u;
};

}  // namespace

Buffers& Buffers::Get() {
  static Buffers buffers;
  return buffers;
}

void Buffers::Free::operator()(void* memory) const { std::free(memory); }

// Buffers start at different offsets in a page, as the tensors of a program do, and cover whole
// cache lines.
void* Buffers::Allocate(size_t bytes) {
  constexpr size_t kPage = 4096;
  constexpr size_t kStagger = 17 * 64;
  const size_t offset = memory_.size() * kStagger % kPage;
  const size_t padded = (bytes + offset + kPage - 1) / kPage * kPage;
  memory_.emplace_back(std::aligned_alloc(kPage, padded));
  if (memory_.back() == nullptr) throw std::bad_alloc();
  auto* start = static_cast<char*>(memory_.back().get()) + offset;
  memset(start, 0, bytes);
  return start;
}

Buffers::Buffers() {
  Random random;
  for (float*& numbers : numbers_) {
    numbers = static_cast<float*>(Allocate(kElements * sizeof(float)));
    for (size_t i = 0; i < kElements; ++i) {
      numbers[i] = static_cast<float>(static_cast<int64_t>(random.Next())) * 0x1p-63f;
    }
  }
  halves_ = Allocate(kElements * sizeof(uint16_t));
  auto* halves = static_cast<uint16_t*>(halves_);
  for (size_t i = 0; i < kElements; ++i) {
    halves[i] = static_cast<uint16_t>((random.Next() & 0x83FF) | 0x3C00);
  }
  for (float*& output : outputs_) output = static_cast<float*>(Allocate(kElements * sizeof(float)));
  bit_output_ = static_cast<uint8_t*>(Allocate(kElements / 8));
  scale_output_ = static_cast<float*>(Allocate(kElements / kMinBlock * sizeof(float)));
  for (size_t packet = 0; packet < kPackets; ++packet) {
    auto* bits = static_cast<uint64_t*>(Allocate(kElements / 8));
    for (size_t i = 0; i < kElements / 64; ++i) bits[i] = random.Next();
    packets_[packet] = reinterpret_cast<const uint8_t*>(bits);
    const size_t scale_count = kElements / kMinBlock;
    auto* scales = static_cast<float*>(Allocate(scale_count * sizeof(float)));
    // Exact in every output type.
    for (size_t i = 0; i < scale_count; ++i) scales[i] = 1 + static_cast<float>(i % 64) / 64;
    packet_scales_[packet] = scales;
  }
}

}  // namespace onebit::perf
