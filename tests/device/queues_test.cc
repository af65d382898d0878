// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Hardware queues, which a waiting stream holds up: those of the stand-in, and that the plugin's
// streams use other queues than the application's.
#include <cuda.h>
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/device/device_plugin.h"
#include "tests/support/cuda/cuda_stand_in.h"

namespace onebit::testing {
namespace {

// A program in which streams of one priority have this many queues.
class QueuesTest : public ::testing::Test {
 protected:
  void Use(int queues) {
    setenv("CUDA_STAND_IN_QUEUES", std::to_string(queues).c_str(), 1);
    CUcontext context = nullptr;
    ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
    ASSERT_EQ(cuMemHostAlloc(&pinned_, sizeof(uint32_t), 0), CUDA_SUCCESS);
    ASSERT_EQ(cuMemAlloc(&memory_, 1), CUDA_SUCCESS);
  }
  void TearDown() override { Open(); }  // streams end by themselves

  CUstream NewStream(int priority = 0) {
    CUstream stream = nullptr;
    EXPECT_EQ(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, priority), CUDA_SUCCESS);
    return stream;
  }
  void Stop(CUstream stream) {
    ASSERT_EQ(cuStreamWaitValue32(stream, reinterpret_cast<CUdeviceptr>(pinned_), 1,
                                  CU_STREAM_WAIT_VALUE_GEQ),
              CUDA_SUCCESS);
  }
  void Open() {
    if (pinned_ == nullptr) return;
    std::atomic_ref(*static_cast<uint32_t*>(pinned_)).store(1, std::memory_order_release);
  }
  // Gives the stream work, and returns true if it completes.
  bool Runs(CUstream stream, std::chrono::milliseconds limit = std::chrono::seconds(10)) {
    EXPECT_EQ(cuMemsetD8Async(memory_, 1, 1, stream), CUDA_SUCCESS);
    const auto end = std::chrono::steady_clock::now() + limit;
    while (cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }
  bool IsHeldUp(CUstream stream) { return !Runs(stream, std::chrono::milliseconds(50)); }

 private:
  void* pinned_ = nullptr;
  CUdeviceptr memory_ = 0;
};

TEST_F(QueuesTest, AStreamThatWaitsHoldsUpThoseOfItsPriority) {
  Use(1);
  const CUstream waiting = NewStream();
  const CUstream other = NewStream();
  Stop(waiting);
  EXPECT_TRUE(IsHeldUp(other));
  EXPECT_TRUE(Runs(NewStream(-1)));
  Open();
  EXPECT_TRUE(Runs(other));
  EXPECT_TRUE(Runs(waiting));
}

TEST_F(QueuesTest, WhatCameBeforeIsNotHeldUp) {
  Use(1);
  const CUstream waiting = NewStream();
  const CUstream other = NewStream();
  EXPECT_TRUE(Runs(other));
  Stop(waiting);
  EXPECT_EQ(cuStreamQuery(other), CUDA_SUCCESS);
}

TEST_F(QueuesTest, StreamsTakeThemInTurns) {
  Use(2);
  // The legacy stream has taken the first one.
  const CUstream waiting = NewStream();
  const CUstream other = NewStream();
  const CUstream behind = NewStream();
  Stop(waiting);
  EXPECT_TRUE(Runs(other));
  EXPECT_TRUE(IsHeldUp(behind));
}

TEST_F(QueuesTest, EveryStreamHasItsOwnUnlessOneAsksForFewer) {
  Use(0);
  Stop(NewStream());
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(Runs(NewStream()));
}

// Streams of the application may wait for the plugin's work.
TEST_F(QueuesTest, StreamsOfThePluginAreApart) {
  Use(1);
  StartedPlugin();
  const Entered entered(0);
  Stop(NewStream());
  for (int i = 0; i < 3; ++i) {
    const OwnedStream own;
    EXPECT_TRUE(Runs(own));
  }
}

}  // namespace
}  // namespace onebit::testing
