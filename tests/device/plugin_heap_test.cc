// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The plugin without host memory: an error, and an unchanged current device.
#include <cuda.h>
#include <gmock/gmock.h>

#include "tests/device/device_plugin.h"
#include "tests/support/allocation_failer.h"
#include "tests/support/cuda/cuda_stand_in.h"

namespace onebit::testing {
namespace {

TEST(HeapTest, EnterSaysThatThereIsNoneAndRestoresTheDevice) {
  StartedPlugin();
  // Exists already, so that all allocations are the plugin's.
  CUcontext context = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 1), CUDA_SUCCESS);
  int failures = 0;
  for (uint64_t before = 0;; ++before) {
    uintptr_t token = 0;
    onebitResult_t result = onebitSuccess;
    bool has_struck = false;
    {
      const FailingAllocations shortage(before, Shortage::kOnce);
      result = Plugin().Enter(1, &token);
      has_struck = shortage.has_struck();
    }
    if (!has_struck) {
      ASSERT_OK(result);
      EXPECT_EQ(onebitTestCudaContextDepth(), 1u);
      Plugin().Leave(token);
      break;
    }
    ++failures;
    EXPECT_EQ(result, onebitOutOfMemory);
    EXPECT_STREQ(Plugin().LastError(), "out of host memory");
    EXPECT_EQ(onebitTestCudaContextDepth(), 0u) << before;
  }
  EXPECT_GT(failures, 0);
  EXPECT_EQ(onebitTestCudaContextDepth(), 0u);
}

TEST(HeapTest, AnErrorWithoutRoomForItsTextIsStillOne) {
  StartedPlugin();
  const Entered entered(0);
  DevicePointerInfo info;
  onebitTestCudaFail("cuPointerGetAttributes", 0, 1, CUDA_ERROR_DEINITIALIZED);
  const FailingAllocations shortage(0, Shortage::kFromThenOn);
  EXPECT_EQ(Plugin().InspectPointer(&info, &info), onebitOutOfMemory);
}

}  // namespace
}  // namespace onebit::testing
