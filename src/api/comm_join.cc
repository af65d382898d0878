// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Communicators of processes in the C API.
#include <cstring>
#include <utility>

#include "api/comm_config.h"
#include "api/handles.h"
#include "comm/launch_environment.h"
#include "comm/meeting_point.h"
#include "transport/settings.h"
#include "transport/transport.h"

using onebit::Code;
using onebit::Error;
using onebit::Guard;
using onebit::OkStatus;
using onebit::Status;

namespace {

static_assert(sizeof(onebitUniqueId) == onebit::kUniqueIdBytes);

onebit::MeetingOptions MeetingOptionsOf(const onebit::Settings& settings) {
  return {.interfaces = settings.socket_interfaces,
          .secret = settings.secret,
          .secret_file = settings.secret_file};
}

Status GetUniqueId(onebitUniqueId* id) {
  if (id == nullptr) return Error(Code::kInvalidArgument, "id is NULL");
  ONEBIT_ASSIGN_OR_RETURN(const onebit::SettingsTable* table, onebit::ProcessSettings());
  ONEBIT_ASSIGN_OR_RETURN(const onebit::UniqueId made,
                          onebit::OpenMeetingPoint(MeetingOptionsOf(table->settings)));
  const auto bytes = onebit::EncodeUniqueId(made);
  std::memcpy(id->internal, bytes.data(), bytes.size());
  return OkStatus();
}

Status CheckRank(int rank, int ranks) {
  if (ranks < 1 || ranks > static_cast<int>(onebit::kMaxRanks)) {
    return Error(Code::kInvalidArgument, "nranks is {}: a communicator has 1 to {} ranks", ranks,
                 onebit::kMaxRanks);
  }
  if (rank < 0 || rank >= ranks) {
    return Error(Code::kInvalidArgument, "rank is {}: with nranks {} it may be 0 to {}", rank,
                 ranks, ranks - 1);
  }
  return OkStatus();
}

Status Join(onebit::JoinOptions options, const onebit::Settings& settings, onebitComm_t* comm) {
  // Before anything else: a name that is wrong must not end as a time-out.
  ONEBIT_ASSIGN_OR_RETURN(const std::string interfaces,
                          onebit::SelectedInterfaces(MeetingOptionsOf(settings)));
  onebit::Transport::UseInterfaces(interfaces);
  if (options.control.ranks == 1) options.transport = "local";  // nothing is sent
  options.interfaces = settings.socket_interfaces;
  ONEBIT_ASSIGN_OR_RETURN(auto joined, onebit::Comm::Join(options));
  *comm = new onebitComm_s(std::move(joined));
  return OkStatus();
}

Status InitRank(onebitComm_t* comm, int ranks, const onebitUniqueId& id, int rank,
                const onebitConfig_t* config) {
  if (comm == nullptr) return Error(Code::kInvalidArgument, "comm is NULL");
  ONEBIT_TRY(CheckRank(rank, ranks));
  ONEBIT_ASSIGN_OR_RETURN(const onebit::SettingsTable* table, onebit::ProcessSettings());
  ONEBIT_ASSIGN_OR_RETURN(auto options, onebit::ParseCommConfig(config, *table, rank, ranks));
  ONEBIT_ASSIGN_OR_RETURN(const onebit::UniqueId place, onebit::DecodeUniqueId(id.internal));
  options.locate = [place] { return onebit::Result<onebit::UniqueId>(place); };
  return Join(std::move(options), table->settings, comm);
}

// A variable that is set to nothing is rather a mistake than the wish to have no secret.
Status CheckSecrets(const onebit::SettingsTable& table) {
  for (const auto& [variable, value] :
       {std::pair{"ONEBIT_SECRET", &table.settings.secret},
        std::pair{"ONEBIT_SECRET_FILE", &table.settings.secret_file}}) {
    if (table.IsSet(variable) && value->empty()) {
      return Error(
          Code::kInvalidUsage,
          "environment variable {} is set to nothing: give it a value, or unset it to start "
          "without a secret",
          variable);
    }
  }
  return OkStatus();
}

Status InitEnv(onebitComm_t* comm, const onebitConfig_t* config) {
  if (comm == nullptr) return Error(Code::kInvalidArgument, "comm is NULL");
  ONEBIT_ASSIGN_OR_RETURN(const onebit::SettingsTable* table, onebit::ProcessSettings());
  ONEBIT_ASSIGN_OR_RETURN(const onebit::LaunchEnvironment launch,
                          onebit::ReadLaunchEnvironment(onebit::ProcessEnvironment()));
  ONEBIT_ASSIGN_OR_RETURN(auto options,
                          onebit::ParseCommConfig(config, *table, launch.rank, launch.ranks));
  ONEBIT_TRY(CheckSecrets(*table));
  if (launch.ranks == 1) {
    ONEBIT_ASSIGN_OR_RETURN(const onebit::Transport* local, onebit::Transport::Get("local"));
    ONEBIT_ASSIGN_OR_RETURN(auto group, onebit::Comm::CreateLocalGroup(*local, 1, options.comm));
    *comm = new onebitComm_s(std::move(group.front()));
    return OkStatus();
  }
  onebit::MeetingOptions meeting = MeetingOptionsOf(table->settings);
  meeting.connect_timeout = options.control.connect_timeout;
  options.control.is_place_reused = true;
  ONEBIT_ASSIGN_OR_RETURN(onebit::MeetingPoint point,
                          onebit::MeetAt(launch.rendezvous, launch.rank, meeting));
  options.locate = std::move(point.locate);
  options.is_location_final = point.is_final;
  options.control.place_source = point.source;
  Status status = Join(std::move(options), table->settings, comm);
  if (!status.ok() && point.give_up) point.give_up();
  return status;
}

}  // namespace

onebitResult_t onebitGetUniqueId(onebitUniqueId* id) {
  return Guard([&] { return GetUniqueId(id); });
}

onebitResult_t onebitCommInitRank(onebitComm_t* comm, int nranks, onebitUniqueId id, int rank) {
  return Guard([&] { return InitRank(comm, nranks, id, rank, nullptr); });
}

onebitResult_t onebitCommInitRankConfig(onebitComm_t* comm, int nranks, onebitUniqueId id, int rank,
                                        const onebitConfig_t* config) {
  return Guard([&] { return InitRank(comm, nranks, id, rank, config); });
}

onebitResult_t onebitCommInitEnv(onebitComm_t* comm, const onebitConfig_t* config) {
  return Guard([&] { return InitEnv(comm, config); });
}

onebitResult_t onebitCommFinalize(onebitComm_t comm) {
  return Guard([&]() -> Status {
    if (comm == nullptr) return Error(Code::kInvalidArgument, "comm is NULL");
    ONEBIT_TRY(comm->engine.Barrier());
    comm->comm->Finalize();
    return OkStatus();
  });
}
