// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A rank as a process over the real NCCL, started once per rank with RANK, WORLD_SIZE and the same
// arguments. Every test creates its own communicator, so ranks meet again after a failed test.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "onebit/onebit.h"
#include "tests/cuda/cuda_test_memory.h"
#include "tests/cuda/device_cases.h"
#include "tests/cuda/device_checks.h"
#include "tests/gpu/nccl_library.h"

namespace onebit::testing {
namespace {

int NumberFrom(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

int Ranks() { return NumberFrom("WORLD_SIZE", 1); }

void Check(onebitResult_t result, const char* what) {
  if (result == onebitSuccess) return;
  throw std::runtime_error(std::string(what) + ": " + onebitGetLastError(nullptr));
}

// Runs `body` with a communicator of all processes. An exception aborts the communicator, so that
// the other ranks do not wait.
void OnThisRank(const std::function<void(const DeviceRank&)>& body, int host_ranks = 0) {
  onebitComm_t comm = nullptr;
  try {
    onebitConfig_t config = ONEBIT_CONFIG_INIT;
    config.transport = "nccl";
    config.hostRanks = host_ranks;
    Check(onebitCommInitEnv(&comm, &config), "onebitCommInitEnv");
    body({.comm = comm, .rank = NumberFrom("RANK", 0), .ranks = Ranks()});
  } catch (const std::exception& error) {
    ADD_FAILURE() << "rank " << NumberFrom("RANK", 0) << ": " << error.what();
    if (comm != nullptr) onebitCommAbort(comm);
  }
  onebitCommDestroy(comm);
}

void OnSeveralRanks(const std::function<void(const DeviceRank&)>& body) {
  if (Ranks() < 2) GTEST_SKIP() << "one rank";
  OnThisRank(body);
}

// Runs cases, all of them on the same hosts, as calls and as replays of graphs.
void ExpectCasesOfTheHost(const std::vector<DeviceCase>& cases) {
  OnThisRank(
      [&](const DeviceRank& self) {
        for (const DeviceCase& one : cases) {
          CheckAgainstHost(self, one, Where::kDevice);
          // A single process has no transport to capture.
          if (self.ranks > 1) CheckAgainstHost(self, one, Where::kGraph);
        }
      },
      cases.front().host_ranks);
}

TEST(NcclRanksTest, EveryCollectiveAndModeIsThatOfTheHost) {
  ExpectCasesOfTheHost(CasesOfEveryCollective());
}

TEST(NcclRanksTest, EveryElementTypeIsThatOfTheHost) {
  ExpectCasesOfTheHost(CasesOfElementTypes());
  ExpectCasesOfTheHost(CasesOfDenseTypes());
}

TEST(NcclRanksTest, ScalesAreThoseOfTheHost) { ExpectCasesOfTheHost(CasesOfScales()); }

TEST(NcclRanksTest, OneExchangeIsThatOfTheHost) { ExpectCasesOfTheHost(CasesOfOneExchange()); }

TEST(NcclRanksTest, MasksAndResidualTypesAreThoseOfTheHost) {
  ExpectCasesOfTheHost(CasesOfMasksAndResidualTypes());
}

TEST(NcclRanksTest, CountsAndAlignmentsAreThoseOfTheHost) {
  ExpectCasesOfTheHost(CasesOfCountsAndAlignments());
}

TEST(NcclRanksTest, LowBitCodecsAreThoseOfTheHost) {
  ExpectCasesOfTheHost(CasesOfLowBitCodecs());
  ExpectCasesOfTheHost(CasesOfLowBitOptions());
  ExpectCasesOfTheHost(CasesOfLowBitNonfiniteValues());
}

TEST(NcclRanksTest, InPlaceIsThatOfTheHost) { ExpectCasesOfTheHost(CasesInPlace()); }

TEST(NcclRanksTest, NonfiniteValuesAreHandledAsOnTheHost) {
  ExpectCasesOfTheHost(CasesOfNonfiniteValues());
}

TEST(NcclRanksTest, TwoLevelsAreThoseOfTheHost) {
  // On hosts of two ranks, or of two and one.
  if (Ranks() < 3 || Ranks() > 4) GTEST_SKIP() << "two hosts are needed, one of two ranks";
  ExpectCasesOfTheHost(CasesOfTwoLevels());
}

TEST(NcclRanksTest, LargeTensorsAreThoseOfTheHost) {
  ExpectCasesOfTheHost({{.count = 3'000'001}, {.is_dense = true, .count = 3'000'001}});
}

TEST(NcclFailureTest, MismatchOfTypesIsTold) { OnSeveralRanks(CheckMismatchOfTypesIsTold); }

TEST(NcclFailureTest, MismatchOfCountsIsTold) { OnSeveralRanks(CheckMismatchOfCountsIsTold); }

TEST(NcclFailureTest, AbortReleasesTheStream) { OnSeveralRanks(CheckAbortReleasesTheStream); }

// The id travels as numbers in a sum, which is exact for them.
NcclLibrary::Id Broadcast(const NcclLibrary::Id& mine, const DeviceRank& self) {
  std::vector<float> numbers(sizeof mine.internal);
  for (size_t i = 0; i < numbers.size() && self.rank == 0; ++i) {
    numbers[i] = static_cast<float>(static_cast<unsigned char>(mine.internal[i]));
  }
  Check(onebitAllReduce(numbers.data(), numbers.data(), numbers.size(), onebitFloat32, onebitSum,
                        nullptr, self.comm, nullptr),
        "broadcast of the id");
  NcclLibrary::Id id = {};
  for (size_t i = 0; i < numbers.size(); ++i) {
    id.internal[i] = static_cast<char>(static_cast<unsigned char>(numbers[i]));
  }
  return id;
}

TEST(NcclJoinTest, WorksOnACommunicatorOfTheApplication) {
  OnThisRank([](const DeviceRank& self) {
    const NcclLibrary nccl;
    const NcclLibrary::Id id = Broadcast(self.rank == 0 ? nccl.NewId() : NcclLibrary::Id{}, self);
    const NcclLibrary::Comm native = nccl.Join(self.ranks, id, self.rank);
    onebitComm_t comm = nullptr;
    Check(onebitCommInitFrom(&comm, "nccl", &native, sizeof native, nullptr), "onebitCommInitFrom");
    const DeviceRank joined = {.comm = comm, .rank = self.rank, .ranks = self.ranks};
    for (const DeviceCase& one : CasesOfEveryCollective()) {
      CheckAgainstHost(joined, one, Where::kDevice);
    }
    if (self.ranks > 1) CheckAgainstHost(joined, {.count = 5000}, Where::kGraph);
    Check(onebitCommDestroy(comm), "onebitCommDestroy");
    nccl.Destroy(native);
  });
}

TEST(NcclNativeTest, DenseAllReduceIsThatOfNccl) {
  if (NumberFrom("ONEBIT_NCCL_NATIVE_DENSE", 0) != 1) GTEST_SKIP() << "ONEBIT_NCCL_NATIVE_DENSE";
  OnSeveralRanks(CheckNativeDense);
}

TEST(NcclGraphTest, ReplaysLoseNothing) {
  OnSeveralRanks([](const DeviceRank& self) {
    CheckReplaysLoseNothing(self, 5'003, 100);  // one exchange
    CheckReplaysLoseNothing(self, 200'003, 1000);
  });
}

}  // namespace
}  // namespace onebit::testing

int main(int argc, char** argv) {
  using onebit::testing::CudaDeviceCount;
  testing::InitGoogleTest(&argc, argv);
  try {
    const char* const local_rank = std::getenv("LOCAL_RANK");
    const int rank = local_rank == nullptr ? 0 : std::atoi(local_rank);
    onebit::testing::UseCudaDevice(rank % CudaDeviceCount());
    std::printf("NCCL %d\n", onebit::testing::NcclLibrary().version());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nccl_ranks: %s\n", error.what());
    return 1;
  }
  return RUN_ALL_TESTS();
}
