// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The current device of a thread: whatever Enter does, Leave restores, and so does a failure.
#include <cuda.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "tests/device/device_plugin.h"
#include "tests/support/cuda/cuda_stand_in.h"

namespace onebit::testing {
namespace {

CUcontext CurrentContext() {
  CUcontext context = nullptr;
  EXPECT_EQ(cuCtxGetCurrent(&context), CUDA_SUCCESS);
  return context;
}

// Uses a device through the driver as a program does.
CUcontext UsePrimary(int device) {
  CUcontext context = nullptr;
  EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
  return context;
}

int CurrentDevice() {
  int device = -1;
  EXPECT_OK(Plugin().CurrentDevice(&device));
  return device;
}

TEST(ContextTest, WithoutOneTheCurrentDeviceIsTheFirst) {
  StartedPlugin();
  EXPECT_EQ(CurrentDevice(), 0);
  EXPECT_EQ(onebitTestCudaContextDepth(), 0u);
}

TEST(ContextTest, DescribesDevices) {
  DeviceInfo info;
  ASSERT_OK(StartedPlugin().Describe(1, &info));
  EXPECT_STREQ(info.name, "stand-in for a CUDA device 1");
  EXPECT_STREQ(info.bus_id, "0000:02:00.0");
  EXPECT_EQ(info.compute_major, 9);
  EXPECT_EQ(info.compute_minor, 0);
  EXPECT_EQ(info.multiprocessors, 4);
  EXPECT_EQ(info.memory_bytes, uint64_t{4} << 30);
  EXPECT_ERROR(Plugin().Describe(2, &info), onebitInvalidArgument, "there is no CUDA device 2");
  EXPECT_ERROR(Plugin().Describe(-1, &info), onebitInvalidArgument, "there is no CUDA device -1");
}

TEST(ContextTest, EnterAndLeaveRestoreNothing) {
  StartedPlugin();
  {
    const Entered entered(1);
    EXPECT_EQ(CurrentDevice(), 1);
    EXPECT_EQ(onebitTestCudaContextDepth(), 1u);
  }
  EXPECT_EQ(CurrentContext(), nullptr);
  EXPECT_EQ(onebitTestCudaContextDepth(), 0u);
}

TEST(ContextTest, EnterNests) {
  StartedPlugin();
  const CUcontext before = UsePrimary(0);
  {
    const Entered outer(1);
    {
      const Entered inner(0);
      EXPECT_EQ(CurrentDevice(), 0);
      const Entered same(0);
      EXPECT_EQ(CurrentDevice(), 0);
    }
    EXPECT_EQ(CurrentDevice(), 1);
  }
  EXPECT_EQ(CurrentContext(), before);
  EXPECT_EQ(onebitTestCudaContextDepth(), 1u);
}

TEST(ContextTest, UsesThePrimaryContextThatTheProgramUses) {
  StartedPlugin();
  const CUcontext primary = UsePrimary(0);
  const Entered entered(0);
  EXPECT_EQ(CurrentContext(), primary);
  EXPECT_EQ(onebitTestCudaContextDepth(), 1u);
}

// Even if the program releases its reference, allocated memory must stay.
TEST(ContextTest, KeepsThePrimaryContext) {
  StartedPlugin();
  UsePrimary(0);
  { const Entered entered(0); }
  ASSERT_EQ(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
  unsigned flags = 0;
  int is_active = 0;
  ASSERT_EQ(cuDevicePrimaryCtxGetState(0, &flags, &is_active), CUDA_SUCCESS);
  EXPECT_EQ(is_active, 1);
  const Entered entered(0);
  DeviceArray<int> works(1);
  EXPECT_NE(works.data(), nullptr);
}

extern "C" CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device);

TEST(ContextTest, LeavesAContextOfTheProgramInPlace) {
  StartedPlugin();
  CUcontext own = nullptr;
  ASSERT_EQ(cuCtxCreate_v2(&own, 0, 1), CUDA_SUCCESS);
  {
    const Entered entered(1);
    EXPECT_EQ(CurrentContext(), own);
    OwnedStream stream;
    DeviceArray<uint8_t> bytes(3);
    ASSERT_OK(Plugin().Fill(bytes.data(), 7, 3, stream));
    EXPECT_EQ(bytes.Read(stream), (std::vector<uint8_t>{7, 7, 7}));
  }
  EXPECT_EQ(CurrentContext(), own);
  // No second context of the device was created.
  unsigned flags = 0;
  int is_active = 1;
  ASSERT_EQ(cuDevicePrimaryCtxGetState(1, &flags, &is_active), CUDA_SUCCESS);
  EXPECT_EQ(is_active, 0);
  {
    const Entered entered(0);
    EXPECT_EQ(CurrentDevice(), 0);
  }
  EXPECT_EQ(CurrentContext(), own);
}

TEST(ContextTest, RefusesDevicesThatAreNotThere) {
  uintptr_t token = 0;
  EXPECT_ERROR(StartedPlugin().Enter(2, &token), onebitInvalidArgument,
               "there is no CUDA device 2: there are 2, counted from 0");
  EXPECT_ERROR(Plugin().Enter(-1, &token), onebitInvalidArgument, "there is no CUDA device -1");
}

// Fails each function of the driver that Enter calls, once at its first and once at a later call.
class EnterFailureTest : public ::testing::TestWithParam<std::tuple<const char*, unsigned>> {};

TEST_P(EnterFailureTest, RestoresTheCurrentDeviceAndCanBeRepeated) {
  const auto [function, skip] = GetParam();
  StartedPlugin();
  const CUcontext before = UsePrimary(0);
  const uint64_t calls = onebitTestCudaCalls(function);
  onebitTestCudaFail(function, skip, 1, CUDA_ERROR_ECC_UNCORRECTABLE);
  uintptr_t token = 0;
  EXPECT_ERROR(Plugin().Enter(1, &token), onebitUnhandledCudaError, "CUDA error 214");
  EXPECT_GT(onebitTestCudaCalls(function), calls) << "the plugin does not call it";
  EXPECT_EQ(CurrentContext(), before);
  EXPECT_EQ(onebitTestCudaContextDepth(), 1u);

  const Entered entered(1);
  EXPECT_EQ(CurrentDevice(), 1);
}

INSTANTIATE_TEST_SUITE_P(
    Calls, EnterFailureTest,
    ::testing::Values(std::tuple("cuCtxGetCurrent", 0u), std::tuple("cuCtxGetDevice", 0u),
                      std::tuple("cuCtxGetDevice", 1u), std::tuple("cuCtxGetDevice", 9u),
                      std::tuple("cuDevicePrimaryCtxRetain", 0u),
                      std::tuple("cuCtxPushCurrent_v2", 0u), std::tuple("cuCtxGetId", 0u),
                      std::tuple("cuLibraryLoadData", 0u), std::tuple("cuLibraryGetKernel", 0u),
                      std::tuple("cuLibraryGetKernel", 7u), std::tuple("cuKernelGetFunction", 0u),
                      std::tuple("cuKernelGetFunction", 3u), std::tuple("cuFuncGetAttribute", 2u),
                      std::tuple("cuOccupancyMaxActiveBlocksPerMultiprocessor", 2u),
                      std::tuple("cuDeviceGetAttribute", 2u)));

TEST(ContextTest, SaysWhyKernelsDoNotLoad) {
  StartedPlugin();
  onebitTestCudaFail("cuLibraryLoadData", 0, 1, CUDA_ERROR_NO_BINARY_FOR_GPU);
  uintptr_t token = 0;
  EXPECT_ERROR(
      Plugin().Enter(0, &token), onebitUnhandledCudaError,
      "loading the kernels: CUDA_ERROR_NO_BINARY_FOR_GPU (no kernel image is available for "
      "execution on the device), device 0; the kernels are for compute capability 8.0");
}

TEST(ContextTest, SaysWhatDriverTheKernelsNeed) {
  StartedPlugin();
  uintptr_t token = 0;
  for (const CUresult error : {CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_INVALID_SOURCE}) {
    onebitTestCudaFail("cuLibraryLoadData", 0, 1, error);
    EXPECT_ERROR(Plugin().Enter(0, &token), onebitUnhandledCudaError,
                 ", device 0; the kernels need a driver at least as new as the major version");
  }
}

// The message must survive long after the function that opened the library has returned.
TEST(ContextTest, SaysWhatTheCompilerSaysLate) {
  StartedPlugin();
  { const Entered entered(0); }
  onebitTestCudaFailCompiler("ptxas fatal: no such instruction");
  uintptr_t token = 0;
  EXPECT_ERROR(Plugin().Enter(1, &token), onebitUnhandledCudaError,
               ", ptxas fatal: no such instruction: CUDA error 218");
}

// A lock on the hot path would be shared with threads of other communicators.
TEST(ContextTest, KnowsAContextOfTheProgramOnceItWasEntered) {
  StartedPlugin();
  CUcontext own = nullptr;
  ASSERT_EQ(cuCtxCreate_v2(&own, 0, 1), CUDA_SUCCESS);
  { const Entered entered(1); }
  const uint64_t looks = onebitTestCudaCalls("cuDevicePrimaryCtxGetState");
  const uint64_t loads = onebitTestCudaCalls("cuKernelGetFunction");
  for (int i = 0; i < 3; ++i) const Entered entered(1);
  EXPECT_EQ(onebitTestCudaCalls("cuDevicePrimaryCtxGetState"), looks);
  // Another context is another one even if its handle is the same.
  ASSERT_EQ(cuCtxDestroy_v2(own), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxCreate_v2(&own, 0, 1), CUDA_SUCCESS);
  { const Entered entered(1); }
  EXPECT_EQ(onebitTestCudaCalls("cuKernelGetFunction"), 2 * loads);
}

TEST(ContextTest, LoadsKernelsOncePerDevice) {
  StartedPlugin();
  { const Entered entered(0); }
  { const Entered entered(1); }
  const uint64_t loads = onebitTestCudaCalls("cuKernelGetFunction");
  { const Entered entered(0); }
  { const Entered entered(1); }
  EXPECT_EQ(onebitTestCudaCalls("cuLibraryLoadData"), 1u);
  EXPECT_EQ(onebitTestCudaCalls("cuKernelGetFunction"), loads);
}

TEST(ContextTest, ThreadsEnterAtOnce) {
  StartedPlugin();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([i] {
      for (int round = 0; round < 50; ++round) {
        const Entered entered((i + round) % 2);
        EXPECT_EQ(CurrentDevice(), (i + round) % 2);
      }
      EXPECT_EQ(onebitTestCudaContextDepth(), 0u);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(onebitTestCudaCalls("cuLibraryLoadData"), 1u);
  EXPECT_EQ(onebitTestCudaCalls("cuDevicePrimaryCtxRetain"), 2u);
}

// In a forked child nothing of CUDA may be called, and nothing is.
TEST(ContextTest, AForkedChildGetsErrors) {
  StartedPlugin();
  const Entered entered(0);
  void* memory = nullptr;
  ASSERT_OK(Plugin().Allocate(64, &memory));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    uintptr_t token = 0;
    int count = 0;
    const bool is_right =
        Plugin().Enter(1, &token) == onebitUnhandledCudaError &&
        std::string(Plugin().LastError()).find("does not survive") != std::string::npos &&
        Plugin().Start(&count) == onebitUnhandledCudaError;
    Plugin().Free(memory);
    Plugin().Leave(1);
    _exit(is_right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  Plugin().Free(memory);
  EXPECT_EQ(onebitTestCudaAllocatedBytes(0), 0u);
}

}  // namespace
}  // namespace onebit::testing
