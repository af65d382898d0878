// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/device_ranks.h"

#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda/cuda_test_memory.h"

namespace onebit::testing {
namespace {

void Check(onebitResult_t result, const char* what) {
  if (result == onebitSuccess) return;
  throw std::runtime_error(std::string(what) + ": " + onebitGetLastError(nullptr));
}

int DeviceOf(int rank) { return rank % CudaDeviceCount(); }

onebitComm_t Join(const char* transport, int ranks, const onebitUniqueId& id, int rank,
                  int host_ranks) {
  onebitConfig_t config = ONEBIT_CONFIG_INIT;
  config.transport = transport;
  config.hostRanks = host_ranks;
  onebitComm_t comm = nullptr;
  Check(onebitCommInitRankConfig(&comm, ranks, id, rank, &config), "onebitCommInitRankConfig");
  return comm;
}

}  // namespace

void RunDeviceRanks(Over over, int ranks,
                    const std::function<void(onebitComm_t comm, int rank)>& body, int host_ranks) {
  std::vector<onebitComm_t> comms(static_cast<size_t>(ranks), nullptr);
  // Transport local has no config that could name hosts, and a process reads variables once.
  const char* const joined = over == Over::kNccl ? "nccl" : host_ranks != 0 ? "socket" : nullptr;
  onebitUniqueId id;
  if (joined != nullptr) {
    Check(onebitGetUniqueId(&id), "onebitGetUniqueId");
  } else {
    UseCudaDevice(0);
    std::vector<int> devices;
    for (int rank = 0; rank < ranks; ++rank) devices.push_back(DeviceOf(rank));
    Check(onebitCommInitAll(comms.data(), ranks, devices.data()), "onebitCommInitAll");
  }
  std::mutex mutex;
  std::exception_ptr first_exception;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      onebitComm_t& comm = comms[static_cast<size_t>(rank)];
      try {
        UseCudaDevice(DeviceOf(rank));
        if (joined != nullptr) comm = Join(joined, ranks, id, rank, host_ranks);
        body(comm, rank);
      } catch (...) {
        {
          const std::lock_guard lock(mutex);
          if (!first_exception) first_exception = std::current_exception();
        }
        if (comm != nullptr) onebitCommAbort(comm);  // the other ranks' errors follow from this
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const onebitComm_t comm : comms) onebitCommDestroy(comm);
  if (first_exception) std::rethrow_exception(first_exception);
}

void RunDeviceRanksInOneThread(Over over, int ranks,
                               const std::function<void(std::span<const onebitComm_t>)>& body) {
  std::vector<onebitComm_t> comms(static_cast<size_t>(ranks));
  std::latch have_joined(ranks);
  std::latch is_over(1);
  RunDeviceRanks(over, ranks, [&](onebitComm_t comm, int rank) {
    comms[static_cast<size_t>(rank)] = comm;
    have_joined.arrive_and_wait();
    if (rank != 0) return is_over.wait();
    const CountDown end(is_over);
    body(comms);
  });
}

}  // namespace onebit::testing
