// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Communicators derived from another one in the C API.
#include <algorithm>
#include <optional>
#include <vector>

#include "api/comm_config.h"
#include "api/handles.h"
#include "api/host_stream_calls.h"
#include "comm/regroup.h"
#include "transport/process_settings.h"

using onebit::Code;
using onebit::Comm;
using onebit::Error;
using onebit::Guard;
using onebit::OkStatus;
using onebit::Result;
using onebit::Status;

namespace {

// Options of a new communicator; no value if `config` is null, which means those of `comm`.
Result<std::optional<onebit::JoinOptions>> OptionsOf(const onebitConfig_t* config,
                                                     const Comm& comm) {
  if (config == nullptr) return std::optional<onebit::JoinOptions>();
  ONEBIT_ASSIGN_OR_RETURN(const onebit::SettingsTable* table, onebit::ProcessSettings());
  ONEBIT_ASSIGN_OR_RETURN(auto options,
                          onebit::ParseCommConfig(config, *table, comm.rank(), comm.ranks()));
  if (config->transport != nullptr && config->transport != comm.transport_name()) {
    return Error(Code::kInvalidArgument,
                 "config: transport is \"{}\", but the ranks of this communicator use \"{}\": "
                 "leave it at NULL",
                 config->transport, comm.transport_name());
  }
  return std::optional(std::move(options));
}

const onebit::JoinOptions* PointerTo(const std::optional<onebit::JoinOptions>& options) {
  return options ? &*options : nullptr;
}

Status MakeHandle(std::unique_ptr<Comm> made, const onebitComm_s& parent, onebitComm_t* handle) {
  if (made == nullptr) {
    *handle = nullptr;
    return OkStatus();
  }
  ONEBIT_ASSIGN_OR_RETURN(auto owned,
                          onebit::NewHandle(std::move(made), parent.engine.is_stream_ordered()));
  *handle = owned.release();
  return OkStatus();
}

Status Split(onebitComm_t comm, int color, int key, onebitComm_t* newcomm,
             const onebitConfig_t* config) {
  ONEBIT_TRY(onebit::CheckHandle(comm, "comm"));
  if (newcomm == nullptr) return Error(Code::kInvalidArgument, "newcomm is NULL");
  ONEBIT_ASSIGN_OR_RETURN(const auto options, OptionsOf(config, *comm->comm));
  ONEBIT_TRY(comm->comm->Enter());
  const onebit::CommUse use(*comm->comm);
  ONEBIT_TRY(onebit::CheckNonePending(comm->pending, "communicator"));
  ONEBIT_ASSIGN_OR_RETURN(auto made,
                          onebit::Regroup(*comm->comm, PointerTo(options)).Split(color, key));
  return MakeHandle(std::move(made), *comm, newcomm);
}

Result<std::vector<int>> ReadExcluded(const Comm& comm, const int* list, int count) {
  if (count < 0 || (count > 0 && list == nullptr)) {
    return Error(Code::kInvalidArgument, "excludeRanksList is {}, but excludeRanksCount is {}",
                 list == nullptr ? "NULL" : "not NULL", count);
  }
  std::vector<int> excluded(list, list + count);
  std::ranges::sort(excluded);
  excluded.erase(std::unique(excluded.begin(), excluded.end()), excluded.end());
  for (const int rank : excluded) {
    if (rank < 0 || rank >= comm.ranks()) {
      return Error(Code::kInvalidArgument, "excludeRanksList has rank {}, but ranks are 0 to {}",
                   rank, comm.ranks() - 1);
    }
    if (rank == comm.rank()) {
      return Error(
          Code::kInvalidUsage,
          "rank {}: this rank is excluded: only the ranks that remain may call onebitCommShrink",
          rank);
    }
  }
  return excluded;
}

Status Shrink(onebitComm_t comm, const int* list, int count, onebitComm_t* newcomm,
              const onebitConfig_t* config, int flags) {
  ONEBIT_TRY(onebit::CheckHandle(comm, "comm"));
  if (newcomm == nullptr) return Error(Code::kInvalidArgument, "newcomm is NULL");
  if (flags != ONEBIT_SHRINK_DEFAULT && flags != ONEBIT_SHRINK_ABORT) {
    return Error(
        Code::kInvalidArgument,
        "shrinkFlags is {}, but must be ONEBIT_SHRINK_DEFAULT (0) or ONEBIT_SHRINK_ABORT (1)",
        flags);
  }
  ONEBIT_ASSIGN_OR_RETURN(const auto options, OptionsOf(config, *comm->comm));
  ONEBIT_ASSIGN_OR_RETURN(const std::vector<int> excluded, ReadExcluded(*comm->comm, list, count));
  if (flags == ONEBIT_SHRINK_ABORT) comm->comm->Abort();
  ONEBIT_TRY(onebit::AwaitPending(comm));
  ONEBIT_TRY(comm->comm->Acquire());
  const onebit::CommUse use(*comm->comm);
  ONEBIT_ASSIGN_OR_RETURN(auto made,
                          onebit::Regroup(*comm->comm, PointerTo(options)).Shrink(excluded));
  return MakeHandle(std::move(made), *comm, newcomm);
}

}  // namespace

onebitResult_t onebitCommSplit(onebitComm_t comm, int color, int key, onebitComm_t* newcomm,
                               const onebitConfig_t* config) {
  return Guard([&] { return Split(comm, color, key, newcomm, config); });
}

onebitResult_t onebitCommShrink(onebitComm_t comm, const int* excludeRanksList,
                                int excludeRanksCount, onebitComm_t* newcomm,
                                const onebitConfig_t* config, int shrinkFlags) {
  return Guard([&] {
    return Shrink(comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags);
  });
}
