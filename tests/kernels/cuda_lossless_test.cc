// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// CUDA kernels of the codec lossless: blocks of all forms in one launch give the packet of the
// host, and the packet gives the tensor.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "codec/lossless_packet.h"
#include "tests/kernels/cuda_launch.h"
#include "tests/kernels/test_data.h"

namespace onebit::kernels::cuda {
namespace {

constexpr size_t kCount = 4 * kLosslessBlock + 777;

class CudaLosslessTest : public testing::TestWithParam<size_t> {
 protected:
  // One element in `every` of a block has changed, by one.
  void Change(size_t block, size_t every) {
    const size_t end = std::min(kCount, (block + 1) * kLosslessBlock);
    for (size_t i = block * kLosslessBlock; i < end; ++i) {
      if (random_() % every == 0) now_[i * width_] ^= 1;
    }
  }
  LosslessParams ParamsFor(Bytes& elements) {
    return {.elements = elements.data(),
            .before = before_.data(),
            .count = kCount,
            .width = static_cast<uint32_t>(width_),
            .words = words_.data(),
            .starts = starts_.data(),
            .bytes = bytes_.data(),
            .faults = &faults_};
  }
  // Fills in words_, starts_ and bytes_.
  void Encode() {
    LosslessParams p = ParamsFor(now_);
    Launch(Kernel::kLosslessMeasure, p);
    uint64_t end = 0;
    for (size_t block = 0; block < words_.size(); ++block) {
      starts_[block] = end;
      end += LosslessWord::Unpack(words_[block]).bytes;
    }
    bytes_.assign((end + kLosslessSlack + 3) / 4, 0);
    p.bytes = bytes_.data();
    Launch(Kernel::kLosslessWrite, p);
    end_ = end;
  }

  const size_t width_ = GetParam();
  Random random_{23};
  Bytes before_ = RandomBits(8 * kCount * width_, random_);
  Bytes now_ = before_;
  std::vector<uint32_t> words_ = std::vector<uint32_t>(LosslessBlocks(kCount));
  std::vector<uint64_t> starts_ = std::vector<uint64_t>(words_.size());
  std::vector<uint32_t> bytes_;
  uint64_t end_ = 0;
  uint32_t faults_ = 0;
};

TEST_P(CudaLosslessTest, PacketsAreThoseOfTheHost) {
  // One block has not changed, some have changes that leave each other room, one has changed
  // nearly everywhere, and a last one is short.
  Change(1, 100);
  Change(2, 2);
  Change(4, 50);
  const Bytes other = RandomBits(8 * kLosslessBlock * width_, random_);
  std::copy(other.begin(), other.end(),
            now_.begin() + static_cast<ptrdiff_t>(3 * kLosslessBlock * width_));
  Encode();
  std::vector<LosslessForm> forms;
  for (const uint32_t word : words_) forms.push_back(LosslessWord::Unpack(word).form);
  EXPECT_EQ(forms, (std::vector{LosslessForm::kEqual, LosslessForm::kGaps, LosslessForm::kBitmap,
                                LosslessForm::kElements, LosslessForm::kGaps}));

  LosslessEncoder encoder;
  const auto encoded = encoder.Encode(now_.data(), before_.data(), kCount, width_);
  ASSERT_TRUE(encoded.ok());
  ASSERT_TRUE(encoded.value().has_value());
  const std::span<const std::byte> expected = *encoded.value();
  const size_t word_bytes = words_.size() * sizeof(words_[0]);
  ASSERT_EQ(expected.size(), word_bytes + end_);
  EXPECT_EQ(memcmp(words_.data(), expected.data(), word_bytes), 0);
  EXPECT_EQ(memcmp(bytes_.data(), expected.data() + word_bytes, end_), 0);

  Bytes copy = before_;
  Launch(Kernel::kLosslessDecode, ParamsFor(copy));
  EXPECT_EQ(faults_, 0u);
  EXPECT_TRUE(copy == now_);
}

TEST_P(CudaLosslessTest, ABlockThatIsNoneIsAFault) {
  Change(1, 100);
  Encode();
  words_[1] ^= 1u << 2;  // other low bits of gaps
  Bytes copy = before_;
  Launch(Kernel::kLosslessDecode, ParamsFor(copy));
  EXPECT_EQ(faults_, kFailed);
  faults_ = 0;
  words_[1] ^= 1u << 2;
  copy = before_;
  Launch(Kernel::kLosslessDecode, ParamsFor(copy));
  EXPECT_EQ(faults_, 0u);
  EXPECT_TRUE(copy == now_);
}

INSTANTIATE_TEST_SUITE_P(Widths, CudaLosslessTest, testing::Values(size_t{2}, size_t{4}));

}  // namespace
}  // namespace onebit::kernels::cuda
