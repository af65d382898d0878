// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls so large that outputs bypass the caches, and that a sweep finishes a block while it reads
// the next: every instruction set against the scalar oracle, byte for byte.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>

#include "kernels/kernels.h"
#include "tests/kernels/each_target.h"
#include "tests/kernels/test_data.h"

namespace onebit::kernels {
namespace {

// Enough elements of this type, with room for blocks of all sizes and a tail that is not a whole
// vector.
constexpr size_t CountOf(DataType type) { return (size_t{4} << 20) / BytesOf(type) + 4096 + 77; }
constexpr size_t kCount = CountOf(DataType::kF32);

// Bytes at an offset from a 64-byte boundary.
class Placed {
 public:
  Placed(size_t bytes, size_t offset) : memory_(bytes + 128), offset_(offset) {}
  Placed(const Bytes& content, size_t offset) : Placed(content.size(), offset) {
    memcpy(data(), content.data(), content.size());
  }

  uint8_t* data() {
    return reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(memory_.data()) + 63) / 64 * 64 +
                                      offset_);
  }
  bool Equals(const Bytes& content) { return SameBytes(data(), content.data(), content.size()); }

 private:
  Bytes memory_;
  size_t offset_;
};

class StreamTest : public EachTarget {
 protected:
  Random random_{10};
};

struct WorkerCase {
  DataType input_type;
  DataType residual_type;
  bool is_masked;
  ScaleRule rule;
  size_t block;
  size_t offset;  // of the new residual
  bool is_in_place;
};

constexpr WorkerCase kWorkerCases[] = {
    {DataType::kF32, DataType::kF32, false, ScaleRule::kL2, 4096, 0, false},
    {DataType::kF32, DataType::kF32, true, ScaleRule::kL1, 4096, 0, true},
    {DataType::kF32, DataType::kBf16, false, ScaleRule::kL1, 1024, 0, true},
    {DataType::kF16, DataType::kF32, false, ScaleRule::kL2, 128, 0, false},
    {DataType::kF16, DataType::kBf16, true, ScaleRule::kL2, 2048, 0, false},
    {DataType::kBf16, DataType::kF32, true, ScaleRule::kL2, 384, 0, true},
    {DataType::kBf16, DataType::kBf16, false, ScaleRule::kL1, 4096, 0, false},
    {DataType::kF32, DataType::kF32, false, ScaleRule::kL2, 64, 0, false},
    {DataType::kBf16, DataType::kBf16, false, ScaleRule::kL1, 256, 0, true},
    {DataType::kF32, DataType::kF32, false, ScaleRule::kL2, 8192, 0, false},
    {DataType::kF32, DataType::kF32, true, ScaleRule::kL2, 65536, 0, true},
    {DataType::kF16, DataType::kBf16, true, ScaleRule::kL1, 12416, 0, true},
    {DataType::kF32, DataType::kF32, false, ScaleRule::kL2, 4096, 4, false},
};

TEST_P(StreamTest, CompressBlocksEqualsReference) {
  for (const WorkerCase& c : kWorkerCases) {
    const size_t count = CountOf(c.residual_type);
    Bytes x = RandomElements(c.input_type, Numbers::kOrdinary, count, random_);
    const Bytes e = RandomElements(c.residual_type, Numbers::kOrdinary, count, random_);
    const Bytes mask = RandomBits(count, random_);
    // Summing a block again must not disturb its neighbours.
    memset(x.data() + x.size() / 2, 0, 16384);
    CompressInput in = {.input = x.data(),
                        .input_type = c.input_type,
                        .residual_in = e.data(),
                        .residual_type = c.residual_type,
                        .mask = c.is_masked ? mask.data() : nullptr,
                        .count = count,
                        .rule = c.rule};
    std::vector<float> scales[2] = {std::vector<float>(BlockCount(count, c.block)),
                                    std::vector<float>(BlockCount(count, c.block))};
    Bytes bits[2] = {Bytes(BitBytes(count)), Bytes(BitBytes(count))};
    Bytes expected(e.size());
    in.residual_out = expected.data();
    ASSERT_TRUE(reference::CompressBlocks(in, c.block, scales[0].data(), bits[0].data()));
    Placed actual(e, c.offset);
    if (c.is_in_place) in.residual_in = actual.data();
    in.residual_out = actual.data();
    ASSERT_TRUE(cpu::CompressBlocks(in, c.block, scales[1].data(), bits[1].data()));
    EXPECT_EQ(scales[0], scales[1]) << c.block;
    EXPECT_TRUE(bits[0] == bits[1]) << c.block;
    EXPECT_TRUE(actual.Equals(expected)) << c.block;
  }
}

TEST_P(StreamTest, CompressBlocksFindsNonfiniteInAnyBlock) {
  std::vector<float> x(kCount, 1.0f);
  Placed residual(kCount * sizeof(float), 0);
  memset(residual.data(), 0, kCount * sizeof(float));
  const CompressInput in = {.input = x.data(),
                            .residual_in = residual.data(),
                            .residual_out = residual.data(),
                            .count = kCount};
  std::vector<float> scales(BlockCount(kCount, 4096));
  Bytes bits(BitBytes(kCount));
  for (const size_t i : {size_t{0}, size_t{5000}, kCount / 2, kCount - 100, kCount - 1}) {
    x[i] = std::numeric_limits<float>::infinity();
    memset(residual.data(), 0, kCount * sizeof(float));
    EXPECT_FALSE(cpu::CompressBlocks(in, 4096, scales.data(), bits.data())) << i;
    x[i] = 1;
  }
  memset(residual.data(), 0, kCount * sizeof(float));
  EXPECT_TRUE(cpu::CompressBlocks(in, 4096, scales.data(), bits.data()));
}

TEST_P(StreamTest, CompressResidualEqualsReference) {
  const Bytes x = RandomElements(DataType::kF32, Numbers::kOrdinary, kCount, random_);
  const Bytes e = RandomElements(DataType::kF32, Numbers::kOrdinary, kCount, random_);
  CompressInput in = {.input = x.data(), .residual_in = e.data(), .count = kCount};
  Bytes expected(e.size());
  in.residual_out = expected.data();
  reference::CompressResidual(in, 0.5f);
  Placed actual(e.size(), 0);
  in.residual_out = actual.data();
  cpu::CompressResidual(in, 0.5f);
  EXPECT_TRUE(actual.Equals(expected));
}

class PacketStreamTest : public StreamTest {
 protected:
  ReduceInput MakePackets(size_t ranks, size_t block, size_t count = kCount) {
    for (size_t rank = 0; rank < ranks; ++rank) {
      bits_.push_back(RandomSigns(count, random_));
      scales_.emplace_back(BlockCount(count, block));
      for (float& scale : scales_.back()) {
        scale = std::abs(RandomF32(Numbers::kOrdinary, random_));
      }
    }
    for (size_t rank = 0; rank < ranks; ++rank) {
      bit_pointers_.push_back(bits_[rank].data());
      scale_pointers_.push_back(scales_[rank].data());
    }
    return {.bits = bit_pointers_.data(),
            .scales = scale_pointers_.data(),
            .ranks = ranks,
            .count = count};
  }

  std::vector<Bytes> bits_;
  std::vector<std::vector<float>> scales_;
  std::vector<const uint8_t*> bit_pointers_;
  std::vector<const float*> scale_pointers_;
};

TEST_P(PacketStreamTest, ReduceBlocksEqualsReference) {
  ReduceInput in = MakePackets(9, 1024);  // longer blocks use some of the scales
  in.output_type = DataType::kBf16;
  const Bytes s = RandomElements(DataType::kF32, Numbers::kOrdinary, kCount, random_);
  in.residual_in = s.data();
  for (const size_t block : {1024, 4096, 8320}) {
    const bool is_masked = block != 4096;
    const Bytes mask = RandomBits(kCount, random_);
    in.mask = is_masked ? mask.data() : nullptr;
    in.is_sum = is_masked;
    std::vector<float> scales[2] = {scales_[0], scales_[0]};
    Bytes bits[2] = {bits_[0], bits_[0]};
    Bytes expected(s.size());
    in.residual_out = expected.data();
    ASSERT_TRUE(reference::ReduceBlocks(in, block, scales[0].data(), bits[0].data()));
    Placed actual(s.size(), 0);
    in.residual_out = actual.data();
    ASSERT_TRUE(cpu::ReduceBlocks(in, block, scales[1].data(), bits[1].data()));
    EXPECT_EQ(scales[0], scales[1]) << block;
    EXPECT_TRUE(bits[0] == bits[1]) << block;
    EXPECT_TRUE(actual.Equals(expected)) << block;
  }
}

TEST_P(PacketStreamTest, DecodeAverageEqualsReference) {
  ReduceInput in = MakePackets(5, 4096);
  std::vector<float> expected(kCount);
  reference::DecodeAverage(in, 4096, expected.data());
  for (const size_t offset : {0, 4}) {
    Placed actual(kCount * sizeof(float), offset);
    cpu::DecodeAverage(in, 4096, reinterpret_cast<float*>(actual.data()));
    EXPECT_TRUE(SameBytes(actual.data(), expected.data(), kCount * sizeof(float))) << offset;
  }
}

TEST_P(PacketStreamTest, DecodeEqualsReference) {
  const ReduceInput in = MakePackets(1, 4096, CountOf(DataType::kBf16));
  for (const DataType type : kAllTypes) {
    const size_t count = CountOf(type);
    std::vector<float> scales = scales_[0];
    for (float& scale : scales) scale = reference::OutputScale(scale, 1, false, type);
    Bytes expected(count * BytesOf(type));
    reference::Decode(in.bits[0], scales.data(), count, 4096, nullptr, type, expected.data());
    for (const size_t offset : {0, 4}) {
      Placed actual(expected.size(), offset);
      cpu::Decode(in.bits[0], scales.data(), count, 4096, nullptr, type, actual.data());
      EXPECT_TRUE(actual.Equals(expected)) << offset;
    }
  }
}

TEST_P(StreamTest, DenseReduceEqualsReference) {
  for (const DataType type : kAllTypes) {
    const size_t count = CountOf(type);
    std::vector<Bytes> content;
    std::vector<const void*> inputs;
    for (int rank = 0; rank < 3; ++rank) {
      content.push_back(RandomElements(type, Numbers::kOrdinary, count, random_));
    }
    for (const Bytes& bytes : content) inputs.push_back(bytes.data());
    Bytes expected(content[0].size());
    reference::DenseReduce(inputs.data(), 3, count, type, DenseOp::kAverage, expected.data());
    Placed actual(content[2], 0);
    inputs[2] = actual.data();  // in place
    cpu::DenseReduce(inputs.data(), 3, count, type, DenseOp::kAverage, actual.data());
    EXPECT_TRUE(actual.Equals(expected));
  }
}

ONEBIT_TEST_EACH_TARGET(StreamTest);
ONEBIT_TEST_EACH_TARGET(PacketStreamTest);

}  // namespace
}  // namespace onebit::kernels
