// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Options in the configuration of a call.
#include "plugins/nccl_preload/call_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <onebit/nccl_ext.h>

#include <string>

#include "tests/preload/initial_config.h"

namespace onebit::preload {
namespace {

using ::testing::HasSubstr;

ConfigOption Tensor(uint64_t number) {
  return {.vendor = ONEBIT_NCCL_VENDOR,
          .id = onebitNcclTensor,
          .value = {.pointer = reinterpret_cast<void*>(number)}};
}
ConfigOption Text(const char* codec) {
  return {.vendor = ONEBIT_NCCL_VENDOR, .id = onebitNcclCodec, .value = {.text = codec}};
}
ConfigOption Off(int value) {
  return {.vendor = ONEBIT_NCCL_VENDOR, .id = onebitNcclOff, .value = {.number = value}};
}

CallOptions Read(const CollConfig& config) {
  CallOptions options;
  EXPECT_EQ(ReadCallOptions(config, Operation::kAllReduce, &options).value_or("no error"),
            "no error");
  return options;
}
CallOptions Read(const ConfigOption& option) { return Read(InitialConfig(&option)); }

std::string ErrorOf(const ConfigOption& option) {
  CallOptions options;
  const CollConfig config = InitialConfig(&option);
  return ReadCallOptions(config, Operation::kAllReduce, &options).value_or("no error");
}

TEST(CallOptionsTest, AnInitialConfigurationAsksForNothing) {
  const CallOptions options = Read(InitialConfig());
  EXPECT_TRUE(options.is_plain);
  EXPECT_FALSE(options.tensor || options.compression || options.is_off);
}

TEST(CallOptionsTest, OptionsAreRead) {
  ConfigOption tensor = Tensor(UINT64_MAX);
  ConfigOption codec = Text("int8,plain,block=256");
  codec.next = &tensor;
  const CallOptions options = Read(codec);
  EXPECT_TRUE(options.is_plain);
  EXPECT_EQ(options.tensor, UINT64_MAX);
  EXPECT_EQ(options.compression,
            (Compression{.codec = onebitCodecInt8, .has_feedback = false, .block = 256}));
  EXPECT_FALSE(options.is_off);
  EXPECT_EQ(Read(Tensor(0)).tensor, 0u);
}

TEST(CallOptionsTest, OffIsANumberOrACodec) {
  EXPECT_TRUE(Read(Off(1)).is_off);
  EXPECT_FALSE(Read(Off(0)).is_off);
  EXPECT_TRUE(Read(Text("off")).is_off);
  EXPECT_FALSE(Read(Text("off")).compression.has_value());
}

TEST(CallOptionsTest, OptionsOfOtherVendorsAreIgnored) {
  ConfigOption tensor = Tensor(7);
  ConfigOption other{.next = &tensor, .vendor = 1, .id = onebitNcclCodec, .value = {.number = 5}};
  ConfigOption twice = other;
  twice.next = &other;
  const CallOptions options = Read(twice);
  EXPECT_EQ(options.tensor, 7u);
  EXPECT_FALSE(options.compression.has_value());
  EXPECT_TRUE(options.is_plain);
}

TEST(CallOptionsTest, EveryOtherFieldIsForNccl) {
  const auto is_plain_after = [](auto change) {
    CollConfig config = InitialConfig();
    change(config);
    return Read(config).is_plain;
  };
  EXPECT_FALSE(is_plain_after([](CollConfig& config) { config.min_ctas = 1; }));
  EXPECT_FALSE(is_plain_after([](CollConfig& config) { config.max_ctas = 1; }));
  EXPECT_FALSE(is_plain_after([](CollConfig& config) { config.nvls_ctas = 1; }));
  EXPECT_FALSE(is_plain_after([](CollConfig& config) { config.cga_cluster_size = 2; }));
  EXPECT_FALSE(is_plain_after([](CollConfig& config) { config.algorithms = "RING"; }));
  EXPECT_TRUE(is_plain_after([](CollConfig& config) { config.algorithms = ""; }));
  EXPECT_FALSE(is_plain_after([](CollConfig& config) { config.must_have_algorithm = 0; }));
  EXPECT_FALSE(is_plain_after([](CollConfig& config) { config.cta_policy = 0; }));
  EXPECT_FALSE(is_plain_after([](CollConfig& config) { config.profiler_tag = 1; }));
  EXPECT_FALSE(
      is_plain_after([](CollConfig& config) { config.launch_completion_event = &config; }));
}

TEST(CallOptionsTest, SizesOfOtherVersionsAreUnderstood) {
  const ConfigOption option = Tensor(7);
  CollConfig config = InitialConfig(&option);
  config.launch_completion_event = &config;  // beyond the end of 2.31's
  config.size = kLeastCollConfigBytes;
  EXPECT_TRUE(Read(config).is_plain);
  EXPECT_EQ(Read(config).tensor, 7u);
  config = InitialConfig(&option);
  config.size += 8;
  EXPECT_FALSE(Read(config).is_plain);
}

// NCCL itself refuses other structures.
TEST(CallOptionsTest, AForeignHeadIsNotReadOn) {
  const ConfigOption option = Text("none");
  CollConfig config = InitialConfig(&option);
  config.size = kLeastCollConfigBytes - 1;
  EXPECT_FALSE(Read(config).is_plain);
  config = InitialConfig(&option);
  config.magic = 0;
  EXPECT_FALSE(Read(config).is_plain);
}

TEST(CallOptionsTest, ErrorsNameTheOption) {
  EXPECT_THAT(ErrorOf(Text("fp8")),
              HasSubstr("option codec, \"fp8\": unknown codec \"fp8\"; the codecs are"));
  EXPECT_THAT(ErrorOf(Text("fp4,block=100")), HasSubstr("block=100 is not a multiple of 32"));
  EXPECT_THAT(ErrorOf(Text("*:fp4")), HasSubstr("unknown codec \"*:fp4\""));
  EXPECT_THAT(ErrorOf(Text("")), HasSubstr("unknown codec \"\""));
  EXPECT_EQ(ErrorOf(Text(nullptr)), "option codec is NULL");
  EXPECT_EQ(ErrorOf(Off(2)), "option off is 2, but must be 0 or 1");
  EXPECT_EQ(ErrorOf({.vendor = ONEBIT_NCCL_VENDOR, .id = 4}),
            "there is no option 4; the options are tensor (1), codec (2) and off (3)");
  const ConfigOption first = Tensor(1);
  ConfigOption second = Tensor(1);
  second.next = &first;
  EXPECT_EQ(ErrorOf(second), "option 1 is given twice");
}

TEST(CallOptionsTest, AnErrorChangesNothing) {
  ConfigOption wrong = Off(2);
  ConfigOption tensor = Tensor(7);
  tensor.next = &wrong;
  CallOptions options;
  const CollConfig config = InitialConfig(&tensor);
  EXPECT_TRUE(ReadCallOptions(config, Operation::kAllReduce, &options).has_value());
  EXPECT_FALSE(options.tensor.has_value());
}

}  // namespace
}  // namespace onebit::preload
