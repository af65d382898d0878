// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Communicators of processes in the C API.
#include <array>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "api/comm_config.h"
#include "api/handles.h"
#include "api/host_stream_calls.h"
#include "api/memory_location.h"
#include "comm/launch_environment.h"
#include "comm/rendezvous.h"
#include "exec/run_calls.h"
#include "transport/process_settings.h"
#include "transport/transport.h"

using onebit::Code;
using onebit::Error;
using onebit::Guard;
using onebit::OkStatus;
using onebit::Status;

namespace {

static_assert(sizeof(onebitUniqueId) == onebit::kUniqueIdBytes);

onebit::RendezvousOptions RendezvousOptionsOf(const onebit::Settings& settings) {
  return {.interfaces = settings.socket_interfaces,
          .secret = settings.secret,
          .secret_file = settings.secret_file};
}

Status GetUniqueId(onebitUniqueId* id) {
  if (id == nullptr) return Error(Code::kInvalidArgument, "id is NULL");
  ONEBIT_ASSIGN_OR_RETURN(const onebit::SettingsTable* table, onebit::ProcessSettings());
  ONEBIT_ASSIGN_OR_RETURN(const onebit::UniqueId made,
                          onebit::OpenRendezvous(RendezvousOptionsOf(table->settings)));
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
    return Error(Code::kInvalidArgument, "rank is {}: with nranks {} it must be 0 to {}", rank,
                 ranks, ranks - 1);
  }
  return OkStatus();
}

// Must precede the start of a transport, so that a wrong interface name is an error and not a
// time-out.
Status UseInterfaces(const onebit::Settings& settings) {
  ONEBIT_ASSIGN_OR_RETURN(const std::string interfaces,
                          onebit::SelectedInterfaces(RendezvousOptionsOf(settings)));
  onebit::Transport::UseInterfaces(interfaces);
  return OkStatus();
}

// A communicator of one rank needs no transport and may name one that does not exist. Without CUDA
// there are no streams, so the transport is not loaded.
bool IsStreamOrdered(const std::string& transport) {
  if (onebit::FindDevices() == nullptr) return false;
  const auto found = onebit::Transport::Get(transport);
  return found.ok() && found.value()->is_stream_ordered();
}

Status Join(onebit::JoinOptions options, const onebit::Settings& settings, onebitComm_t* comm) {
  ONEBIT_TRY(UseInterfaces(settings));
  const bool is_stream_ordered = IsStreamOrdered(options.transport);
  if (options.control.ranks == 1) {  // one rank sends nothing
    options.transport = "local";
    options.group = nullptr;
  }
  options.interfaces = settings.socket_interfaces;
  ONEBIT_ASSIGN_OR_RETURN(auto joined, onebit::Comm::Join(options));
  const bool has_streams = is_stream_ordered || joined->is_stream_ordered();
  ONEBIT_ASSIGN_OR_RETURN(auto handle, onebit::NewHandle(std::move(joined), has_streams));
  *comm = handle.release();
  return OkStatus();
}

Status InitRank(onebitComm_t* comm, int ranks, const onebitUniqueId& id, int rank,
                const onebitConfig_t* config) {
  if (comm == nullptr) return Error(Code::kInvalidArgument, "comm is NULL");
  ONEBIT_TRY(CheckRank(rank, ranks));
  ONEBIT_ASSIGN_OR_RETURN(const onebit::SettingsTable* table, onebit::ProcessSettings());
  ONEBIT_ASSIGN_OR_RETURN(auto options, onebit::ParseCommConfig(config, *table, rank, ranks));
  ONEBIT_ASSIGN_OR_RETURN(const onebit::UniqueId unique_id, onebit::DecodeUniqueId(id.internal));
  options.locate = onebit::LocateAt(unique_id);
  return Join(std::move(options), table->settings, comm);
}

// A variable that is set but empty is more likely a mistake than a wish for no secret.
Status CheckSecrets(const onebit::SettingsTable& table) {
  for (const auto& [variable, value] :
       {std::pair{"ONEBIT_SECRET", table.settings.secret},
        std::pair{"ONEBIT_SECRET_FILE", table.settings.secret_file}}) {
    if (table.IsSet(variable) && *value == '\0') {
      return Error(Code::kInvalidUsage,
                   "environment variable {} is empty: give it a value, or unset it to start "
                   "without a secret",
                   variable);
    }
  }
  return OkStatus();
}

Status MakeCommOfOne(const onebit::JoinOptions& join, onebitComm_t* comm) {
  ONEBIT_ASSIGN_OR_RETURN(const onebit::Transport* local, onebit::Transport::Get("local"));
  ONEBIT_ASSIGN_OR_RETURN(auto group, onebit::Comm::CreateLocalGroup(*local, 1, join.comm));
  ONEBIT_ASSIGN_OR_RETURN(
      auto handle, onebit::NewHandle(std::move(group.front()), IsStreamOrdered(join.transport)));
  *comm = handle.release();
  return OkStatus();
}

// Rank 0 opens the rendezvous. If it cannot, it tells the others, which would wait otherwise.
onebit::Result<onebit::UniqueId> ShareRendezvous(const onebit::NativeGroup& group,
                                                 const onebit::Settings& settings,
                                                 uint64_t timeout_ms) {
  std::array<char, onebit::kUniqueIdBytes> bytes{};
  Status status;
  if (group.rank() == 0) {
    const auto made = onebit::OpenRendezvous(RendezvousOptionsOf(settings));
    status = made.status();
    if (made.ok()) bytes = onebit::EncodeUniqueId(made.value());
  }
  ONEBIT_TRY(group.Broadcast(std::as_writable_bytes(std::span(bytes)), timeout_ms));
  ONEBIT_TRY(status);
  if (bytes == std::array<char, onebit::kUniqueIdBytes>{}) {
    return Error(Code::kRemoteError, "rank {}: rank 0 could not open a port where the ranks meet",
                 group.rank());
  }
  return onebit::DecodeUniqueId(bytes);
}

Status InitFrom(onebitComm_t* comm, const char* transport, const void* native, size_t native_bytes,
                const onebitConfig_t* config) {
  if (comm == nullptr) return Error(Code::kInvalidArgument, "comm is NULL");
  if (transport == nullptr) return Error(Code::kInvalidArgument, "transport is NULL");
  ONEBIT_ASSIGN_OR_RETURN(const onebit::SettingsTable* table, onebit::ProcessSettings());
  if (table->IsSet("ONEBIT_TRANSPORT") &&
      std::string_view(table->settings.transport) != transport) {
    return Error(Code::kInvalidUsage,
                 "environment variable ONEBIT_TRANSPORT is {}, but this function makes the "
                 "communicator from a communicator of {}: unset it",
                 table->settings.transport, transport);
  }
  ONEBIT_ASSIGN_OR_RETURN(auto options, onebit::ParseCommConfig(config, *table, 0, 1));
  options.transport = transport;
  ONEBIT_TRY(UseInterfaces(table->settings));
  ONEBIT_ASSIGN_OR_RETURN(const onebit::Transport* started, onebit::Transport::Get(transport));
  const auto timeout_ms = static_cast<uint64_t>(options.control.connect_timeout.count());
  ONEBIT_ASSIGN_OR_RETURN(const onebit::NativeGroup group,
                          onebit::NativeGroup::Adopt(*started, native, native_bytes, timeout_ms));
  if (group.ranks() == 1) return MakeCommOfOne(options, comm);
  options.control.rank = group.rank();
  options.control.ranks = group.ranks();
  ONEBIT_ASSIGN_OR_RETURN(const onebit::UniqueId unique_id,
                          ShareRendezvous(group, table->settings, timeout_ms));
  options.locate = onebit::LocateAt(unique_id);
  options.group = &group;
  return Join(std::move(options), table->settings, comm);
}

// MPI knows the ranks and can pass the address of the rendezvous to them.
constexpr std::string_view kMpi = "mpi";

Status InitEnv(onebitComm_t* comm, const onebitConfig_t* config) {
  if (comm == nullptr) return Error(Code::kInvalidArgument, "comm is NULL");
  ONEBIT_ASSIGN_OR_RETURN(const onebit::SettingsTable* table, onebit::ProcessSettings());
  ONEBIT_ASSIGN_OR_RETURN(const auto given, onebit::ParseCommConfig(config, *table, 0, 1));
  if (given.transport == kMpi && !table->IsSet("ONEBIT_RENDEZVOUS")) {
    ONEBIT_TRY(CheckSecrets(*table));
    return InitFrom(comm, given.transport.c_str(), nullptr, 0, config);
  }
  ONEBIT_ASSIGN_OR_RETURN(const onebit::LaunchEnvironment launch,
                          onebit::ReadLaunchEnvironment(onebit::ProcessEnvironment()));
  ONEBIT_ASSIGN_OR_RETURN(auto options,
                          onebit::ParseCommConfig(config, *table, launch.rank, launch.ranks));
  ONEBIT_TRY(CheckSecrets(*table));
  if (launch.ranks == 1) return MakeCommOfOne(options, comm);
  onebit::RendezvousOptions rendezvous = RendezvousOptionsOf(table->settings);
  rendezvous.connect_timeout = options.control.connect_timeout;
  rendezvous.job = options.control.job = launch.job;
  rendezvous.ranks = launch.ranks;
  options.control.is_address_reused = true;
  ONEBIT_ASSIGN_OR_RETURN(onebit::RendezvousPoint point,
                          onebit::ResolveRendezvous(launch.rendezvous, launch.rank, rendezvous));
  options.locate = std::move(point.locate);
  options.is_location_final = point.is_final;
  options.control.address_source = point.source;
  Status status = Join(std::move(options), table->settings, comm);
  if (!status.ok() && point.give_up) point.give_up();
  // A shell of sbatch or salloc has the variables of a job, whose ranks nobody has started.
  if (status.code() == Code::kTimeout && launch.source.starts_with("SLURM_")) {
    return Error(
        status.code(),
        "{}; {} made this process rank {} of {}: start all ranks by srun, or one rank alone "
        "by srun -n 1 or with RANK=0 WORLD_SIZE=1",
        status.text(), launch.source, launch.rank, launch.ranks);
  }
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

onebitResult_t onebitCommInitFrom(onebitComm_t* comm, const char* transport, const void* native,
                                  size_t nativeBytes, const onebitConfig_t* config) {
  return Guard([&] { return InitFrom(comm, transport, native, nativeBytes, config); });
}

onebitResult_t onebitCommFinalize(onebitComm_t comm) {
  return Guard([&]() -> Status {
    ONEBIT_TRY(onebit::CheckHandle(comm, "comm"));
    ONEBIT_TRY(onebit::CheckNonePending(comm->pending, "communicator"));
    ONEBIT_TRY(onebit::RunCall(comm->engine, {}).status());  // a barrier
    comm->comm->Finalize();
    return OkStatus();
  });
}
