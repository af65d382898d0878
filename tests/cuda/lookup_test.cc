// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Checks when the library looks for CUDA in a process: once for a host buffer, and again for other
// buffers, streams and objects.
#include <cuda.h>
#include <dlfcn.h>
#include <link.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onebit/onebit.h"

namespace {

std::atomic<uint64_t> loader_calls{0};

}  // namespace

// Both take the loader's lock. The library finds these before those of libc.
extern "C" __attribute__((visibility("default"))) int dl_iterate_phdr(
    int (*callback)(dl_phdr_info*, size_t, void*), void* data) {
  using Function = int (*)(int (*)(dl_phdr_info*, size_t, void*), void*);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "dl_iterate_phdr"));
  ++loader_calls;
  return real(callback, data);
}
extern "C" __attribute__((visibility("default"))) void* dlopen(const char* file, int mode) {
  using Function = void* (*)(const char*, int);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "dlopen"));
  ++loader_calls;
  return real(file, mode);
}

namespace onebit {
namespace {

constexpr size_t kCount = 64;

onebitResult_t AllReduce(onebitComm_t comm, const float* input, float* output,
                         onebitCompressor_t compressor = nullptr, onebitStream_t stream = nullptr) {
  return onebitAllReduce(input, output, kCount, onebitFloat32, onebitAvg, compressor, comm, stream);
}

// From the driver, which must have been loaded.
float* NewDeviceMemory() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return nullptr;
  const auto allocate = reinterpret_cast<decltype(&cuMemAlloc)>(dlsym(driver, "cuMemAlloc_v2"));
  const auto retain = reinterpret_cast<decltype(&cuDevicePrimaryCtxRetain)>(
      dlsym(driver, "cuDevicePrimaryCtxRetain"));
  const auto use = reinterpret_cast<decltype(&cuCtxSetCurrent)>(dlsym(driver, "cuCtxSetCurrent"));
  const auto init = reinterpret_cast<decltype(&cuInit)>(dlsym(driver, "cuInit"));
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  const bool is_done = init(0) == CUDA_SUCCESS && retain(&context, 0) == CUDA_SUCCESS &&
                       use(context) == CUDA_SUCCESS &&
                       allocate(&memory, kCount * sizeof(float)) == CUDA_SUCCESS;
  return is_done ? reinterpret_cast<float*>(memory) : nullptr;
}

// Host memory that begins where no allocation of CUDA does, at no multiple of 256 bytes.
class HostBuffer {
 public:
  float* data() {
    float* const begin = values_.data();
    return begin + (reinterpret_cast<uintptr_t>(begin) % 256 == 0 ? 1 : 0);
  }

 private:
  std::vector<float> values_ = std::vector<float>(kCount + 1, 1.0f);
};

// Every test is a process of its own: what was found stays found.
class LookupTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(onebitCommInitAll(&comm_, 1, nullptr), onebitSuccess); }
  void TearDown() override { EXPECT_EQ(onebitCommDestroy(comm_), onebitSuccess); }

  // Starts CUDA, which nobody has told the library.
  float* StartCuda() {
    EXPECT_NE(dlopen(ONEBIT_CUDA_STAND_IN, RTLD_NOW | RTLD_LOCAL), nullptr) << dlerror();
    return NewDeviceMemory();
  }

  onebitComm_t comm_ = nullptr;
  HostBuffer host_;
};

constexpr char kTwoKinds[] = "sendbuff is memory of CUDA device 0, but recvbuff is host memory";

TEST_F(LookupTest, CallsOnTheSameHostBuffersLookOnce) {
  onebitCompressor_t compressor = nullptr;
  ASSERT_EQ(onebitCompressorCreate(&compressor, comm_, kCount, onebitFloat32, nullptr),
            onebitSuccess);
  HostBuffer others;
  ASSERT_EQ(AllReduce(comm_, host_.data(), others.data(), compressor), onebitSuccess);
  const uint64_t before = loader_calls.load();
  EXPECT_GT(before, 0u) << "the first call looks, and the count is of the library's own calls";
  for (int call = 0; call < 1000; ++call) {
    ASSERT_EQ(AllReduce(comm_, host_.data(), others.data(), call % 2 == 0 ? compressor : nullptr),
              onebitSuccess);
  }
  EXPECT_EQ(loader_calls.load(), before);
  EXPECT_EQ(onebitCompressorDestroy(compressor), onebitSuccess);
}

TEST_F(LookupTest, AHundredBuffersAreLookedAtOnce) {
  std::vector<HostBuffer> buffers(100);
  uint64_t before = 0;
  for (int step = 0; step < 3; ++step) {
    if (step == 1) before = loader_calls.load();
    for (HostBuffer& buffer : buffers) {
      ASSERT_EQ(AllReduce(comm_, buffer.data(), buffer.data()), onebitSuccess);
    }
  }
  EXPECT_EQ(loader_calls.load(), before);
}

// The address of memory that was given back may be that of device memory next.
TEST_F(LookupTest, AnAddressThatCudaMayReturnIsLookedAtInEveryCall) {
  alignas(256) std::array<float, kCount> buffer = {};
  for (int call = 0; call < 3; ++call) {
    const uint64_t before = loader_calls.load();
    ASSERT_EQ(AllReduce(comm_, buffer.data(), buffer.data()), onebitSuccess);
    EXPECT_GT(loader_calls.load(), before) << "call " << call;
  }
}

TEST_F(LookupTest, DeviceMemoryIsFoundAfterHostCallsOfTheSameCommunicator) {
  ASSERT_EQ(AllReduce(comm_, host_.data(), host_.data()), onebitSuccess);
  float* const device = StartCuda();
  ASSERT_NE(device, nullptr);
  EXPECT_EQ(AllReduce(comm_, device, host_.data()), onebitInvalidArgument);
  EXPECT_THAT(onebitGetLastError(nullptr), ::testing::HasSubstr(kTwoKinds));
}

TEST_F(LookupTest, DeviceMemoryIsFoundAsReceiveBuffer) {
  ASSERT_EQ(AllReduce(comm_, host_.data(), host_.data()), onebitSuccess);
  float* const device = StartCuda();
  ASSERT_NE(device, nullptr);
  EXPECT_EQ(AllReduce(comm_, host_.data(), device), onebitInvalidArgument);
  EXPECT_THAT(
      onebitGetLastError(nullptr),
      ::testing::HasSubstr("sendbuff is host memory, but recvbuff is memory of CUDA device 0"));
}

TEST_F(LookupTest, ACallThatNamesAStreamLooks) {
  ASSERT_EQ(AllReduce(comm_, host_.data(), host_.data()), onebitSuccess);
  ASSERT_NE(StartCuda(), nullptr);
  const auto legacy = reinterpret_cast<onebitStream_t>(uintptr_t{1});
  EXPECT_EQ(AllReduce(comm_, host_.data(), host_.data(), nullptr, legacy), onebitInvalidArgument);
  EXPECT_THAT(onebitGetLastError(nullptr),
              ::testing::HasSubstr("the buffers are host memory, but"));
}

}  // namespace
}  // namespace onebit
