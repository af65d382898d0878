// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Start in processes that have no driver, an unusable one, or none yet. This program does not link
// CUDA.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "kernels/cuda/kernel_table.h"
#include "plugins/common/cuda_driver.h"
#include "tests/device/device_plugin.h"

namespace onebit::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string MappedFiles() {
  std::ifstream maps("/proc/self/maps");
  std::stringstream text;
  text << maps.rdbuf();
  return text.str();
}

// Loads the driver as the CUDA run time does.
void LoadDriver(const char* path) {
  ASSERT_NE(dlopen(path, RTLD_NOW | RTLD_LOCAL), nullptr) << dlerror();
}

TEST(StartTest, SaysThatThereIsNoDriverAndLoadsNone) {
  int count = -1;
  EXPECT_ERROR(Plugin().Start(&count), onebitUnhandledCudaError,
               "the process has not loaded the CUDA driver (libcuda.so.1)");
  EXPECT_EQ(count, -1);
  EXPECT_THAT(MappedFiles(), HasSubstr("libonebit-cuda.so"));
  EXPECT_THAT(MappedFiles(), Not(HasSubstr("libcuda")));
}

TEST(StartTest, RemembersItsFirstAnswer) {
  int count = -1;
  EXPECT_EQ(Plugin().Start(&count), onebitUnhandledCudaError);
  const std::string text = Plugin().LastError();
  LoadDriver(ONEBIT_CUDA_STAND_IN);
  EXPECT_ERROR(Plugin().Start(&count), onebitUnhandledCudaError, text);
}

TEST(StartTest, FindsADriverThatWasLoadedPrivately) {
  setenv("CUDA_STAND_IN_DEVICES", "3", 1);
  LoadDriver(ONEBIT_CUDA_STAND_IN);
  int count = 0;
  ASSERT_OK(Plugin().Start(&count));
  EXPECT_EQ(count, 3);
  count = 0;
  ASSERT_OK(Plugin().Start(&count));
  EXPECT_EQ(count, 3);
}

TEST(StartTest, RefusesAnOldDriver) {
  setenv("CUDA_STAND_IN_DRIVER", "11080", 1);
  LoadDriver(ONEBIT_CUDA_STAND_IN);
  int count = 0;
  EXPECT_ERROR(Plugin().Start(&count), onebitUnhandledCudaError,
               "the CUDA driver is for CUDA 11.8; onebit needs 12.1 or later");
}

TEST(StartTest, TakesTheOldestDriverThatItNames) {
  setenv("CUDA_STAND_IN_DRIVER", "12010", 1);
  LoadDriver(ONEBIT_CUDA_STAND_IN);
  int count = 0;
  EXPECT_OK(Plugin().Start(&count));
}

TEST(StartTest, NamesWhatADriverLacks) {
  LoadDriver(ONEBIT_LACKING_DRIVER);
  int count = 0;
  EXPECT_ERROR(Plugin().Start(&count), onebitUnhandledCudaError,
               "the CUDA driver is for CUDA 12.1 and lacks cuCtxGetCurrent");
}

#ifdef ONEBIT_CUDA_STUB
// The stub exports every function of its driver version, and each of them fails.
TEST(StartTest, TheDriverHasEveryFunctionByItsName) {
  void* const stub = dlopen(ONEBIT_CUDA_STUB, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(stub, nullptr) << dlerror();
#define ONEBIT_X(name, parameters) EXPECT_NE(dlsym(stub, #name), nullptr) << #name;
  ONEBIT_CUDA_DRIVER_FUNCTIONS(ONEBIT_X)
#undef ONEBIT_X
}

TEST(StartTest, RefusesTheStubOfTheToolkit) {
  LoadDriver(ONEBIT_CUDA_STUB);
  int count = 0;
  EXPECT_ERROR(
      Plugin().Start(&count), onebitUnhandledCudaError,
      "libcuda.so.1 does not report its version, so it is not a CUDA driver (the toolkit has a");
}
#endif

TEST(StartTest, PassesOnWhyTheDriverDoesNotStart) {
  setenv("CUDA_STAND_IN_DEVICES", "0", 1);
  LoadDriver(ONEBIT_CUDA_STAND_IN);
  int count = 0;
  EXPECT_ERROR(Plugin().Start(&count), onebitUnhandledCudaError,
               "cuInit: CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)");
}

TEST(StartTest, FunctionsBeforeItFail) {
  const DeviceFunctions& plugin = Plugin();
  const char* const text = "Start was not called";
  void* memory = nullptr;
  int flag = 0;
  uintptr_t token = 0;
  DeviceInfo info;
  DevicePointerInfo pointer;
  onebitStream_t stream = nullptr;
  const uint32_t word = 0;
  EXPECT_ERROR(plugin.Describe(0, &info), onebitUnhandledCudaError, text);
  EXPECT_ERROR(plugin.InspectPointer(&word, &pointer), onebitUnhandledCudaError, text);
  EXPECT_ERROR(plugin.CurrentDevice(&flag), onebitUnhandledCudaError, text);
  EXPECT_ERROR(plugin.Enter(0, &token), onebitUnhandledCudaError, text);
  EXPECT_ERROR(plugin.Allocate(1, &memory), onebitUnhandledCudaError, text);
  EXPECT_ERROR(plugin.AllocatePinned(1, &memory), onebitUnhandledCudaError, text);
  EXPECT_ERROR(plugin.CreateStream(&stream), onebitUnhandledCudaError, text);
  EXPECT_ERROR(plugin.CreateEvent(&memory), onebitUnhandledCudaError, text);
  EXPECT_ERROR(plugin.RecordEvent(memory, stream), onebitUnhandledCudaError, text);
  EXPECT_ERROR(plugin.WaitEvent(stream, memory), onebitUnhandledCudaError, text);
  EXPECT_ERROR(plugin.QueryEvent(memory, &flag), onebitUnhandledCudaError, text);
  EXPECT_ERROR(plugin.Synchronize(stream, 0), onebitUnhandledCudaError, text);
  EXPECT_ERROR(plugin.WaitValue(stream, &word, 0), onebitUnhandledCudaError, text);
  EXPECT_ERROR(plugin.IsCapturing(stream, &flag), onebitUnhandledCudaError, text);
  EXPECT_ERROR(plugin.Copy(memory, memory, 0, stream), onebitUnhandledCudaError, text);
  EXPECT_ERROR(plugin.Fill(memory, 0, 0, stream), onebitUnhandledCudaError, text);
  EXPECT_ERROR(plugin.Launch(0, &info, stream), onebitUnhandledCudaError, text);
  plugin.Free(&info);
  plugin.FreePinned(&info);
  plugin.DestroyEvent(&info);
  plugin.DestroyStream(nullptr);
  plugin.Leave(1);
}

TEST(StartTest, TableTellsWhatItWasBuiltWith) {
  size_t param_sum = 0;
  for (const auto& kernel : kernels::cuda::kKernels) param_sum += kernel.param_bytes;
  EXPECT_EQ(Plugin().struct_size, sizeof(DeviceFunctions));
  EXPECT_EQ(Plugin().abi_version, kDeviceAbiVersion);
  EXPECT_EQ(Plugin().kernel_count, kernels::cuda::kKernelCount);
  EXPECT_EQ(Plugin().kernel_param_sum, param_sum);
}

}  // namespace
}  // namespace onebit::testing
