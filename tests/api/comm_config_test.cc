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
                                           ", but must be 1 to 86400000 milliseconds");
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
  EXPECT_EQ(options.status().text(), "config: quorum is 2, but must be 0 or 1");
}

TEST(CommConfigTest, HostsAreToldApartByAWordOrACount) {
  onebitConfig_t config = ONEBIT_CONFIG_INIT;
  EXPECT_EQ(Parse(config, {}).value().comm.host, "");
  EXPECT_EQ(Parse(config, {}).value().comm.host_ranks, 0u);
  EXPECT_EQ(Parse(config, {"ONEBIT_HOST=node 7"}).value().comm.host, "node 7");
  EXPECT_EQ(Parse(config, {"ONEBIT_HOST_RANKS=4"}).value().comm.host_ranks, 4u);
  config.hostRanks = 8;
  EXPECT_EQ(Parse(config, {}).value().comm.host_ranks, 8u);
  EXPECT_EQ(Parse(config, {"ONEBIT_HOST_RANKS=0"}).value().comm.host_ranks, 0u);
  for (const int32_t count : {-1, 65'537}) {
    config.hostRanks = count;
    const auto options = Parse(config, {});
    ASSERT_FALSE(options.ok());
    EXPECT_EQ(options.status().code(), Code::kInvalidArgument);
    EXPECT_EQ(options.status().text(),
              "config: hostRanks is " + std::to_string(count) + ", but must be 0 to 65536");
  }
}

TEST(CommConfigTest, AWordForAHostIsShort) {
  const onebitConfig_t config = ONEBIT_CONFIG_INIT;
  const std::string variable = "ONEBIT_HOST=" + std::string(200, 'x');
  EXPECT_TRUE(Parse(config, {variable.c_str()}).ok());
  const auto options = Parse(config, {(variable + "x").c_str()});
  ASSERT_FALSE(options.ok());
  EXPECT_EQ(options.status().code(), Code::kInvalidUsage);
  EXPECT_EQ(options.status().text(),
            "environment variable ONEBIT_HOST has 201 bytes, but may have up to 200: a short word "
            "is enough to tell hosts apart");
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
  config.size = offsetof(onebitConfig_t, hostRanks);
  config.shrinkGraceMs = 7;
  config.quorum = 1;
  config.hostRanks = -3;
  EXPECT_EQ(Parse(config, {}).value().comm.shrink_grace_ms, 7u);
  EXPECT_EQ(Parse(config, {}).value().comm.host_ranks, 0u);
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
