// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The exact bytes that a step sends: dense segments in full, the others at one bit per element.
#include <algorithm>
#include <ostream>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "tests/optim/training.h"

namespace onebit::testing {
namespace {

constexpr size_t kHeaderBytes = 64;
constexpr size_t kScaleBytes = 4;
constexpr size_t kChunkAlignment = 64;
constexpr size_t kBlock = 1024;

size_t DivideUp(size_t dividend, size_t divisor) { return (dividend + divisor - 1) / divisor; }

// Number of `count` elements that `rank` of `ranks` serves.
size_t ChunkLength(size_t count, size_t ranks) {
  return DivideUp(DivideUp(count, ranks), kChunkAlignment) * kChunkAlignment;
}
size_t ChunkElements(size_t count, size_t ranks, size_t rank) {
  const size_t length = ChunkLength(count, ranks);
  return std::min(count, (rank + 1) * length) - std::min(count, rank * length);
}

// A tensor on which ranks work, and the element where its blocks restart; 0: nowhere.
struct Cut {
  size_t count = 0;
  size_t ranks = 0;
  size_t at = 0;
};

// The packet of a rank's chunk.
size_t PacketBytes(const Cut& tensor, size_t rank) {
  const auto bytes = [](size_t elements) {
    return kScaleBytes * DivideUp(elements, kBlock) + DivideUp(elements, 8);
  };
  const size_t begin = std::min(tensor.count, rank * ChunkLength(tensor.count, tensor.ranks));
  const size_t elements = ChunkElements(tensor.count, tensor.ranks, rank);
  if (tensor.at <= begin || tensor.at >= begin + elements) return bytes(elements);
  return bytes(tensor.at - begin) + bytes(begin + elements - tensor.at);
}

// Sends each peer the packet of its chunk, then the packet of this rank's own chunk.
size_t TwoExchangesBytes(const Cut& tensor, size_t rank) {
  size_t bytes = 0;
  for (size_t peer = 0; peer < tensor.ranks; ++peer) {
    if (peer == rank) continue;
    bytes += kHeaderBytes + PacketBytes(tensor, peer);
    bytes += kHeaderBytes + PacketBytes(tensor, rank);
  }
  return bytes;
}

// Sends each peer the packets of all chunks in one message.
size_t OneExchangeBytes(const Cut& tensor) {
  size_t payload = 0;
  for (size_t chunk = 0; chunk < tensor.ranks; ++chunk) payload += PacketBytes(tensor, chunk);
  return (tensor.ranks - 1) * (kHeaderBytes + payload);
}

size_t DenseBytes(size_t count, size_t element_bytes, size_t ranks, size_t rank) {
  size_t bytes = 0;
  for (size_t peer = 0; peer < ranks; ++peer) {
    if (peer == rank) continue;
    bytes += kHeaderBytes + element_bytes * ChunkElements(count, ranks, peer);
    bytes += kHeaderBytes + element_bytes * ChunkElements(count, ranks, rank);
  }
  return bytes;
}

// Sends each peer the same of several calls together: a message per exchange, which begins with a
// word for each call.
size_t DenseGroupBytes(std::span<const size_t> counts, size_t element_bytes, size_t ranks,
                       size_t rank) {
  size_t bytes = 2 * (ranks - 1) * counts.size() * sizeof(uint32_t);
  for (const size_t count : counts) bytes += DenseBytes(count, element_bytes, ranks, rank);
  return bytes - 2 * (ranks - 1) * (counts.size() - 1) * kHeaderBytes;
}

struct BytesCase {
  const char* name;
  int ranks;
  size_t compressed[2];  // elements of the compressed segments before and after a dense one
  bool is_one_exchange;
  onebitDataType_t gradient_type = onebitFloat32;
};
std::ostream& operator<<(std::ostream& out, const BytesCase& c) { return out << c.name; }

class OneBitAdamBytesTest : public ::testing::TestWithParam<BytesCase> {
 protected:
  static void ExpectBytes(const BytesCase& c, onebitScales_t scales);
};

void OneBitAdamBytesTest::ExpectBytes(const BytesCase& c, onebitScales_t scales) {
  constexpr size_t kDense[2] = {137, 41};
  constexpr uint64_t kFreezeStep = 2;

  onebitSegment_t segments[4] = {ONEBIT_SEGMENT_INIT, ONEBIT_SEGMENT_INIT, ONEBIT_SEGMENT_INIT,
                                 ONEBIT_SEGMENT_INIT};
  size_t count = 0;
  for (size_t i = 0; i < 4; ++i) {
    segments[i].offset = count;
    segments[i].count = i % 2 == 0 ? c.compressed[i / 2] : kDense[i / 2];
    if (i % 2 == 1) segments[i].flags = onebitSegmentDense;
    count += segments[i].count;
  }
  onebitCompressorConfig_t compressor = ONEBIT_COMPRESSOR_CONFIG_INIT;
  compressor.block = kBlock;
  compressor.chunkAlignment = kChunkAlignment;
  Training training;
  training.problem.ranks = c.ranks;
  training.problem.dimension = count;
  training.gradient_type = c.gradient_type;
  training.calls = 5;
  training.config.freezeStep = kFreezeStep;
  training.config.segments = segments;
  training.config.segmentCount = 4;
  training.config.compressor = &compressor;
  training.config.scales = scales;
  const std::vector<Record> records = Train(training);

  const size_t ranks = static_cast<size_t>(c.ranks);
  const size_t element_bytes = c.gradient_type == onebitFloat32 ? 4 : 2;
  const Cut tensor = {.count = c.compressed[0] + c.compressed[1],
                      .ranks = ranks,
                      .at = scales == onebitScalesSegment ? c.compressed[0] : 0};
  for (size_t rank = 0; rank < ranks; ++rank) {
    const size_t packets =
        c.is_one_exchange ? OneExchangeBytes(tensor) : TwoExchangesBytes(tensor, rank);
    const size_t frozen = packets + DenseGroupBytes(kDense, element_bytes, ranks, rank);
    const size_t dense = DenseBytes(count, element_bytes, ranks, rank);
    uint64_t sum = 0;
    for (const onebitStepResult_t& step : records[rank].results) {
      EXPECT_EQ(step.bytes_sent, step.step <= kFreezeStep ? dense : frozen)
          << "rank " << rank << ", step " << step.step;
      sum += step.bytes_sent;
    }
    EXPECT_EQ(records[rank].stats.bytes_sent, sum);
  }
}

TEST_P(OneBitAdamBytesTest, StepsWithDenseSegmentsSendExactlyWhatTheFormatSays) {
  for (const onebitScales_t scales : {onebitScalesSegment, onebitScalesFused}) {
    SCOPED_TRACE(scales == onebitScalesFused ? "fused" : "scales of segments");
    ExpectBytes(GetParam(), scales);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, OneBitAdamBytesTest,
    ::testing::Values(BytesCase{"TwoExchanges", 2, {70'000, 30'001}, false},
                      BytesCase{"TwoExchangesOfThree", 3, {1, 99'999}, false},
                      BytesCase{"TwoExchangesHalf", 3, {50'000, 50'003}, false, onebitFloat16},
                      BytesCase{"OneExchange", 2, {300, 9}, true},
                      BytesCase{"OneExchangeOfThree", 3, {700, 1}, true, onebitBfloat16}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace onebit::testing
