// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "api/comm_config.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>

#include "base/config_head.h"
#include "comm/rendezvous.h"

namespace onebit {
namespace {

// Sizes of onebitConfig_t before it grew.
constexpr std::array<size_t, 2> kFormerSizes = {offsetof(onebitConfig_t, shrinkGraceMs),
                                                offsetof(onebitConfig_t, hostRanks)};
// Four bytes of padding follow hostRanks. A later member must not fit into them: the size could not
// tell whether a caller knows that member.
static_assert(sizeof(onebitConfig_t) == offsetof(onebitConfig_t, hostRanks) + 8);

constexpr int32_t kMostRanks = 65'536;
// A longer word could exceed what a rank may say of itself in one message.
constexpr size_t kMostHostBytes = 200;

// A duration from the environment, the configuration or the default, in this order of precedence.
struct Time {
  const char* variable;
  const char* member;
  int32_t configured;  // ONEBIT_UNDEF_INT if not configured
  uint64_t setting;
  int32_t most;
};

Result<uint64_t> ValueOf(const Time& time, const SettingsTable& table) {
  if (time.configured == ONEBIT_UNDEF_INT || table.IsSet(time.variable)) return time.setting;
  if (time.configured < 1 || time.configured > time.most) {
    return Error(Code::kInvalidArgument, "config: {} is {}, but must be 1 to {} milliseconds",
                 time.member, time.configured, time.most);
  }
  return static_cast<uint64_t>(time.configured);
}

}  // namespace

CommOptions CommOptionsOf(const Settings& settings) {
  const auto unless_auto = [](uint64_t value) {
    return value == kAuto ? std::nullopt : std::optional(value);
  };
  return {
      .timeout_ms = settings.collective_timeout_ms,
      .one_exchange_elements = unless_auto(settings.one_exchange_elements),
      .two_level_bytes = unless_auto(settings.two_level_bytes),
      .segment_elements = settings.segment_elements,
      .group_elements = unless_auto(settings.group_elements),
      .compute_threads = unless_auto(settings.compute_threads),
      .regroup_timeout_ms = settings.connect_timeout_ms,
      .shrink_grace_ms = settings.shrink_grace_ms,
      .is_quorum_needed = settings.quorum != 0,
      .host = settings.host,
      .host_ranks = settings.host_ranks,
  };
}

Result<JoinOptions> ParseCommConfig(const onebitConfig_t* config, const SettingsTable& table,
                                    int rank, int ranks) {
  const onebitConfig_t defaults = ONEBIT_CONFIG_INIT;
  onebitConfig_t known = defaults;
  if (config != nullptr) {
    ONEBIT_TRY(CheckConfigHead("config", "ONEBIT_CONFIG_INIT",
                               {config->size, config->magic, config->version},
                               {defaults.size, defaults.magic, defaults.version}, kFormerSizes));
    std::memcpy(&known, config, config->size);
  }
  config = &known;
  constexpr int32_t kDay = 86'400'000;
  const Settings& settings = table.settings;
  ONEBIT_ASSIGN_OR_RETURN(const uint64_t connect_ms,
                          ValueOf({"ONEBIT_CONNECT_TIMEOUT_MS", "connectTimeoutMs",
                                   config->connectTimeoutMs, settings.connect_timeout_ms, kDay},
                                  table));
  ONEBIT_ASSIGN_OR_RETURN(const uint64_t heartbeat_ms,
                          ValueOf({"ONEBIT_HEARTBEAT_MS", "heartbeatMs", config->heartbeatMs,
                                   settings.heartbeat_ms, 3'600'000},
                                  table));
  ONEBIT_ASSIGN_OR_RETURN(const uint64_t loss_ms,
                          ValueOf({"ONEBIT_LOSS_TIMEOUT_MS", "lossTimeoutMs", config->lossTimeoutMs,
                                   settings.loss_timeout_ms, kDay},
                                  table));
  if (loss_ms <= heartbeat_ms) {
    return Error(Code::kInvalidArgument,
                 "lossTimeoutMs (ONEBIT_LOSS_TIMEOUT_MS) is {} and heartbeatMs "
                 "(ONEBIT_HEARTBEAT_MS) {}: a rank must be heard at least once before it counts as "
                 "lost; raise lossTimeoutMs or lower heartbeatMs",
                 loss_ms, heartbeat_ms);
  }
  CommOptions comm = CommOptionsOf(settings);
  comm.regroup_timeout_ms = connect_ms;
  ONEBIT_ASSIGN_OR_RETURN(
      comm.timeout_ms, ValueOf({"ONEBIT_COLLECTIVE_TIMEOUT_MS", "collectiveTimeoutMs",
                                config->collectiveTimeoutMs, settings.collective_timeout_ms, kDay},
                               table));
  ONEBIT_ASSIGN_OR_RETURN(comm.shrink_grace_ms,
                          ValueOf({"ONEBIT_SHRINK_GRACE_MS", "shrinkGraceMs", config->shrinkGraceMs,
                                   settings.shrink_grace_ms, kDay},
                                  table));
  if (config->quorum != ONEBIT_UNDEF_INT && !table.IsSet("ONEBIT_QUORUM")) {
    if (config->quorum != 0 && config->quorum != 1) {
      return Error(Code::kInvalidArgument, "config: quorum is {}, but must be 0 or 1",
                   config->quorum);
    }
    comm.is_quorum_needed = config->quorum == 1;
  }
  if (comm.host.size() > kMostHostBytes) {
    return Error(
        Code::kInvalidUsage,
        "environment variable ONEBIT_HOST has {} bytes, but may have up to {}: a short word "
        "is enough to tell hosts apart",
        comm.host.size(), kMostHostBytes);
  }
  if (config->hostRanks != ONEBIT_UNDEF_INT && !table.IsSet("ONEBIT_HOST_RANKS")) {
    if (config->hostRanks < 0 || config->hostRanks > kMostRanks) {
      return Error(Code::kInvalidArgument, "config: hostRanks is {}, but must be 0 to {}",
                   config->hostRanks, kMostRanks);
    }
    comm.host_ranks = static_cast<uint64_t>(config->hostRanks);
  }
  const bool is_transport_configured =
      config->transport != nullptr && !table.IsSet("ONEBIT_TRANSPORT");
  using std::chrono::milliseconds;
  JoinOptions options;
  options.control.rank = rank;
  options.control.ranks = ranks;
  options.control.connect_timeout = milliseconds(connect_ms);
  options.control.heartbeat = milliseconds(heartbeat_ms);
  options.control.loss_timeout = milliseconds(loss_ms);
  options.control.process = NameOfThisProcess();
  options.transport = is_transport_configured ? config->transport : settings.transport;
  options.comm = comm;
  return options;
}

}  // namespace onebit
