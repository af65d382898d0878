// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Device memory and pinned memory, copies and fills, and the kinds of pointers.
#include <cuda.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/device/device_plugin.h"
#include "tests/support/cuda/cuda_stand_in.h"

namespace onebit::testing {
namespace {

using ::testing::Each;

DevicePointerInfo Inspect(const void* pointer) {
  DevicePointerInfo info;
  info.device = 77;
  EXPECT_OK(Plugin().InspectPointer(pointer, &info));
  return info;
}

TEST(MemoryTest, AllocatesOnTheCurrentDeviceAndFrees) {
  StartedPlugin();
  for (const int device : {1, 0}) {
    const Entered entered(device);
    void* memory = nullptr;
    ASSERT_OK(Plugin().Allocate(1000, &memory));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 256, 0u);
    EXPECT_EQ(onebitTestCudaAllocatedBytes(device), 1000u);
    EXPECT_EQ(onebitTestCudaAllocatedBytes(1 - device), 0u);
    Plugin().Free(memory);
    EXPECT_EQ(onebitTestCudaAllocatedBytes(device), 0u);
  }
}

TEST(MemoryTest, AllocatesNothingAsSomething) {
  StartedPlugin();
  const Entered entered(0);
  DeviceArray<char> device(0);
  PinnedArray<char> pinned(0);
  EXPECT_NE(device.data(), nullptr);
  EXPECT_NE(pinned.data(), nullptr);
}

TEST(MemoryTest, PinnedMemoryIsZeroed) {
  StartedPlugin();
  const Entered entered(0);
  PinnedArray<char> pinned(100000);
  EXPECT_THAT(std::vector<char>(pinned.data(), pinned.data() + 100000), Each(0));
}

TEST(MemoryTest, SaysThatADeviceIsFull) {
  setenv("CUDA_STAND_IN_MEMORY", "1000000", 1);
  StartedPlugin();
  const Entered entered(1);
  DeviceArray<char> most(900000);
  void* memory = &most;
  EXPECT_ERROR(
      Plugin().Allocate(200000, &memory), onebitOutOfMemory,
      "allocating 200000 bytes of device memory: CUDA_ERROR_OUT_OF_MEMORY (out of memory), "
      "device 1; free memory there");
  EXPECT_EQ(memory, &most) << "an output is written on success only";
}

TEST(MemoryTest, SaysThatThereIsNoPinnedMemory) {
  StartedPlugin();
  const Entered entered(0);
  onebitTestCudaFail("cuMemHostAlloc", 0, 1, CUDA_ERROR_OUT_OF_MEMORY);
  void* memory = nullptr;
  EXPECT_ERROR(Plugin().AllocatePinned(64, &memory), onebitOutOfMemory,
               "allocating 64 bytes of pinned memory: CUDA_ERROR_OUT_OF_MEMORY");
}

TEST(MemoryTest, FreeSurvivesADriverThatHasGone) {
  StartedPlugin();
  const Entered entered(0);
  DeviceArray<int> device(1);
  PinnedArray<int> pinned(1);
  OwnedStream stream;
  OwnedEvent event;
  onebitTestCudaFail("cuMemFree_v2", 0, 1, CUDA_ERROR_DEINITIALIZED);
  onebitTestCudaFail("cuMemFreeHost", 0, 1, CUDA_ERROR_DEINITIALIZED);
  onebitTestCudaFail("cuStreamDestroy_v2", 0, 1, CUDA_ERROR_DEINITIALIZED);
  onebitTestCudaFail("cuEventDestroy_v2", 0, 1, CUDA_ERROR_DEINITIALIZED);
  Plugin().Free(device.data());
  Plugin().FreePinned(pinned.data());
  Plugin().DestroyStream(stream);
  Plugin().DestroyEvent(event);
  Plugin().Free(nullptr);
  Plugin().FreePinned(nullptr);
  Plugin().DestroyStream(nullptr);
  Plugin().DestroyEvent(nullptr);
  EXPECT_STREQ(Plugin().LastError(), "");
}

TEST(MemoryTest, InspectsPointers) {
  StartedPlugin();
  const Entered first(0);
  DeviceArray<int> on_first(100);
  const Entered second(1);
  DeviceArray<int> on_second(100);
  PinnedArray<int> pinned(100);
  const auto plain = std::make_unique<int[]>(100);
  CUdeviceptr managed = 0;
  ASSERT_EQ(cuMemAllocManaged(&managed, 400, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);

  EXPECT_EQ(Inspect(on_first.data() + 99).kind, MemoryKind::kDevice);
  EXPECT_EQ(Inspect(on_first.data() + 99).device, 0);
  EXPECT_EQ(Inspect(on_second.data()).kind, MemoryKind::kDevice);
  EXPECT_EQ(Inspect(on_second.data()).device, 1);
  EXPECT_EQ(Inspect(reinterpret_cast<void*>(managed)).kind, MemoryKind::kDevice);
  EXPECT_EQ(Inspect(reinterpret_cast<void*>(managed)).device, 1);
  for (const void* host : {static_cast<const void*>(plain.get()),
                           static_cast<const void*>(pinned.data()), static_cast<const void*>("")}) {
    EXPECT_EQ(Inspect(host).kind, MemoryKind::kHost);
    EXPECT_EQ(Inspect(host).device, 0);
  }
  EXPECT_EQ(cuMemFree_v2(managed), CUDA_SUCCESS);
}

TEST(MemoryTest, InspectsPointersWithoutAContext) {
  StartedPlugin();
  const int plain = 0;
  EXPECT_EQ(Inspect(&plain).kind, MemoryKind::kHost);
  // CUDA's answer for memory that it does not know.
  onebitTestCudaFail("cuPointerGetAttributes", 0, 1, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Inspect(&plain).kind, MemoryKind::kHost);
  onebitTestCudaFail("cuPointerGetAttributes", 0, 1, CUDA_ERROR_DEINITIALIZED);
  DevicePointerInfo info;
  EXPECT_ERROR(Plugin().InspectPointer(&plain, &info), onebitUnhandledCudaError,
               "cuPointerGetAttributes: CUDA_ERROR_DEINITIALIZED");
  EXPECT_EQ(onebitTestCudaCalls("cuDevicePrimaryCtxRetain"), 0u)
      << "nobody uses a device, so none is used to find that out";
}

// CUDA answers no question about any memory on such a thread.
void InspectInThreadWithoutContext(const void* on_device, int device) {
  const int plain = 0;
  std::thread([&] {
    EXPECT_EQ(Inspect(on_device).kind, MemoryKind::kDevice);
    EXPECT_EQ(Inspect(on_device).device, device);
    EXPECT_EQ(Inspect(&plain).kind, MemoryKind::kHost);
    EXPECT_EQ(onebitTestCudaContextDepth(), 0u);
  }).join();
}

TEST(MemoryTest, InspectsDeviceMemoryWithoutAContext) {
  StartedPlugin();
  const Entered entered(1);
  DeviceArray<int> memory(10);
  InspectInThreadWithoutContext(memory.data() + 9, 1);
}

// The plugin has not entered the device yet.
TEST(MemoryTest, InspectsMemoryOfTheProgramWithoutAContext) {
  StartedPlugin();
  CUcontext primary = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&primary, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxPushCurrent_v2(primary), CUDA_SUCCESS);
  CUdeviceptr memory = 0;
  ASSERT_EQ(cuMemAlloc_v2(&memory, 64), CUDA_SUCCESS);
  InspectInThreadWithoutContext(reinterpret_cast<void*>(memory), 1);
  EXPECT_EQ(cuMemFree_v2(memory), CUDA_SUCCESS);
}

extern "C" CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device);

TEST(MemoryTest, InspectsMemoryOfAnotherContextOfTheProgram) {
  StartedPlugin();
  CUcontext own = nullptr;
  ASSERT_EQ(cuCtxCreate_v2(&own, 0, 1), CUDA_SUCCESS);
  const Entered entered(1);
  DeviceArray<int> memory(10);
  InspectInThreadWithoutContext(memory.data(), 1);
}

TEST(MemoryTest, CopiesBetweenAllKinds) {
  StartedPlugin();
  const Entered first(0);
  DeviceArray<int> source(50);
  PinnedArray<int> pinned(50);
  OwnedStream stream;
  const Entered second(1);
  DeviceArray<int> target(50);
  const Entered again(0);

  std::vector<int> values(50);
  std::iota(values.begin(), values.end(), 1);
  std::copy(values.begin(), values.end(), pinned.data());
  ASSERT_OK(Plugin().Copy(source.data(), pinned.data(), 200, stream));
  ASSERT_OK(Plugin().Copy(target.data(), source.data(), 200, stream));
  ASSERT_OK(Plugin().Copy(pinned.data(), target.data(), 100, stream));
  Finish(stream);
  EXPECT_EQ(target.Read(stream), values);
  EXPECT_EQ(pinned[24], 25);
  ASSERT_OK(Plugin().Copy(nullptr, nullptr, 0, stream));
}

TEST(MemoryTest, FillsBytes) {
  StartedPlugin();
  const Entered entered(0);
  DeviceArray<uint8_t> bytes(5);
  OwnedStream stream;
  ASSERT_OK(Plugin().Fill(bytes.data(), 1, 5, stream));
  ASSERT_OK(Plugin().Fill(bytes.data() + 1, 200, 3, stream));
  ASSERT_OK(Plugin().Fill(nullptr, 1, 0, stream));
  EXPECT_EQ(bytes.Read(stream), (std::vector<uint8_t>{1, 200, 200, 200, 1}));
}

TEST(MemoryTest, CopyErrorsNameTheDevice) {
  StartedPlugin();
  const Entered entered(1);
  DeviceArray<char> bytes(8);
  OwnedStream stream;
  EXPECT_ERROR(Plugin().Copy(bytes.data(), bytes.data() + 4, 8, stream), onebitUnhandledCudaError,
               "copying 8 bytes: CUDA_ERROR_INVALID_VALUE (invalid argument), device 1");
  onebitTestCudaBreak(1, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_ERROR(Plugin().Copy(bytes.data(), bytes.data() + 4, 4, stream), onebitUnhandledCudaError,
               "device 1; work that some part of this process enqueued earlier broke the device");
  onebitTestCudaBreak(1, CUDA_SUCCESS);
}

// Tests the stand-in, on which the other tests rely.
TEST(MemoryDeathTest, TheHostMayNotTouchDeviceMemory) {
  StartedPlugin();
  const Entered entered(0);
  DeviceArray<int> device(1);
  if (onebitTestCudaIsProtected() == 0) GTEST_SKIP() << "no memory protection keys here";
  EXPECT_DEATH(*const_cast<volatile int*>(device.data()) = 1, "");
}

}  // namespace
}  // namespace onebit::testing
