// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Communicators of the C API.
#include <algorithm>
#include <vector>

#include "api/comm_config.h"
#include "api/group_calls.h"
#include "api/handles.h"
#include "api/host_stream_calls.h"
#include "api/memory_location.h"
#include "base/log.h"
#include "exec/run_calls.h"
#include "transport/process_settings.h"
#include "transport/transport.h"

using onebit::Code;
using onebit::Error;
using onebit::Guard;
using onebit::OkStatus;
using onebit::Result;
using onebit::Status;

onebitComm_s::onebitComm_s(std::unique_ptr<onebit::Comm> c) : comm(std::move(c)), engine(*comm) {}

onebitComm_s::~onebitComm_s() = default;

Result<std::unique_ptr<onebitComm_s>> onebit::NewHandle(std::unique_ptr<Comm> comm,
                                                        bool is_stream_ordered) {
  auto handle = std::make_unique<onebitComm_s>(std::move(comm));
  ONEBIT_ASSIGN_OR_RETURN(const SettingsTable* table, ProcessSettings());
  const char* const trace = table->settings.trace;
  if (*trace != '\0') ONEBIT_TRY(handle->engine.Trace(trace));
  if (!is_stream_ordered) return handle;
  ONEBIT_ASSIGN_OR_RETURN(const Devices* const devices, GetDevices());
  ONEBIT_ASSIGN_OR_RETURN(const int device, devices->Current());
  ONEBIT_TRY(handle->engine.OrderByStreams(*devices, device));
  // NCCL connects two ranks at their first message, and each waits for the other. Here all ranks
  // are present, so later calls do not wait for connections.
  ONEBIT_TRY(RunCall(handle->engine, {}).status());  // a barrier
  return handle;
}

namespace {

constexpr int kMaxLocalRanks = 1024;

// Sets the device whose memory the communicator's calls use.
Status BindDevice(onebitComm_s& comm, int device) {
  ONEBIT_ASSIGN_OR_RETURN(const onebit::Devices* const found, onebit::GetDevices());
  if (device < 0 || device >= found->count()) {
    return Error(Code::kInvalidArgument,
                 "devices has {} for rank {}, but there are {} CUDA devices, counted from 0",
                 device, comm.comm->rank(), found->count());
  }
  ONEBIT_TRY(comm.engine.UseDevice(*found, device));
  return comm.engine.proxy()->ReserveForDense();
}

Status InitAll(onebitComm_t* comms, int ranks, const int* devices) {
  if (comms == nullptr) return Error(Code::kInvalidArgument, "comms is NULL");
  if (ranks < 1 || ranks > kMaxLocalRanks) {
    return Error(Code::kInvalidArgument, "n is {}: one process can hold 1 to {} ranks", ranks,
                 kMaxLocalRanks);
  }
  ONEBIT_ASSIGN_OR_RETURN(const onebit::SettingsTable* table, onebit::ProcessSettings());
  // WARN is the default and logs nothing as long as all is well.
  if (table->settings.log_level() != onebit::LogLevel::kWarn) {
    onebit::Log(onebit::LogLevel::kVersion, "onebit version {}.{}.{}", ONEBIT_MAJOR, ONEBIT_MINOR,
                ONEBIT_PATCH);
  }
  const onebit::CommOptions options = onebit::CommOptionsOf(table->settings);
  ONEBIT_ASSIGN_OR_RETURN(const onebit::Transport* transport, onebit::Transport::Get("local"));
  ONEBIT_ASSIGN_OR_RETURN(auto group, onebit::Comm::CreateLocalGroup(*transport, ranks, options));
  std::vector<std::unique_ptr<onebitComm_s>> handles;
  for (auto& comm : group) {
    const int rank = comm->rank();
    ONEBIT_ASSIGN_OR_RETURN(auto handle, onebit::NewHandle(std::move(comm), false));
    if (devices != nullptr) ONEBIT_TRY(BindDevice(*handle, devices[rank]));
    handles.push_back(std::move(handle));
  }
  for (size_t r = 0; r < handles.size(); ++r) comms[r] = handles[r].release();
  return OkStatus();
}

template <typename T>
onebitResult_t Tell(onebitComm_t comm, T* value, const char* name, auto&& get) {
  return Guard([&]() -> Status {
    ONEBIT_TRY(onebit::CheckHandle(comm, "comm"));
    if (value == nullptr) return Error(Code::kInvalidArgument, "{} is NULL", name);
    *value = get(*comm->comm);
    return OkStatus();
  });
}

}  // namespace

onebitResult_t onebitCommInitAll(onebitComm_t* comms, int n, const int* devices) {
  return Guard([&] { return InitAll(comms, n, devices); });
}

onebitResult_t onebitCommDestroy(onebitComm_t comm) {
  return Guard([&]() -> Status {
    // In a forked child nothing is freed: the parent's threads may have held locks of it.
    if (comm == nullptr || !comm->origin.is_here()) return OkStatus();
    ONEBIT_TRY(onebit::AwaitPending(comm));  // first, because each pending call acquires it
    if (comm->comm->is_in_call()) {
      return Error(Code::kInvalidUsage,
                   "rank {}: another thread is inside a call on this communicator; "
                   "onebitCommAbort ends it",
                   comm->comm->rank());
    }
    if (onebit::Group::OfThisThread().Has(comm)) {
      return Error(Code::kInvalidUsage,
                   "rank {}: this thread's open group has calls on this communicator; call "
                   "onebitGroupEnd first",
                   comm->comm->rank());
    }
    comm->link->comm.store(nullptr, std::memory_order_release);
    delete comm;
    return OkStatus();
  });
}

onebitResult_t onebitCommAbort(onebitComm_t comm) {
  return Guard([&]() -> Status {
    ONEBIT_TRY(onebit::CheckHandle(comm, "comm"));
    comm->comm->Abort();
    return OkStatus();
  });
}

onebitResult_t onebitCommGetAsyncError(onebitComm_t comm, onebitResult_t* result) {
  return Tell(comm, result, "result", [comm](onebit::Comm& c) {
    static_cast<void>(comm->engine.CheckStreams());  // finds late failures
    return static_cast<onebitResult_t>(c.FindFailure().code());
  });
}

onebitResult_t onebitCommGetLost(onebitComm_t comm, int* ranks, int* count) {
  return Guard([&]() -> Status {
    ONEBIT_TRY(onebit::CheckHandle(comm, "comm"));
    if (count == nullptr) return Error(Code::kInvalidArgument, "count is NULL");
    const size_t room = ranks == nullptr ? 0 : static_cast<size_t>(std::max(*count, 0));
    if (ranks != nullptr && *count < 0) {
      return Error(Code::kInvalidArgument,
                   "count is {}, but must be the capacity of `ranks`, 0 or more", *count);
    }
    const std::vector<int> lost = comm->comm->FindLostRanks();
    std::copy_n(lost.begin(), std::min(room, lost.size()), ranks);
    *count = static_cast<int>(lost.size());
    return OkStatus();
  });
}

onebitResult_t onebitCommCount(onebitComm_t comm, int* count) {
  return Tell(comm, count, "count", [](onebit::Comm& c) { return c.ranks(); });
}

onebitResult_t onebitCommUserRank(onebitComm_t comm, int* rank) {
  return Tell(comm, rank, "rank", [](onebit::Comm& c) { return c.rank(); });
}

onebitResult_t onebitCommGetStats(onebitComm_t comm, onebitCommStats_t* stats) {
  return Guard([&]() -> Status {
    ONEBIT_TRY(onebit::CheckHandle(comm, "comm"));
    if (stats == nullptr) return Error(Code::kInvalidArgument, "stats is NULL");
    const onebit::CommCounters& counters = comm->comm->counters();
    const auto read = [](const std::atomic<uint64_t>& counter) {
      return counter.load(std::memory_order_relaxed);
    };
    const onebit::HostMap& hosts = comm->comm->hosts();
    const uint32_t host = hosts.HostOf(static_cast<uint32_t>(comm->comm->rank()));
    const onebitCommStats_t ours = {
        .size = sizeof(ours),
        .dense_calls = read(counters.dense_calls),
        .compressed_calls = read(counters.compressed_calls),
        .nonfinite_calls = read(counters.nonfinite_calls) + comm->engine.nonfinite_stream_calls(),
        .failed_calls = read(counters.failed_calls),
        .logical_bytes = read(counters.logical_bytes),
        .bytes_sent = read(counters.bytes_sent),
        .messages_sent = read(counters.messages_sent),
        .codec_ns = read(counters.codec_ns),
        .call_ns = read(counters.call_ns),
        .compute_threads = read(counters.compute_threads),
        .native_calls = read(counters.native_calls),
        .hosts = hosts.hosts(),
        .host = host,
        .host_ranks = hosts.RanksOn(host).size(),
        .two_level_calls = read(counters.two_level_calls),
        .network_bytes = read(counters.network_bytes),
    };
    return onebit::CopyStats(&ours, sizeof(ours), stats);
  });
}
