// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The interposer on a rank whose host memory runs out in a call of NCCL. It is linked into this
// program, so that its operator new is the failing one.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "tests/preload/preloaded_program.h"
#include "tests/support/allocation_failer.h"

namespace onebit::testing {
namespace {

constexpr size_t kCount = 10'000;
constexpr size_t kPart = 3000;

// A tensor that the ranks average again and again.
struct Averaged {
  explicit Averaged(const Rank& self)
      : send(std::as_bytes(std::span<const float>(GradientOf(self.rank, 1, kCount)))),
        recv(kCount * sizeof(float)) {}

  const CudaBuffer send;
  const CudaBuffer recv;
};

using Step = std::function<ncclResult_t(const Rank&, const Averaged&)>;

ncclResult_t MakeAlone(const Rank& self, const Averaged& tensor) {
  return ncclAllReduce(tensor.send.data(), tensor.recv.data(), kCount, ncclFloat32, ncclAvg,
                       self.comm, self.stream.get());
}

ncclResult_t MakeInGroup(const Rank& self, const Averaged& tensor) {
  if (ncclGroupStart() != ncclSuccess) return MakeAlone(self, tensor);  // NCCL itself had no memory
  const ncclResult_t made = MakeAlone(self, tensor);
  const ncclResult_t ended = ncclGroupEnd();
  return made != ncclSuccess ? made : ended;
}

// A message from rank 0 to rank 1, and an all-gather of all ranks.
ncclResult_t MakeOthers(const Rank& self, const Averaged& tensor) {
  const auto stream = self.stream.get();
  ncclResult_t sent = ncclSuccess;
  if (self.rank == 0) {
    sent = ncclSend(tensor.send.data(), kPart, ncclFloat32, 1, self.comm, stream);
  } else if (self.rank == 1) {
    sent = ncclRecv(tensor.recv.data(), kPart, ncclFloat32, 0, self.comm, stream);
  }
  if (sent != ncclSuccess) return sent;
  return ncclAllGather(tensor.send.data(), tensor.recv.data(), kPart, ncclFloat32, self.comm,
                       stream);
}

// Lets `step` fail on rank 0 with its allocation number `before`, after `calls` others of its
// tensor. Returns false if it has fewer.
bool Fails(const Step& step, int calls, uint64_t before) {
  std::atomic<bool> is_refused = false;
  std::atomic<bool> has_struck = false;
  RunNamed("dp", [&](Rank& self) {
    const Averaged tensor(self);
    for (int call = 0; call < calls; ++call) EXPECT_EQ(step(self, tensor), ncclSuccess);
    self.stream.Synchronize();
    self.everybody.arrive_and_wait();
    // The others wait for the messages of rank 0 when it fails.
    if (self.rank != 0) {
      EXPECT_EQ(step(self, tensor), ncclSuccess);
    }
    self.everybody.arrive_and_wait();
    if (self.rank == 0) {
      const FailingAllocations failing(before, Shortage::kOnce);
      is_refused = step(self, tensor) != ncclSuccess;
      has_struck = failing.has_struck();
    }
    self.everybody.arrive_and_wait();
    if (is_refused) {
      EXPECT_NE(AwaitAsyncError(self.comm), ncclSuccess);
      self.everybody.arrive_and_wait();
      EXPECT_EQ(ncclCommAbort(std::exchange(self.comm, nullptr)), ncclSuccess);
    }
  });
  return has_struck;
}

struct Case {
  const char* name;
  Step step;
  int first_compressed;  // call, after which ranks are connected
};

class PreloadedHeapTest : public ::testing::TestWithParam<Case> {};

TEST_P(PreloadedHeapTest, ARankWithoutMemoryTellsTheOthers) {
  const int first = GetParam().first_compressed;
  for (const int calls : {first, first + 1}) {
    uint64_t before = 0;
    while (Fails(GetParam().step, calls, before)) ++before;
    EXPECT_GE(before, 1u) << calls;
  }
}

std::string NameOf(const ::testing::TestParamInfo<Case>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(, PreloadedHeapTest,
                         ::testing::Values(Case{"Alone", MakeAlone, 3 + kStart},
                                           Case{"InGroup", MakeInGroup, 3 + kStart},
                                           Case{"Others", MakeOthers, 1}),
                         NameOf);

}  // namespace
}  // namespace onebit::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  setenv("ONEBIT_NCCL_RULES",
         "comm=dp,bytes>=4K:fp4,start=2; comm=dp,op=allgather:int8; comm=dp,op=sendrecv:int8", 1);
  return RUN_ALL_TESTS();
}
