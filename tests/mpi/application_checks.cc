// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Communicators of MPI of every kind, its allreduce, and ranks that die.
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "tests/mpi/application_rank.h"

namespace onebit::testing {
namespace {

onebitComm_t CommOf(MPI_Comm native) {
  onebitComm_t comm = nullptr;
  Check(onebitCommInitMpi(&comm, native, nullptr), "onebitCommInitMpi");
  return comm;
}

onebitComm_t CommOfEnvironment() {
  onebitComm_t comm = nullptr;
  Check(onebitCommInitEnv(&comm, nullptr), "onebitCommInitEnv");
  return comm;
}

int RankOf(onebitComm_t comm) {
  int rank = -1;
  Check(onebitCommUserRank(comm, &rank), "onebitCommUserRank");
  return rank;
}

// Odd and even ranks of the world in opposite order. Messages of the application on the same
// communicator begin before the library's and end after them. With any source and any tag they
// would receive a message of the library, if it used this communicator.
void ApplicationTraffic() {
  const int world_rank = WorldRank();
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, -world_rank, &half);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(half, &rank);
  MPI_Comm_size(half, &ranks);
  const onebitComm_t comm = CommOf(half);
  Expect(RankOf(comm) == rank, "the ranks are not those of the MPI_Comm");
  const int next = (rank + 1) % ranks;
  const int previous = (rank + ranks - 1) % ranks;
  for (int i = 0; i < 30; ++i) {
    std::vector<int> sent(1 + 20'000 * (i % 3), 1000 * i + rank);
    std::vector<int> received(sent.size(), -1);
    MPI_Request requests[2];
    const int count = static_cast<int>(sent.size());
    MPI_Irecv(received.data(), count, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, half, &requests[0]);
    MPI_Isend(sent.data(), count, MPI_INT, next, i, half, &requests[1]);
    CheckAllReduce(comm);
    MPI_Status statuses[2];
    MPI_Waitall(2, requests, statuses);
    Expect(statuses[0].MPI_SOURCE == previous && statuses[0].MPI_TAG == i &&
               received.front() == 1000 * i + previous && received.back() == received.front(),
           "the application's message is another one");
  }
  MPI_Comm_free(&half);  // the library uses a duplicate
  onebitComm_t turned = nullptr;
  Check(onebitCommSplit(comm, 0, -rank, &turned, nullptr), "onebitCommSplit");
  Expect(RankOf(turned) == ranks - 1 - rank, "the split has another order");
  CheckAllReduce(turned);
  CheckAllReduce(comm);
  Check(onebitCommDestroy(turned), "onebitCommDestroy");
  Check(onebitCommDestroy(comm), "onebitCommDestroy");
}

// The library starts MPI, and ends it.
void StartedByTheLibrary() {
  const onebitComm_t comm = CommOfEnvironment();
  CheckAllReduce(comm);
  Check(onebitCommDestroy(comm), "onebitCommDestroy");
}

// An exit handler of the application that runs after MPI_Finalize, and takes longer than its time
// limit.
void LateExit() {
  std::atexit([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5500));
    std::puts("late");
  });
  StartedByTheLibrary();
}

// Communicators of the whole job and of parts, one after the other and at the same time.
void Splits() {
  const onebitComm_t comm = CommOfEnvironment();
  for (int i = 0; i < 5; ++i) {
    onebitComm_t part = nullptr;
    const int rank = RankOf(comm);
    Check(onebitCommSplit(comm, rank % 2, -rank, &part, nullptr), "onebitCommSplit");
    CheckAllReduce(part);
    CheckAllReduce(comm);
    Check(onebitCommDestroy(part), "onebitCommDestroy");
  }
  Check(onebitCommDestroy(comm), "onebitCommDestroy");
}

// Runs with ONEBIT_MPI_NATIVE_DENSE=1. The last call differs between ranks.
void NativeDense() {
  const onebitComm_t comm = CommOfEnvironment();
  const int ranks = WorldSize();
  for (const size_t count : {size_t{0}, size_t{1}, size_t{1000}, size_t{3'000'001}}) {
    for (const bool is_in_place : {false, true}) {
      std::vector<float> in(count), out(count, -1);
      for (size_t i = 0; i < count; ++i) in[i] = static_cast<float>(i % 1000 + RankOf(comm));
      float* const to = is_in_place ? in.data() : out.data();
      Check(onebitAllReduce(in.data(), to, count, onebitFloat32, onebitAvg, nullptr, comm, nullptr),
            "onebitAllReduce");
      const float mean = static_cast<float>(ranks - 1) / 2;
      for (size_t i = 0; i < count; ++i) {
        Expect(to[i] == static_cast<float>(i % 1000) + mean, "the average is wrong");
      }
    }
  }
  onebitCommStats_t stats{};
  stats.size = sizeof stats;
  Check(onebitCommGetStats(comm, &stats), "onebitCommGetStats");
  Expect(stats.bytes_sent < 100'000, "MPI's allreduce was not used");
  // MPI makes sums and averages of floats; the library itself makes all others.
  int64_t tokens = (int64_t{1} << 60) + RankOf(comm);
  Check(onebitAllReduce(&tokens, &tokens, 1, onebitInt64, onebitMax, nullptr, comm, nullptr),
        "onebitAllReduce");
  Expect(tokens == (int64_t{1} << 60) + ranks - 1, "the maximum of integers is wrong");
  float loss = static_cast<float>(RankOf(comm));
  Check(onebitAllReduce(&loss, &loss, 1, onebitFloat32, onebitMin, nullptr, comm, nullptr),
        "onebitAllReduce");
  Expect(loss == 0, "the minimum of floats is wrong");
  MPI_Barrier(MPI_COMM_WORLD);  // no rank is inside a call that the next one's error would end
  std::vector<float> values(101, 1);
  const size_t count = RankOf(comm) == 0 ? 100 : 101;
  Expect(onebitAllReduce(values.data(), values.data(), count, onebitFloat32, onebitSum, nullptr,
                         comm, nullptr) == onebitMismatch,
         "ranks with different counts did not find out");
  Expect(LastErrorHas("100") && LastErrorHas("101"), "the error does not name both counts");
  Check(onebitCommDestroy(comm), "onebitCommDestroy");
}

// Rank 1 is killed. Ranks that the launcher does not end must get an error by themselves. Survivors
// write it to a file, because a launcher that breaks loses their output.
void Killed() {
  std::signal(SIGUSR1, SIG_IGN);  // MPICH's launcher announces a death by it
  const onebitComm_t comm = CommOfEnvironment();
  CheckAllReduce(comm);
  MPI_Barrier(MPI_COMM_WORLD);  // a message that MPI counts as sent may still be with its sender
  if (WorldRank() == 1) raise(SIGKILL);
  std::vector<float> values(100'000, 1);
  onebitResult_t result = onebitSuccess;
  while (result == onebitSuccess) {
    result = onebitAllReduce(values.data(), values.data(), values.size(), onebitFloat32, onebitSum,
                             nullptr, comm, nullptr);
  }
  const char* const folder = std::getenv("SURVIVORS_FOLDER");
  Expect(folder != nullptr, "SURVIVORS_FOLDER is not set");
  const std::string path = std::string(folder).append("/").append(std::to_string(RankOf(comm)));
  std::FILE* const file = std::fopen(path.c_str(), "w");
  Expect(file != nullptr, "a survivor cannot leave its error");
  std::fputs(onebitGetLastError(nullptr), file);
  std::fclose(file);
  onebitCommDestroy(comm);
  std::exit(3);
}

// More bytes than an int can count. 2 ranks.
void Large() {
  const onebitComm_t comm = CommOfEnvironment();
  const size_t count = (size_t{1} << 29) + 1000;
  std::vector<float> values(count, -1);
  if (RankOf(comm) == 0) {
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 16'777'213);
  }
  Check(onebitBroadcast(values.data(), values.data(), count, onebitFloat32, 0, comm, nullptr),
        "onebitBroadcast");
  for (size_t i = 0; i < count; ++i) {
    Expect(values[i] == static_cast<float>(i % 16'777'213), "a value is wrong");
  }
  Check(onebitCommDestroy(comm), "onebitCommDestroy");
}

constexpr ApplicationCheck kChecks[] = {
    {"traffic", MPI_THREAD_MULTIPLE, ApplicationTraffic},
    {"traffic_single", MPI_THREAD_SINGLE, ApplicationTraffic},
    {"main_thread", MPI_THREAD_FUNNELED, RunOnMainThreadOnly},
    {"any_thread", MPI_THREAD_MULTIPLE, RunOnAnyThread},
    {"finalized", -1, RunAfterFinalize},
    {"library", -1, StartedByTheLibrary},
    {"late_exit", -1, LateExit},
    {"splits", -1, Splits},
    {"splits_serialized", MPI_THREAD_SERIALIZED, Splits},
    {"native", -1, NativeDense},
    {"killed", -1, Killed},
    {"large", -1, Large},
};

}  // namespace

std::span<const ApplicationCheck> ApplicationChecks() { return kChecks; }

void CheckAllReduce(onebitComm_t comm) {
  int rank = 0, ranks = 1;
  Check(onebitCommUserRank(comm, &rank), "onebitCommUserRank");
  Check(onebitCommCount(comm, &ranks), "onebitCommCount");
  const size_t count = 10'000;
  std::vector<float> in(count), out(count, -1);
  for (size_t i = 0; i < count; ++i) in[i] = static_cast<float>(i) + static_cast<float>(rank);
  Check(onebitAllReduce(in.data(), out.data(), count, onebitFloat32, onebitSum, nullptr, comm,
                        nullptr),
        "onebitAllReduce");
  for (size_t i = 0; i < count; ++i) {
    const size_t sum =
        i * static_cast<size_t>(ranks) + static_cast<size_t>(ranks * (ranks - 1) / 2);
    Expect(out[i] == static_cast<float>(sum), "the sum is wrong");
  }
  // Equal magnitudes survive compression.
  for (size_t i = 0; i < count; ++i) in[i] = i % 3 == 0 ? -2.0f : 2.0f;
  onebitCompressor_t compressor = nullptr;
  Check(onebitCompressorCreate(&compressor, comm, count, onebitFloat32, nullptr), "create");
  Check(onebitAllReduce(in.data(), out.data(), count, onebitFloat32, onebitAvg, compressor, comm,
                        nullptr),
        "compressed onebitAllReduce");
  for (size_t i = 0; i < count; ++i) Expect(out[i] == in[i], "a compressed value is wrong");
  Check(onebitCompressorDestroy(compressor), "onebitCompressorDestroy");
}

bool LastErrorHas(const std::string& text) {
  return std::string(onebitGetLastError(nullptr)).find(text) != std::string::npos;
}

}  // namespace onebit::testing
