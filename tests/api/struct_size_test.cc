// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Structures that grow: programs compiled with a shorter or longer one get the members that they
// know.
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "onebit/onebit.h"
#include "tests/support/comm_group.h"

namespace onebit::testing {
namespace {

class StructSizeTest : public ::testing::Test {
 protected:
  StructSizeTest() {
    const onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    compressor_ = NewCompressor(group_.comm(0), 640, onebitFloat32, config);
  }
  onebitResult_t GetCommStats(void* stats) {
    return onebitCommGetStats(group_.comm(0), static_cast<onebitCommStats_t*>(stats));
  }
  onebitResult_t GetCompressorStats(void* stats) {
    return onebitCompressorGetStats(compressor_.get(),
                                    static_cast<onebitCompressorStats_t*>(stats));
  }

  CommGroup group_{2};
  UniqueCompressor compressor_;
};

// Returns memory for a structure of `size` bytes that contains that size, 0xee elsewhere, and a
// guard behind it.
std::vector<unsigned char> Structure(size_t size) {
  std::vector<unsigned char> memory(std::max(size, sizeof(size_t)) + 64, 0xee);
  std::memcpy(memory.data(), &size, sizeof(size));
  return memory;
}

bool IsUntouchedFrom(const std::vector<unsigned char>& memory, size_t offset) {
  for (size_t i = offset; i < memory.size(); ++i) {
    if (memory[i] != 0xee) return false;
  }
  return true;
}

TEST_F(StructSizeTest, ShorterStatsAreFilledUpToTheirEnd) {
  for (size_t size = 2 * sizeof(size_t); size < sizeof(onebitCommStats_t); size += 8) {
    std::vector<unsigned char> memory = Structure(size);
    EXPECT_EQ(GetCommStats(memory.data()), onebitSuccess);
    EXPECT_TRUE(IsUntouchedFrom(memory, size)) << size;
  }
  // A structure of the first version, which has only the epoch.
  std::vector<unsigned char> memory = Structure(2 * sizeof(size_t));
  EXPECT_EQ(GetCompressorStats(memory.data()), onebitSuccess);
  uint64_t epoch = 1;
  std::memcpy(&epoch, memory.data() + sizeof(size_t), sizeof(epoch));
  EXPECT_EQ(epoch, 0u);
  EXPECT_TRUE(IsUntouchedFrom(memory, 2 * sizeof(size_t)));
}

TEST_F(StructSizeTest, LongerStatsAreLeftAloneBeyondOurs) {
  std::vector<unsigned char> memory = Structure(sizeof(onebitCommStats_t) + 32);
  EXPECT_EQ(GetCommStats(memory.data()), onebitSuccess);
  EXPECT_TRUE(IsUntouchedFrom(memory, sizeof(onebitCommStats_t)));
  size_t size = 0;
  std::memcpy(&size, memory.data(), sizeof(size));
  EXPECT_EQ(size, sizeof(onebitCommStats_t) + 32) << "the size is the caller's";
}

TEST_F(StructSizeTest, StatsWithoutASizeAreRefused) {
  for (const size_t size : {size_t{0}, size_t{1}, sizeof(size_t), 2 * sizeof(size_t) - 1}) {
    std::vector<unsigned char> memory = Structure(size);
    EXPECT_EQ(GetCommStats(memory.data()), onebitInvalidArgument) << size;
    EXPECT_NE(std::string(onebitGetLastError(nullptr)).find("stats->size"), std::string::npos);
    EXPECT_EQ(GetCompressorStats(memory.data()), onebitInvalidArgument) << size;
    EXPECT_TRUE(IsUntouchedFrom(memory, sizeof(size_t)));
  }
}

TEST_F(StructSizeTest, ConfigOfAnotherSizeOrWithoutMagicIsRefused) {
  const auto create = [&](const onebitCompressorConfig_t& config) {
    onebitCompressor_t compressor = nullptr;
    const onebitResult_t result =
        onebitCompressorCreate(&compressor, group_.comm(0), 10, onebitFloat32, &config);
    EXPECT_EQ(compressor == nullptr, result != onebitSuccess);
    EXPECT_EQ(onebitCompressorDestroy(compressor), onebitSuccess);
    return result;
  };
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.size += 8;
  EXPECT_EQ(create(config), onebitInvalidArgument);
  const std::string text = onebitGetLastError(nullptr);
  EXPECT_NE(text.find(std::to_string(config.size)), std::string::npos) << text;
  EXPECT_NE(text.find(std::to_string(sizeof(config))), std::string::npos) << text;
  config.size = 0;
  EXPECT_EQ(create(config), onebitInvalidArgument);
  config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.version = 2 * 10'000;
  EXPECT_EQ(create(config), onebitInvalidArgument) << "from the header of a later major version";
  config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.version += 1;
  EXPECT_EQ(create(config), onebitSuccess) << "a later patch has the same structure";
  config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.magic = 0;
  EXPECT_EQ(create(config), onebitInvalidArgument);
  EXPECT_NE(std::string(onebitGetLastError(nullptr)).find("ONEBIT_COMPRESSOR_CONFIG_INIT"),
            std::string::npos);
}

}  // namespace
}  // namespace onebit::testing
