// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Writes of a kernel outside of its memory are noticed.
#include "tests/kernels/cuda_stage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "tests/kernels/cuda_launch.h"

namespace onebit::kernels::cuda {
namespace {

class CudaStageTest : public testing::Test {
 protected:
  // A tool that watches accesses would report the mistakes that these tests make on purpose.
  void SetUp() override {
    if (std::getenv("CUDA_TEST_EXACT_MEMORY") != nullptr) GTEST_SKIP() << "copies have no margin";
  }

  // Zeroes `count` bytes of staged memory.
  void Fill(void* data, uint64_t count) {
    FillParams p;
    p.count = 1;
    p.spans[0] = {.data = data, .count = count};
    const TestDevice& device = *TestDevice::Find();
    ASSERT_TRUE(device.devices().Launch(Kernel::kFillIf, &p, device.stream()).ok());
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(100, std::byte{1});
  Stage stage_{*TestDevice::Find()};
};

TEST_F(CudaStageTest, CopiesBackWhatWasWritten) {
  std::byte* data = memory_.data();
  stage_.InOut(&data, 90);
  Fill(data, 40);
  stage_.Finish();
  std::vector<std::byte> expected(100, std::byte{1});
  std::fill_n(expected.begin(), 40, std::byte{0});
  EXPECT_EQ(memory_, expected);
}

TEST_F(CudaStageTest, SeesAByteBeyondTheEnd) {
  std::byte* data = memory_.data();
  stage_.InOut(&data, 90);
  Fill(data, 91);
  EXPECT_THROW(stage_.Finish(), std::runtime_error);
}

TEST_F(CudaStageTest, SeesAByteBeforeTheBeginning) {
  std::byte* data = memory_.data() + 1;
  stage_.InOut(&data, 90);
  Fill(data - 1, 5);
  EXPECT_THROW(stage_.Finish(), std::runtime_error);
}

TEST_F(CudaStageTest, SeesThatAnInputWasWritten) {
  const std::byte* data = memory_.data();
  stage_.In(&data, 90);
  Fill(const_cast<std::byte*>(data), 1);
  EXPECT_THROW(stage_.Finish(), std::runtime_error);
}

TEST_F(CudaStageTest, OneMemoryHasOneCopy) {
  const std::byte* input = memory_.data();
  std::byte* output = memory_.data();
  stage_.In(&input, 90);
  stage_.InOut(&output, 90);
  EXPECT_EQ(input, output);
  std::byte* part = memory_.data() + 10;
  EXPECT_THROW(stage_.InOut(&part, 10), std::logic_error);
}

TEST_F(CudaStageTest, TheNextLaunchHasTheSameMemory) {
  const std::byte* first = memory_.data();
  const std::byte* second = memory_.data();
  {
    Stage stage(*TestDevice::Find());
    stage.In(&first, 90);
  }
  Stage stage(*TestDevice::Find());
  stage.In(&second, 90);
  EXPECT_EQ(first, second);
  const std::byte* adjacent = memory_.data() + 91;
  stage.In(&adjacent, 9);
  EXPECT_GE(std::abs(adjacent - second), 90);
}

TEST_F(CudaStageTest, KeepsTheAlignment) {
  for (size_t offset = 0; offset < 10; ++offset) {
    Stage stage(*TestDevice::Find());
    const std::byte* data = memory_.data() + offset;
    stage.In(&data, 8);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 256,
              reinterpret_cast<uintptr_t>(memory_.data() + offset) % 256);
  }
}

}  // namespace
}  // namespace onebit::kernels::cuda
