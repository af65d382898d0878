// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Graphs: the plugin's enqueued work can be captured and replayed, and none of its other calls, on
// any thread, breaks a capture.
#include <cuda.h>
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "kernels/cuda/kernel_table.h"
#include "tests/device/device_plugin.h"
#include "tests/support/cuda/cuda_stand_in.h"

namespace onebit::testing {
namespace {

using kernels::cuda::FillParams;
using kernels::cuda::Kernel;

void Begin(CUstream stream) {
  ASSERT_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
}

class Graph {
 public:
  // Ends the capture of `stream`.
  explicit Graph(CUstream stream) {
    CUgraph graph = nullptr;
    EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    if (graph == nullptr) return;
    EXPECT_EQ(cuGraphInstantiate(&exec_, graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() {
    if (exec_ != nullptr) cuGraphExecDestroy(exec_);
  }
  void Launch(CUstream stream) { ASSERT_EQ(cuGraphLaunch(exec_, stream), CUDA_SUCCESS); }

 private:
  CUgraphExec exec_ = nullptr;
};

bool IsCapturing(onebitStream_t stream) {
  int is_capturing = -1;
  EXPECT_OK(Plugin().IsCapturing(stream, &is_capturing));
  return is_capturing != 0;
}

TEST(CaptureTest, ReplaysCopiesFillsAndKernels) {
  StartedPlugin();
  const Entered entered(0);
  OwnedStream stream;
  DeviceArray<uint8_t> bytes(4);
  PinnedArray<uint8_t> pinned(4);
  FillParams clear_first;
  clear_first.count = 1;
  clear_first.spans[0] = {.data = bytes.data(), .count = 1};
  EXPECT_FALSE(IsCapturing(stream));

  Begin(stream);
  EXPECT_TRUE(IsCapturing(stream));
  ASSERT_OK(Plugin().Fill(bytes.data(), 7, 4, stream));
  ASSERT_OK(Plugin().Launch(static_cast<uint32_t>(Kernel::kFillIf), &clear_first, stream));
  ASSERT_OK(Plugin().Copy(pinned.data(), bytes.data(), 4, stream));
  DevicePointerInfo info;
  ASSERT_OK(Plugin().InspectPointer(bytes.data(), &info));
  EXPECT_EQ(info.kind, MemoryKind::kDevice);
  Graph graph(stream);
  EXPECT_FALSE(IsCapturing(stream));

  Finish(stream);
  EXPECT_EQ(pinned[3], 0) << "a capture runs nothing";
  for (int launch = 0; launch < 3; ++launch) {
    std::fill(pinned.data(), pinned.data() + 4, 1);
    graph.Launch(stream);
    Finish(stream);
    EXPECT_EQ(pinned[0], 0);
    EXPECT_EQ(pinned[1], 7);
    EXPECT_EQ(pinned[3], 7);
  }
}

TEST(CaptureTest, EventsTakeOtherStreamsAlong) {
  StartedPlugin();
  const Entered entered(0);
  OwnedStream stream;
  OwnedStream side;
  OwnedEvent fork;
  OwnedEvent join;
  DeviceArray<uint8_t> bytes(2);
  PinnedArray<uint8_t> pinned(2);

  Begin(stream);
  ASSERT_OK(Plugin().Fill(bytes.data(), 3, 2, stream));
  ASSERT_OK(Plugin().RecordEvent(fork, stream));
  ASSERT_OK(Plugin().WaitEvent(side, fork));
  EXPECT_TRUE(IsCapturing(side));
  ASSERT_OK(Plugin().Fill(bytes.data() + 1, 4, 1, side));
  ASSERT_OK(Plugin().RecordEvent(join, side));
  ASSERT_OK(Plugin().WaitEvent(stream, join));
  ASSERT_OK(Plugin().Copy(pinned.data(), bytes.data(), 2, stream));
  Graph graph(stream);
  EXPECT_FALSE(IsCapturing(side));

  graph.Launch(stream);
  Finish(stream);
  EXPECT_EQ(pinned[0], 3);
  EXPECT_EQ(pinned[1], 4);
}

TEST(CaptureTest, AReplayWaitsForValues) {
  StartedPlugin();
  const Entered entered(0);
  OwnedStream stream;
  PinnedArray<uint32_t> word(1);
  Begin(stream);
  ASSERT_OK(Plugin().WaitValue(stream, word.data(), 1));
  Graph graph(stream);
  graph.Launch(stream);
  EXPECT_EQ(Plugin().Synchronize(stream, 20), onebitTimeout);
  std::atomic_ref<uint32_t>(word[0]).store(1, std::memory_order_release);
  Finish(stream);
}

// The stand-in refuses to load a kernel for a captured launch.
TEST(CaptureTest, FirstLaunchesNeedNoLoading) {
  StartedPlugin();
  const Entered entered(0);
  OwnedStream stream;
  DeviceArray<uint8_t> bytes(4);
  FillParams fill;
  fill.count = 1;
  fill.spans[0] = {.data = bytes.data(), .count = 4};
  kernels::cuda::CommitParams commit;
  commit.count = 1;
  const uint64_t loads = onebitTestCudaCalls("cuKernelGetFunction");
  const uint64_t launches = onebitTestCudaCalls("cuLaunchKernel");
  Begin(stream);
  ASSERT_OK(Plugin().Launch(static_cast<uint32_t>(Kernel::kFillIf), &fill, stream));
  ASSERT_OK(Plugin().Launch(static_cast<uint32_t>(Kernel::kCommit), &commit, stream));
  Graph graph(stream);
  EXPECT_EQ(onebitTestCudaCalls("cuKernelGetFunction"), loads);
  EXPECT_EQ(onebitTestCudaCalls("cuLaunchKernel"), launches + 2);
}

TEST(CaptureTest, AStreamThatIsCapturedCannotBeWaitedFor) {
  StartedPlugin();
  const Entered entered(0);
  OwnedStream stream;
  Begin(stream);
  EXPECT_ERROR(Plugin().Synchronize(stream, 10), onebitInvalidUsage, "is being captured");
  Graph graph(stream);  // the query has not broken it
}

TEST(CaptureTest, CopiesOfPageableMemoryAreRefused) {
  StartedPlugin();
  const Entered entered(0);
  OwnedStream stream;
  DeviceArray<int> device(1);
  int plain = 0;
  Begin(stream);
  EXPECT_ERROR(Plugin().Copy(device.data(), &plain, sizeof plain, stream), onebitUnhandledCudaError,
               "a stream is being captured into a graph");
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

// PyTorch captures in CUDA's default mode, in which a careless call of any thread breaks the
// capture.
TEST(CaptureTest, OtherThreadsDoNotBreakIt) {
  StartedPlugin();
  const Entered entered(0);
  OwnedStream captured;
  OwnedStream running;
  OwnedEvent event;
  ASSERT_OK(Plugin().RecordEvent(event, running));
  DeviceArray<uint8_t> bytes(1);
  Begin(captured);
  ASSERT_OK(Plugin().Fill(bytes.data(), 1, 1, captured));
  std::thread([&] {
    const Entered first_use_of_a_device(1);
    DeviceArray<uint8_t> device(100);
    PinnedArray<uint8_t> pinned(100);
    OwnedStream stream;
    OwnedEvent own;
    int is_done = 0;
    EXPECT_OK(Plugin().QueryEvent(event, &is_done));
    EXPECT_EQ(is_done, 1);
    Finish(running);
    Finish(stream);
  }).join();
  Graph graph(captured);
  graph.Launch(captured);
  EXPECT_EQ(bytes.Read(captured), std::vector<uint8_t>{1});
}

TEST(CaptureTest, ItsOwnThreadDoesNotBreakItEither) {
  StartedPlugin();
  const Entered entered(0);
  OwnedStream captured;
  Begin(captured);
  const Entered first_use_of_a_device(1);
  { DeviceArray<uint8_t> device(100); }
  const Entered back(0);
  Graph graph(captured);
  onebitTestCudaCounts counts;
  onebitTestCudaGetCounts(&counts);
  EXPECT_EQ(counts.while_capturing, 2u) << "tests can see that it happened";
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  ASSERT_EQ(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL) << "the thread's mode is what it was";
}

TEST(CaptureTest, TheLegacyStreamCannotBeAskedWhileABlockingOneIsCaptured) {
  StartedPlugin();
  const Entered entered(0);
  CUstream blocking = nullptr;
  ASSERT_EQ(cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  Begin(blocking);
  int is_capturing = 0;
  EXPECT_ERROR(Plugin().IsCapturing(nullptr, &is_capturing), onebitInvalidUsage,
               "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT");
  Graph graph(blocking);
  EXPECT_EQ(cuStreamDestroy(blocking), CUDA_SUCCESS);
}

}  // namespace
}  // namespace onebit::testing
