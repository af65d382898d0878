// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/preload/preloaded_program.h"

#include <gtest/gtest.h>

#include <chrono>
#include <climits>
#include <cstring>
#include <thread>

namespace onebit::testing {
namespace {

// ncclConfig_t of NCCL 2.27.
struct NamedConfig {
  ncclConfig_t head{.size = sizeof(NamedConfig),
                    .magic = 0xcafebeef,
                    .version = 22700,
                    .blocking = 1,
                    .cgaClusterSize = INT_MIN};
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
  int traffic_class = INT_MIN;
  const char* comm_name = nullptr;
};

std::vector<float> PartOf(const std::vector<float>& values, int rank) {
  const auto begin = values.begin() + static_cast<ptrdiff_t>(ScatteredTensor::kPart) * rank;
  return {begin, begin + ScatteredTensor::kPart};
}

}  // namespace

void RunNamed(const char* name, const std::function<void(Rank&)>& body) {
  UseCudaDevice(0);
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::barrier everybody(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      UseCudaDevice(rank);
      NamedConfig config;
      config.comm_name = name;
      ncclComm_t comm = nullptr;
      ASSERT_EQ(ncclCommInitRankConfig(&comm, kRanks, id, rank, &config.head), ncclSuccess);
      const CudaStream stream;
      Rank self{.rank = rank, .comm = comm, .stream = stream, .everybody = everybody};
      body(self);
      // A rank that frees memory waits for the devices of all threads.
      stream.Synchronize();
      everybody.arrive_and_wait();
      EXPECT_EQ(ncclCommDestroy(self.comm), ncclSuccess);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

ncclResult_t AwaitAsyncError(ncclComm_t comm) {
  ncclResult_t error = ncclSuccess;
  while (error == ncclSuccess) {
    EXPECT_EQ(ncclCommGetAsyncError(comm, &error), ncclSuccess);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return error;
}

std::vector<float> FloatsIn(const CudaBuffer& buffer) {
  const std::vector<std::byte> bytes = buffer.Read();
  std::vector<float> found(bytes.size() / sizeof(float));
  std::memcpy(found.data(), bytes.data(), bytes.size());
  return found;
}

ScatteredTensor::ScatteredTensor(const Rank& self, int number)
    : average_(PartOf(AverageGradient(kRanks, number, kRanks * kPart), self.rank)),
      send_(std::as_bytes(std::span<const float>(GradientOf(self.rank, number, kRanks * kPart)))),
      recv_(kPart * sizeof(float)) {}

ncclResult_t ScatteredTensor::ReduceScatter(const Rank& self,
                                            const ncclCollConfig_t* config) const {
  if (config == nullptr) {
    return ncclReduceScatter(send_.data(), recv_.data(), kPart, ncclFloat32, ncclAvg, self.comm,
                             self.stream.get());
  }
  return ncclReduceScatterConfig(send_.data(), recv_.data(), kPart, ncclFloat32, ncclAvg, self.comm,
                                 self.stream.get(), config);
}

double ScatteredTensor::ErrorOfResult(const Rank& self) const {
  self.stream.Synchronize();
  return RelativeError(FloatsIn(recv_), average_);
}

}  // namespace onebit::testing
