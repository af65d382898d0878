// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Precedence and range of the options a rank joins with: the environment overrides the program,
// which overrides the default.
#include "api/comm_config.h"

#include <cstddef>
#include <initializer_list>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace onebit {
namespace {

Result<JoinOptions> Parse(const onebitConfig_t& config,
                          std::initializer_list<const char*> environment) {
  const auto table = ReadSettings(std::vector<const char*>(environment));
  if (!table.ok()) return table.status();
  return ParseCommConfig(&config, table.value(), 0, 1);
}

TEST(CommConfigTest, TheEnvironmentGoesBeforeTheProgram) {
  onebitConfig_t config = ONEBIT_CONFIG_INIT;
  EXPECT_EQ(Parse(config, {}).value().comm.timeout_ms, 600'000u);
  EXPECT_EQ(Parse(config, {}).value().transport, "socket");
  config.collectiveTimeoutMs = 5;
  config.transport = "mpi";
  EXPECT_EQ(Parse(config, {}).value().comm.timeout_ms, 5u);
  EXPECT_EQ(Parse(config, {}).value().transport, "mpi");
  EXPECT_EQ(Parse(config, {"ONEBIT_COLLECTIVE_TIMEOUT_MS=7"}).value().comm.timeout_ms, 7u);
  EXPECT_EQ(Parse(config, {"ONEBIT_TRANSPORT=local"}).value().transport, "local");
}

TEST(CommConfigTest, TimesHaveARange) {
  for (const int32_t time : {0, -1, 86'400'001}) {
    onebitConfig_t config = ONEBIT_CONFIG_INIT;
    config.connectTimeoutMs = time;
    const auto options = Parse(config, {});
    ASSERT_FALSE(options.ok());
    EXPECT_EQ(options.status().code(), Code::kInvalidArgument);
    EXPECT_EQ(options.status().text(), "config: connectTimeoutMs is " + std::to_string(time) +
                                           ", but may be 1 to 86400000 milliseconds");
    // The environment overrides the member, so its value does not matter.
    EXPECT_TRUE(Parse(config, {"ONEBIT_CONNECT_TIMEOUT_MS=1"}).ok());
  }
}

TEST(CommConfigTest, QuorumIsNoneOrOne) {
  onebitConfig_t config = ONEBIT_CONFIG_INIT;
  EXPECT_FALSE(Parse(config, {}).value().comm.is_quorum_needed);
  EXPECT_TRUE(Parse(config, {"ONEBIT_QUORUM=1"}).value().comm.is_quorum_needed);
  config.quorum = 1;
  config.shrinkGraceMs = 7;
  EXPECT_TRUE(Parse(config, {}).value().comm.is_quorum_needed);
  EXPECT_FALSE(Parse(config, {"ONEBIT_QUORUM=0"}).value().comm.is_quorum_needed);
  EXPECT_EQ(Parse(config, {}).value().comm.shrink_grace_ms, 7u);
  config.quorum = 2;
  const auto options = Parse(config, {});
  ASSERT_FALSE(options.ok());
  EXPECT_EQ(options.status().text(), "config: quorum is 2, but may be 0 or 1");
}

// Programs that were compiled before the structure grew.
TEST(CommConfigTest, AFormerSizeTakesTheDefaultsOfWhatCameLater) {
  onebitConfig_t config = ONEBIT_CONFIG_INIT;
  config.size = offsetof(onebitConfig_t, shrinkGraceMs);
  config.collectiveTimeoutMs = 5;
  config.shrinkGraceMs = -3;
  config.quorum = 99;
  const auto options = Parse(config, {});
  ASSERT_TRUE(options.ok()) << options.status().text();
  EXPECT_EQ(options.value().comm.timeout_ms, 5u);
  EXPECT_EQ(options.value().comm.shrink_grace_ms, 5000u);
  config.size -= 4;
  EXPECT_FALSE(Parse(config, {}).ok());
}

TEST(CommConfigTest, ARankIsNotLostBeforeItCouldBeHeard) {
  onebitConfig_t config = ONEBIT_CONFIG_INIT;
  config.heartbeatMs = 50;
  config.lossTimeoutMs = 51;
  EXPECT_TRUE(Parse(config, {}).ok());
  config.lossTimeoutMs = 50;
  EXPECT_FALSE(Parse(config, {}).ok());
}

}  // namespace
}  // namespace onebit
