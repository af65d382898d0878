// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Joins a communicator of an NCCL before 2.28.7, which only its owner can stop.
#include <dlfcn.h>

#include <barrier>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "onebit/onebit.hpp"
#include "tests/cuda/cuda_test_memory.h"
#include "tests/cuda/stream_gate.h"
#include "tests/support/nccl/nccl_stand_in.h"

namespace onebit::testing {
namespace {

constexpr int kRanks = 2;
constexpr size_t kCount = 40'000;

// Set before the library reads its settings.
[[maybe_unused]] const int settings = setenv("ONEBIT_NCCL_LIB", ONEBIT_TEST_OLD_NCCL, 1);

std::string LastError() { return onebitGetLastError(nullptr); }

// A function of the old NCCL.
template <typename Function>
Function* Old(Function*, const char* name) {
  static void* const library = dlopen(ONEBIT_TEST_OLD_NCCL, RTLD_NOW);
  void* const found = library == nullptr ? nullptr : dlsym(library, name);
  if (found == nullptr) throw std::runtime_error(std::string(name) + " is not there");
  return reinterpret_cast<Function*>(found);
}
#define OLD(function) Old(static_cast<decltype(&function)>(nullptr), #function)

TEST(OldNcclTest, DestroyRightAfterAnErrorLeavesWhatTheDeviceMayUse) {
  UseCudaDevice(0);
  ncclUniqueId id;
  ASSERT_EQ(OLD(ncclGetUniqueId)(&id), ncclSuccess);
  std::barrier everybody(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      UseCudaDevice(rank);
      ncclComm_t native = nullptr;
      ASSERT_EQ(OLD(ncclCommInitRank)(&native, kRanks, id, rank), ncclSuccess);
      onebitComm_t comm = nullptr;
      ASSERT_EQ(onebitCommInitFrom(&comm, "nccl", &native, sizeof native, nullptr), onebitSuccess)
          << LastError();
      onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
      config.memory = onebitMemoryDevice;
      UniqueCompressor compressor;
      EXPECT_EQ(MakeCompressor(compressor, comm, kCount, onebitFloat32, &config), onebitSuccess)
          << LastError();
      CudaStream stream;
      const CudaBuffer buffer(kCount * sizeof(float));
      const auto call = [&] {
        EXPECT_EQ(onebitAllReduce(buffer.data(), buffer.data(), kCount, onebitFloat32, onebitAvg,
                                  compressor.get(), comm, stream.handle()),
                  onebitSuccess)
            << LastError();
      };
      call();
      stream.Synchronize();
      everybody.arrive_and_wait();
      if (rank == 0) {
        call();  // the other rank does not make it
        EXPECT_EQ(onebitCommAbort(comm), onebitSuccess);
        EXPECT_EQ(onebitCommDestroy(comm), onebitSuccess);
        EXPECT_FALSE(stream.IsIdle()) << "nobody could stop it";
        // The application can stop it. Work left on the stream still finds its memory.
        EXPECT_EQ(OLD(ncclCommAbort)(native), ncclSuccess);
        EXPECT_TRUE(IsDoneWithin(stream, std::chrono::seconds(20)));
        compressor.reset();
      }
      everybody.arrive_and_wait();
      if (rank == 1) {
        EXPECT_NE(AwaitError(comm).result, onebitSuccess);
        EXPECT_EQ(OLD(ncclCommAbort)(native), ncclSuccess);
        compressor.reset();
        EXPECT_EQ(onebitCommDestroy(comm), onebitSuccess);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace onebit::testing
