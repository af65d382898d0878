// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads make calls under the ONEBIT_TRACE that trace_test.py gives:
//
//   trace_probe calls        calls of all kinds; prints the counters of each rank
//   trace_probe late RANK    RANK makes its call when a line arrives on stdin; prints the ids
//                            of the other ranks' threads first
//   trace_probe abort        rank 1 aborts while the others wait for it; the process ends at once
//   trace_probe leave        the process ends while its communicators live
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "onebit/onebit.hpp"

namespace {

constexpr int kRanks = 4;
constexpr size_t kCount = 100'000;

void Check(onebitResult_t result) {
  if (result == onebitSuccess) return;
  std::fprintf(stderr, "trace_probe: %s\n", onebit::Explain(result).c_str());
  std::_Exit(1);
}

onebit::UniqueCompressor NewCompressor(onebitComm_t comm, size_t count, onebitMode_t mode,
                                       onebitCodec_t codec, onebitCollective_t collective) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.mode = mode;
  config.codec = codec;
  config.collective = collective;
  onebit::UniqueCompressor compressor;
  Check(onebit::MakeCompressor(compressor, comm, count, onebitFloat32, &config));
  return compressor;
}

void MakeCalls(onebitComm_t comm, int rank) {
  std::vector<float> values(kCount * kRanks, 1.0f);
  std::vector<float> results(kCount * kRanks);
  float* const in = values.data();
  float* const out = results.data();
  const auto ef =
      NewCompressor(comm, kCount, onebitModeEf, onebitCodecSign, onebitCollectiveAllReduce);
  const auto fp4 =
      NewCompressor(comm, kCount, onebitModePlain, onebitCodecFp4, onebitCollectiveAllReduce);
  const auto gather =
      NewCompressor(comm, kCount, onebitModeEf, onebitCodecSign, onebitCollectiveAllGather);
  // Calls of a group may run at the same time, so each of them has its own part of the results.
  const auto reduce = [&](onebitCompressor_t compressor, size_t part = 0) {
    Check(onebitAllReduce(in, out + part * kCount, kCount, onebitFloat32, onebitAvg, compressor,
                          comm, nullptr));
  };
  for (int i = 0; i < 3; ++i) reduce(ef.get());
  reduce(fp4.get());
  reduce(nullptr);
  Check(onebitAllGather(in, out, kCount, onebitFloat32, gather.get(), comm, nullptr));
  Check(onebitReduceScatter(in, out, kCount, onebitFloat32, onebitSum, nullptr, comm, nullptr));
  Check(onebitAllToAll(in, out, kCount, onebitFloat32, nullptr, comm, nullptr));
  Check(onebitBroadcast(in, out, kCount, onebitFloat32, 2, comm, nullptr));
  Check(onebitBarrier(comm, nullptr));
  Check(onebitGroupStart());
  reduce(ef.get(), 0);
  reduce(fp4.get(), 1);
  reduce(nullptr, 2);
  Check(onebitGroupEnd());
  Check(onebitGroupStart());
  Check(onebitSend(in, 1000, onebitFloat32, (rank + 1) % kRanks, nullptr, comm, nullptr));
  Check(onebitRecv(out, 1000, onebitFloat32, (rank + kRanks - 1) % kRanks, nullptr, comm, nullptr));
  Check(onebitGroupEnd());
  onebitCommStats_t stats = {.size = sizeof(stats)};
  Check(onebitCommGetStats(comm, &stats));
  static std::atomic<int> turn{0};
  while (turn.load() != rank) std::this_thread::yield();
  std::printf("{\"rank\": %d, \"bytes_sent\": %llu, \"messages_sent\": %llu}\n", rank,
              static_cast<unsigned long long>(stats.bytes_sent),
              static_cast<unsigned long long>(stats.messages_sent));
  ++turn;
}

template <typename Body>
void RunRanks(const std::vector<onebitComm_t>& comms, const Body& body) {
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] { body(comms[static_cast<size_t>(rank)], rank); });
  }
}

onebitResult_t Reduce(onebitComm_t comm) {
  std::vector<float> values(1000, 1.0f);
  return onebitAllReduce(values.data(), values.data(), values.size(), onebitFloat32, onebitSum,
                         nullptr, comm, nullptr);
}

// Prints the ids of threads that are about to call.
class Announcement {
 public:
  void Make(int rank) {
    ids_[static_cast<size_t>(rank)] = syscall(SYS_gettid);
    ++made_;
  }
  void Print(int without) {
    while (made_.load() != kRanks - 1) std::this_thread::yield();
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank != without) std::printf("%ld\n", ids_[static_cast<size_t>(rank)]);
    }
    std::fflush(stdout);
  }

 private:
  std::vector<long> ids_ = std::vector<long>(kRanks);
  std::atomic<int> made_{0};
};

}  // namespace

int main(int argc, char** argv) {
  const std::string_view scenario = argc > 1 ? argv[1] : "";
  // Never freed, so that leak checkers find communicators that nobody destroys.
  static auto& comms = *new std::vector<onebitComm_t>(kRanks);
  Check(onebitCommInitAll(comms.data(), kRanks, nullptr));
  Announcement announcement;
  if (scenario == "calls") {
    RunRanks(comms, MakeCalls);
  } else if (scenario == "late" && argc > 2) {
    const int late = std::atoi(argv[2]);
    RunRanks(comms, [&](onebitComm_t comm, int rank) {
      if (rank == late) {
        announcement.Print(rank);
        std::string line;
        std::getline(std::cin, line);
      } else {
        announcement.Make(rank);
      }
      Check(Reduce(comm));
    });
  } else if (scenario == "abort") {
    RunRanks(comms, [&](onebitComm_t comm, int rank) {
      if (rank != 1) {
        announcement.Make(rank);
        static_cast<void>(Reduce(comm));
        return;
      }
      announcement.Print(rank);
      std::string line;
      std::getline(std::cin, line);
      onebitCommAbort(comm);
    });
    std::_Exit(0);
  } else if (scenario == "leave") {
    RunRanks(comms, [](onebitComm_t comm, int) { Check(Reduce(comm)); });
    return 0;
  } else {
    return 2;
  }
  for (const onebitComm_t comm : comms) onebitCommDestroy(comm);
  return 0;
}
