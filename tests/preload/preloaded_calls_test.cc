// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls through the interposer; the main function sets the rules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cuda/stream_gate.h"
#include "tests/preload/preloaded_program.h"
#include "tests/support/cuda/cuda_stand_in.h"

namespace onebit::testing {
namespace {

TEST(PreloadedCallsTest, TensorsAreCompressedAfterTheirStart) {
  constexpr size_t kLong = 20'000;
  constexpr size_t kOther = 30'000;
  constexpr size_t kShort = 100;
  std::vector<std::vector<float>> sums(kRanks, std::vector<float>(kLong));
  RunNamed("dp", [&](Rank& self) {
    Tensor first(self, 1, kLong);
    Tensor second(self, 2, kOther);
    Tensor loss(self, 3, kShort);
    const uint64_t before = RealAllReduces();
    self.everybody.arrive_and_wait();
    constexpr int kSteps = 40;
    int compressed_steps = 0;
    for (int step = 0; step < kSteps; ++step) {
      for (Tensor* tensor : {&first, &second, &loss}) {
        ASSERT_EQ(tensor->AllReduce(self), ncclSuccess);
      }
      EXPECT_LT(loss.ErrorOfResult(self), 1e-6);
      const bool is_compressed = step >= 2 + kStart;
      // Both are exact at first. Codes of 4 bits miss by a tenth.
      EXPECT_EQ(first.ErrorOfResult(self) > 1e-3, is_compressed) << step;
      EXPECT_LT(first.ErrorOfResult(self), 0.3) << step;
      EXPECT_LT(second.ErrorOfResult(self), 0.3) << step;
      if (!is_compressed) continue;
      ++compressed_steps;
      const std::vector<float> result = first.Result(self);
      std::vector<float>& sum = sums[static_cast<size_t>(self.rank)];
      for (size_t i = 0; i < kLong; ++i) sum[i] += result[i];
    }
    self.everybody.arrive_and_wait();
    // NCCL's own were the short ones and the first calls of both: the cycle was found at the second
    // call of the second tensor.
    EXPECT_EQ(RealAllReduces() - before,
              static_cast<uint64_t>(kRanks) * (kSteps + (2 + kStart) + (1 + kStart)));
    self.everybody.arrive_and_wait();
    // Later calls make up for the errors of earlier ones.
    std::vector<float>& sum = sums[static_cast<size_t>(self.rank)];
    for (float& value : sum) value /= static_cast<float>(compressed_steps);
    EXPECT_LT(RelativeError(sum, first.average()), 0.02);
  });
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_EQ(sums[0], sums[2]);
}

// PyTorch holds a lock during every call of NCCL, also that of an abort. The stream has the
// priority of the library's own, so with one hardware queue they stand still, too.
TEST(PreloadedCallsTest, NoCallWaitsForTheDevice) {
  constexpr size_t kCount = 30'000;
  RunNamed("dp", [&](Rank& self) {
    const std::vector<float> ones(kCount, 1);
    const CudaBuffer first(std::as_bytes(std::span(ones)));
    const CudaBuffer second(std::as_bytes(std::span(ones)));
    const CudaStream stream(INT_MIN);
    StreamGate gate(stream);
    for (int step = 0; step < 4 + kStart; ++step) {
      EXPECT_EQ(ncclAllReduce(first.data(), first.data(), kCount, ncclFloat32, ncclAvg, self.comm,
                              stream.get()),
                ncclSuccess);
      // Shorter, so that the calls have a cycle.
      EXPECT_EQ(ncclAllReduce(second.data(), second.data(), kCount / 2, ncclFloat32, ncclAvg,
                              self.comm, stream.get()),
                ncclSuccess);
    }
    gate.Open();
    stream.Synchronize();
    EXPECT_LT(RelativeError(FloatsIn(first), ones), 0.1);
  });
}

TEST(PreloadedCallsTest, GroupsOfReductionsAreCompressedTogether) {
  RunNamed("dp", [&](Rank& self) {
    std::vector<Tensor> tensors;
    tensors.reserve(5);
    for (int number = 0; number < 5; ++number) {
      tensors.emplace_back(self, number, static_cast<size_t>(10'000 + 1000 * number));
    }
    for (int step = 0; step < 6; ++step) {
      ASSERT_EQ(ncclGroupStart(), ncclSuccess);
      for (Tensor& tensor : tensors) ASSERT_EQ(tensor.AllReduce(self), ncclSuccess);
      ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
      for (const Tensor& tensor : tensors) {
        EXPECT_LT(tensor.ErrorOfResult(self), 0.3);
        if (step < 2 + kStart) continue;
        EXPECT_GT(tensor.ErrorOfResult(self), 1e-3);
      }
    }
  });
}

TEST(PreloadedCallsTest, AGroupWithOtherCollectivesIsNccls) {
  RunNamed("dp", [&](Rank& self) {
    Tensor tensor(self, 1, 10'000);
    const CudaBuffer flags(16);
    for (int step = 0; step < 12; ++step) {
      ASSERT_EQ(ncclGroupStart(), ncclSuccess);
      ASSERT_EQ(tensor.AllReduce(self), ncclSuccess);
      ASSERT_EQ(
          ncclBroadcast(flags.data(), flags.data(), 16, ncclInt8, 0, self.comm, self.stream.get()),
          ncclSuccess);
      ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
      EXPECT_LT(tensor.ErrorOfResult(self), 1e-6) << step;
    }
  });
}

// Rank 2 knows nothing of the message in the others' group.
TEST(PreloadedCallsTest, MessagesInAGroupDoNotPartTheRanks) {
  RunNamed("dp", [&](Rank& self) {
    Tensor tensor(self, 1, 10'000);
    const CudaBuffer flags(16);
    const auto stream = self.stream.get();
    for (int step = 0; step < 8; ++step) {
      ASSERT_EQ(ncclGroupStart(), ncclSuccess);
      ASSERT_EQ(tensor.AllReduce(self), ncclSuccess);
      if (self.rank == 0) {
        ASSERT_EQ(ncclSend(flags.data(), 16, ncclInt8, 1, self.comm, stream), ncclSuccess);
      } else if (self.rank == 1) {
        ASSERT_EQ(ncclRecv(flags.data(), 16, ncclInt8, 0, self.comm, stream), ncclSuccess);
      }
      ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
      EXPECT_EQ(tensor.ErrorOfResult(self) > 1e-3, step >= 3 + kStart) << step;
    }
  });
}

// NCCL would let them.
TEST(PreloadedCallsTest, CompressedCallsOfAGroupShareAStream) {
  RunNamed("dp", [&](Rank& self) {
    const std::vector<float> ones(10'000, 1);
    const CudaBuffer first(std::as_bytes(std::span(ones)));
    const CudaBuffer second(std::as_bytes(std::span(ones)));
    const CudaStream other;
    const auto make = [&](const CudaBuffer& buffer, size_t count, const CudaStream& stream) {
      return ncclAllReduce(buffer.data(), buffer.data(), count, ncclFloat32, ncclAvg, self.comm,
                           stream.get());
    };
    for (int step = 0; step < 3 + kStart; ++step) {
      const bool is_last = step == 2 + kStart;
      ASSERT_EQ(ncclGroupStart(), ncclSuccess);
      ASSERT_EQ(make(first, 10'000, self.stream), ncclSuccess);
      ASSERT_EQ(make(second, 5000, is_last && self.rank == 0 ? other : self.stream), ncclSuccess);
      const ncclResult_t ended = ncclGroupEnd();
      if (self.rank == 0) {
        ASSERT_EQ(ended, is_last ? ncclInvalidUsage : ncclSuccess);
      }
    }
    EXPECT_NE(AwaitAsyncError(self.comm), ncclSuccess);
    self.everybody.arrive_and_wait();
    EXPECT_EQ(ncclCommAbort(std::exchange(self.comm, nullptr)), ncclSuccess);
  });
}

TEST(PreloadedCallsTest, WithoutARuleCallsAreNccls) {
  RunNamed("tp", [&](Rank& self) {
    Tensor tensor(self, 1, 100'000);
    for (int step = 0; step < 8; ++step) {
      ASSERT_EQ(tensor.AllReduce(self), ncclSuccess);
      EXPECT_LT(tensor.ErrorOfResult(self), 1e-6) << step;
    }
  });
}

TEST(PreloadedCallsTest, AMaximumIsNccls) {
  RunNamed("dp", [&](Rank& self) {
    Tensor tensor(self, 1, 10'000);
    std::vector<float> maximum = GradientOf(0, 1, 10'000);
    for (int rank = 1; rank < kRanks; ++rank) {
      const std::vector<float> other = GradientOf(rank, 1, 10'000);
      for (size_t i = 0; i < maximum.size(); ++i) maximum[i] = std::max(maximum[i], other[i]);
    }
    for (int step = 0; step < 8; ++step) {
      EXPECT_EQ(tensor.AllReduce(self, ncclMax), ncclSuccess);
      EXPECT_EQ(tensor.Result(self), maximum) << step;
    }
  });
}

TEST(PreloadedCallsTest, ReduceScattersAreCompressed) {
  RunNamed("dp", [&](Rank& self) {
    const ScatteredTensor tensor(self, 1);
    for (int step = 0; step < 9; ++step) {
      EXPECT_EQ(tensor.ReduceScatter(self), ncclSuccess);
      const double error = tensor.ErrorOfResult(self);
      // One tensor is believed to be a cycle after four calls.
      EXPECT_EQ(error > 1e-3, step >= 3 + kStart) << step;
      EXPECT_LT(error, 0.3);
    }
  });
}

TEST(PreloadedCallsTest, OnlyTheOutermostGroupMakesItsCalls) {
  RunNamed("dp", [&](Rank& self) {
    Tensor first(self, 1, 10'000);
    Tensor second(self, 2, 20'000);
    for (int step = 0; step < 7; ++step) {
      EXPECT_EQ(ncclGroupStart(), ncclSuccess);
      EXPECT_EQ(ncclGroupStart(), ncclSuccess);
      EXPECT_EQ(first.AllReduce(self), ncclSuccess);
      EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
      EXPECT_EQ(onebitTestNcclGroupDepth(), 1);
      EXPECT_EQ(second.AllReduce(self), ncclSuccess);
      EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
      EXPECT_EQ(onebitTestNcclGroupDepth(), 0);
      EXPECT_EQ(first.ErrorOfResult(self) > 1e-3, step >= 2 + kStart) << step;
      EXPECT_EQ(second.ErrorOfResult(self) > 1e-3, step >= 1 + kStart) << step;
    }
  });
}

// Returns false if the call needs at most `allocations`, so that none fails.
bool FailsAfterAllocations(unsigned allocations) {
  std::atomic<bool> is_refused = false;
  RunNamed("dp", [&](Rank& self) {
    Tensor tensor(self, 1, 10'000);
    for (int step = 0; step < 3 + kStart; ++step) EXPECT_EQ(tensor.AllReduce(self), ncclSuccess);
    self.stream.Synchronize();
    self.everybody.arrive_and_wait();
    // The others wait for the messages of rank 0 when it fails.
    if (self.rank != 0) {
      EXPECT_EQ(tensor.AllReduce(self), ncclSuccess);
    }
    self.everybody.arrive_and_wait();
    if (self.rank == 0) {
      onebitTestCudaFail("cuMemAlloc_v2", allocations, 1, CUDA_ERROR_OUT_OF_MEMORY);
      is_refused = tensor.AllReduce(self) != ncclSuccess;
      onebitTestCudaFail("cuMemAlloc_v2", 0, 0, CUDA_SUCCESS);
      // Instead of a call of NCCL's.
      if (is_refused) {
        EXPECT_EQ(tensor.AllReduce(self), ncclRemoteError);
      }
    }
    self.everybody.arrive_and_wait();
    if (is_refused) {
      EXPECT_NE(AwaitAsyncError(self.comm), ncclSuccess);
    }
    self.everybody.arrive_and_wait();
    EXPECT_EQ(ncclCommAbort(std::exchange(self.comm, nullptr)), ncclSuccess);
  });
  return is_refused;
}

TEST(PreloadedCallsTest, ARankWithoutMemoryLeavesNobodyWaiting) {
  unsigned allocations = 0;
  while (FailsAfterAllocations(allocations)) ++allocations;
  EXPECT_GE(allocations, 4u);
}

// Rank 2 leaves the others alone in a compressed call, which their watchdogs end.
TEST(PreloadedCallsTest, AbortAndRevokeEndACompressedCall) {
  for (const bool is_revoked_first : {false, true}) {
    RunNamed("dp", [&](Rank& self) {
      Tensor tensor(self, 1, 10'000);
      for (int step = 0; step < 8; ++step) EXPECT_EQ(tensor.AllReduce(self), ncclSuccess);
      EXPECT_GT(tensor.ErrorOfResult(self), 1e-3);
      self.everybody.arrive_and_wait();
      if (self.rank != 2) {
        EXPECT_EQ(tensor.AllReduce(self), ncclSuccess);
      }
      self.everybody.arrive_and_wait();
      if (is_revoked_first) {
        EXPECT_EQ(ncclCommRevoke(self.comm, 0), ncclSuccess);
        ncclResult_t error = ncclSuccess;
        EXPECT_EQ(ncclCommGetAsyncError(self.comm, &error), ncclSuccess);
        EXPECT_EQ(error, ncclSuccess);  // as NCCL says
      }
      EXPECT_EQ(ncclCommAbort(std::exchange(self.comm, nullptr)), ncclSuccess);
    });
  }
  const onebitTestNcclCounts counts = RealCounts();
  EXPECT_EQ(counts.live_comms, 0u);
  EXPECT_EQ(counts.after_end, 0u);
}

TEST(PreloadedCallsTest, ACaptureIsNccls) {
  RunNamed("dp", [&](Rank& self) {
    Tensor tensor(self, 1, 10'000);
    for (int step = 0; step < 8; ++step) ASSERT_EQ(tensor.AllReduce(self), ncclSuccess);
    EXPECT_GT(tensor.ErrorOfResult(self), 1e-3);
    CudaBuffer buffer(40'000);
    self.stream.Synchronize();
    self.everybody.arrive_and_wait();
    const uint64_t before = RealAllReduces();
    self.everybody.arrive_and_wait();
    CudaGraph::Begin(self.stream);
    EXPECT_EQ(ncclAllReduce(buffer.data(), buffer.data(), 10'000, ncclFloat32, ncclAvg, self.comm,
                            self.stream.get()),
              ncclSuccess);
    const CudaGraph graph(self.stream);
    self.everybody.arrive_and_wait();
    EXPECT_EQ(RealAllReduces() - before, static_cast<uint64_t>(kRanks));
    self.everybody.arrive_and_wait();
  });
}

}  // namespace
}  // namespace onebit::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  setenv("ONEBIT_NCCL_RULES",
         "comm=dp,bytes>=4K:fp4,start=2; comm=parts,op=alltoall,bytes>=4K:int8;"
         "comm=parts,op=allgather,bytes>=4K:int8; comm=parts,op=sendrecv,bytes>=4K:int8;"
         "comm=parts:fp4,start=2; comm=differences,op=allgather:fp4,ef;"
         "comm=random,op=sendrecv,bytes>=4K:int8",
         1);
  return RUN_ALL_TESTS();
}
