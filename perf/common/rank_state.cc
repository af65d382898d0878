// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Creates or joins communicators, and allocates buffers on the thread of each rank.
#include "perf/common/rank_state.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "perf/common/comm_stats.h"
#include "perf/common/device_calls.h"
#include "perf/common/library_setting.h"
#include "perf/common/rank_environment.h"
#include "perf/common/rank_exchange.h"
#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

// Returns the device of each thread and makes the first one current; empty for host memory.
std::vector<int> DevicesOfThreads(const Options& options) {
  std::vector<int> devices;
  if (!options.device.is_cuda) return devices;
  for (int rank = 0; rank < options.ranks.threads; ++rank) {
    devices.push_back(CudaDeviceOf(options.device, rank));
  }
  UseCudaDevice(devices.front());
  return devices;
}

std::vector<CommHandle> LocalComms(const Options& options) {
  const std::vector<int> devices = DevicesOfThreads(options);
  const int threads = options.ranks.threads;
  std::vector<onebitComm_t> comms(static_cast<size_t>(threads));
  Check(onebitCommInitAll(comms.data(), threads, devices.empty() ? nullptr : devices.data()),
        "onebitCommInitAll");
  std::vector<CommHandle> handles;
  for (onebitComm_t comm : comms) handles.emplace_back(comm);
  return handles;
}

// Joins threads to a communicator as if they were processes, each with its device.
std::vector<CommHandle> JoinedComms(const Options& options) {
  const std::vector<int> devices = DevicesOfThreads(options);
  onebitUniqueId id;
  Check(onebitGetUniqueId(&id), "onebitGetUniqueId");
  onebitConfig_t config = ONEBIT_CONFIG_INIT;
  config.transport = options.transport.c_str();
  std::vector<CommHandle> handles(devices.size());
  std::vector<std::exception_ptr> failures(devices.size());
  std::vector<std::jthread> threads;
  for (size_t rank = 0; rank < devices.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        UseCudaDevice(devices[rank]);
        onebitComm_t comm = nullptr;
        Check(onebitCommInitRankConfig(&comm, static_cast<int>(devices.size()), id,
                                       static_cast<int>(rank), &config),
              "onebitCommInitRankConfig");
        handles[rank].reset(comm);
      } catch (...) {
        failures[rank] = std::current_exception();
      }
    });
  }
  threads.clear();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return handles;
}

// A RankInfo without pointers, which can be sent to other ranks.
struct RankInfoRecord {
  int pid;
  int cuda_device;      // negative: none
  int64_t host_number;  // negative: not known
  char host[64];
  char cuda_name[128];
};

// Returns how many successive ranks of this process are one host, as its settings say; no value if
// they are in error, which the ranks report when they are made.
std::optional<uint64_t> HostRanksOfThreads() {
  try {
    const uint64_t set = std::stoull(SettingValue("ONEBIT_HOST_RANKS"));
    return set == 0 || !SettingValue(kHostVariable).empty() ? UINT64_MAX : set;
  } catch (const ToolError&) {
    return std::nullopt;
  }
}

// Truncates the text to leave a terminating zero.
template <size_t kSize>
void CopyText(const std::string& text, char (&field)[kSize]) {
  std::memcpy(field, text.data(), std::min(text.size(), kSize - 1));
}

}  // namespace

RankCall RankState::CallAt(size_t send_at, size_t recv_at, onebitCompressor_t with) const {
  RankCall call = {send.data() + send_at, const_cast<std::byte*>(recv.data()) + recv_at, with,
                   comm.get()};
  if (with != nullptr) call.receiver = receiver.get();
  if (device == nullptr) return call;
  call.send = device->send.data() + send_at;
  call.recv = device->recv.data() + recv_at;
  call.stream = device->stream.get();
  return call;
}

RankCall RankState::CallInPlaceAt(size_t send_at, size_t recv_at, onebitCompressor_t with) const {
  RankCall call = CallAt(0, recv_at, with);
  call.send = static_cast<std::byte*>(call.recv) - recv_at + send_at;
  return call;
}

void RankState::PublishSend(size_t bytes) {
  if (device == nullptr) return;
  device->stream.Copy(device->send.data(), send.data(), bytes);
  device->stream.Synchronize();
}

void RankState::FetchRecv(size_t at, size_t bytes) {
  if (device == nullptr) return;
  device->stream.Copy(recv.data() + at, device->recv.data() + at, bytes);
  device->stream.Synchronize();
}

void RankState::FillRecv(uint8_t value, size_t bytes) {
  if (bytes == 0) return;
  if (device == nullptr) {
    std::memset(recv.data(), value, bytes);
    return;
  }
  device->stream.Fill(device->recv.data(), value, bytes);
  device->stream.Synchronize();
}

void RankState::CopySendToRecv(size_t from, size_t to, size_t bytes) {
  if (bytes == 0) return;
  if (device == nullptr) {
    std::memcpy(recv.data() + to, send.data() + from, bytes);
    return;
  }
  device->stream.Copy(device->recv.data() + to, device->send.data() + from, bytes);
  device->stream.Synchronize();
}

// Polls, as nccl-tests does, because being woken would take longer than a small call. It also looks
// for errors: a call that failed may leave the stream waiting.
void RankState::Await() const {
  if (device != nullptr) AwaitCalls(comm.get(), device->stream);
}

Ranks::Ranks(std::vector<CommHandle> comms, int first, size_t buffer_bytes, DeviceChoice device,
             size_t allocated_bytes)
    : first_(first), buffer_bytes_(buffer_bytes), device_(device), states_(comms.size()) {
  links_.reserve(comms.size());
  for (size_t i = 0; i < comms.size(); ++i) {
    states_[i].link = &links_.emplace_back(comms[i].get());
    states_[i].comm = std::move(comms[i]);
  }
  Start(std::max(buffer_bytes, allocated_bytes));
}

Ranks::Ranks(RankLink& link, size_t buffer_bytes, size_t allocated_bytes)
    : first_(link.rank()), buffer_bytes_(buffer_bytes), states_(1) {
  states_.front().link = &link;
  Start(std::max(buffer_bytes, allocated_bytes));
}

void Ranks::Start(size_t allocated_bytes) {
  count_ = states_.front().link->ranks();
  pool_ = std::make_unique<RankPool>(first_, local_count(), [this] {
    for (RankState& state : states_) state.link->Release();
  });
  pool_->Run([this, allocated_bytes](int rank) {
    state(rank).send = Buffer(allocated_bytes);
    state(rank).recv = Buffer(allocated_bytes);
    if (!device_.is_cuda) return;
    UseCudaDevice(CudaDeviceOf(device_, rank));
    state(rank).device = std::make_unique<DeviceBuffers>(allocated_bytes);
  });
}

Ranks::~Ranks() {
  if (!is_finished_ && !are_all_local()) {
    for (RankState& state : states_) state.link->Release();
  }
  if (!device_.is_cuda) return;
  // NCCL destroys a communicator only together with its peers, so all ranks do it concurrently.
  try {
    pool().Run([this](int rank) {
      state(rank).compressor.reset();
      state(rank).receiver.reset();
      state(rank).comm.reset();
    });
  } catch (const ToolError&) {  // the failure was reported before
  }
}

void Ranks::Broadcast(std::span<std::byte> bytes, int root) {
  pool().Run([&](int rank) { state(rank).link->Broadcast(bytes, root); });
}

std::vector<RankInfo> Ranks::GatherInfo() {
  const auto records = GatherFromAll([this](int rank) {
    RankInfoRecord record = {
        .pid = getpid(), .cuda_device = -1, .host_number = -1, .host = {}, .cuda_name = {}};
    const onebitComm_t comm = state(rank).comm.get();
    if (comm != nullptr) record.host_number = static_cast<int64_t>(StatsOf(comm).host);
    CopyText(HostName(), record.host);
    if (device_.is_cuda) {
      record.cuda_device = CudaDeviceOf(device_, rank);
      CopyText(FactsOfCudaDevice(record.cuda_device).name, record.cuda_name);
    }
    return record;
  });
  std::vector<RankInfo> infos;
  for (const RankInfoRecord& record : records) {
    infos.push_back({.pid = record.pid, .host = record.host});
    if (record.host_number >= 0) {
      infos.back().host_number = static_cast<uint64_t>(record.host_number);
    }
    if (record.cuda_device < 0) continue;
    infos.back().cuda_device = record.cuda_device;
    infos.back().cuda_name = record.cuda_name;
  }
  return infos;
}

void Ranks::Finish() {
  if (!are_all_local()) {
    pool().Run([&](int rank) { state(rank).link->Finish(); });
  }
  is_finished_ = true;
}

std::vector<RankInfo> InfoOfThreads(const Options& options) {
  std::vector<RankInfo> infos;
  const std::optional<uint64_t> host_ranks = HostRanksOfThreads();
  for (int rank = 0; rank < options.ranks.threads; ++rank) {
    infos.push_back({.pid = getpid(), .host = HostName()});
    if (host_ranks) infos.back().host_number = static_cast<uint64_t>(rank) / *host_ranks;
    if (!options.device.is_cuda) continue;
    infos.back().cuda_device = CudaDeviceOf(options.device, rank);
    infos.back().cuda_name = FactsOfCudaDevice(*infos.back().cuda_device).name;
  }
  return infos;
}

std::unique_ptr<Ranks> MakeRanks(const Options& options) {
  const size_t buffer_bytes = std::max<size_t>(options.sweep.max_bytes, 1);
  if (!options.ranks.is_one_rank()) {
    auto comms =
        options.transport == kTransportOfDevices ? JoinedComms(options) : LocalComms(options);
    return std::make_unique<Ranks>(std::move(comms), 0, buffer_bytes, options.device,
                                   options.AllocatedBytes());
  }
  // A transport of devices joins with the device that is current.
  if (options.device.is_cuda) {
    UseCudaDevice(CudaDeviceOf(options.device, *options.ranks.launched_rank));
  }
  onebitComm_t comm = nullptr;
  Check(JoinProcesses(options.transport, &comm), "onebitCommInitEnv");
  std::vector<CommHandle> comms;
  comms.emplace_back(comm);
  const int rank = RankOf(comm);
  return std::make_unique<Ranks>(std::move(comms), rank, buffer_bytes, options.device,
                                 options.AllocatedBytes());
}

}  // namespace onebit::perf
