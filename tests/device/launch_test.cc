// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Launches of real kernels: results, order, number of CTAs, and the cost of a launch.
#include <cuda.h>
#include <gmock/gmock.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/cuda/kernel_table.h"
#include "kernels/kernels.h"
#include "tests/device/device_plugin.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/cuda/cuda_stand_in.h"

namespace onebit::testing {
namespace {

using kernels::Checksum;
using kernels::DataType;
using kernels::cuda::ChecksumParams;
using kernels::cuda::DenseReduceParams;
using kernels::cuda::Kernel;

onebitResult_t Launch(Kernel kernel, const void* params, onebitStream_t stream) {
  return Plugin().Launch(static_cast<uint32_t>(kernel), params, stream);
}

// Three ranks' values in succession; "this" rank is the second.
DenseReduceParams SumOfThree(DeviceArray<float>& values, size_t count, float* output) {
  DenseReduceParams params;
  params.pieces = {.sources = reinterpret_cast<std::byte*>(values.data()),
                   .stride = count * sizeof(float),
                   .own_source = reinterpret_cast<std::byte*>(values.data() + count),
                   .rank = 1,
                   .ranks = 3};
  params.output = output;
  params.count = count;
  return params;
}

TEST(LaunchTest, ReducesOnEveryDevice) {
  StartedPlugin();
  constexpr size_t kCount = 10007;
  for (const int device : {0, 1}) {
    const Entered entered(device);
    OwnedStream stream;
    DeviceArray<float> values(3 * kCount);
    DeviceArray<float> output(kCount);
    std::vector<float> host(3 * kCount);
    std::iota(host.begin(), host.end(), 1.0f);
    values.Write(host, stream);
    const DenseReduceParams params = SumOfThree(values, kCount, output.data());
    ASSERT_OK(Launch(Kernel::kDenseReduce, &params, stream));
    const std::vector<float> result = output.Read(stream);
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(result[i], host[i] + host[kCount + i] + host[2 * kCount + i]) << i;
    }
  }
}

TEST(LaunchTest, ChecksumsLikeTheHost) {
  StartedPlugin();
  const Entered entered(1);
  OwnedStream stream;
  DeviceArray<uint8_t> bytes(5003);
  DeviceArray<Checksum> sums(2);
  std::vector<uint8_t> host(5003);
  std::iota(host.begin(), host.end(), uint8_t{0});
  bytes.Write(host, stream);
  ASSERT_OK(Plugin().Fill(sums.data(), 0, sums.bytes(), stream));
  ChecksumParams params;
  params.count = 2;
  params.spans[0] = {reinterpret_cast<std::byte*>(bytes.data()), 5003, sums.data()};
  params.spans[1] = {reinterpret_cast<std::byte*>(bytes.data() + 4), 9, sums.data() + 1};
  ASSERT_OK(Launch(Kernel::kChecksum, &params, stream));
  const std::vector<Checksum> result = sums.Read(stream);
  const auto expected = [&](size_t begin, size_t size) {
    return kernels::reference::ChecksumOf(host.data() + begin, size);
  };
  EXPECT_EQ(result[0], expected(0, 5003));
  EXPECT_EQ(result[1], expected(4, 9));
}

TEST(LaunchTest, CopiesItsParameters) {
  StartedPlugin();
  const Entered entered(0);
  OwnedStream stream;
  PinnedArray<uint32_t> gate(1);
  DeviceArray<float> values(3);
  DeviceArray<float> output(1);
  values.Write({1, 2, 4}, stream);
  DenseReduceParams params = SumOfThree(values, 1, output.data());
  ASSERT_OK(Plugin().WaitValue(stream, gate.data(), 1));
  ASSERT_OK(Launch(Kernel::kDenseReduce, &params, stream));
  std::memset(static_cast<void*>(&params), 0xff, sizeof params);
  std::atomic_ref<uint32_t>(gate[0]).store(1, std::memory_order_release);
  EXPECT_EQ(output.Read(stream), std::vector<float>{7});
}

TEST(LaunchTest, OfNothingIsNone) {
  StartedPlugin();
  const Entered entered(0);
  OwnedStream stream;
  const DenseReduceParams params;
  const uint64_t launches = onebitTestCudaCalls("cuLaunchKernel");
  EXPECT_OK(Launch(Kernel::kDenseReduce, &params, stream));
  EXPECT_EQ(onebitTestCudaCalls("cuLaunchKernel"), launches);
}

TEST(LaunchTest, LaunchesNoMoreCtasThanAreResident) {
  StartedPlugin();
  const Entered entered(0);
  OwnedStream stream;
  const auto ctas_for = [&](size_t count) {
    DeviceArray<float> values(3 * count);
    DeviceArray<float> output(count);
    const DenseReduceParams params = SumOfThree(values, count, output.data());
    EXPECT_OK(Launch(Kernel::kDenseReduce, &params, stream));
    Finish(stream);
    return onebitTestCudaLastGrid();
  };
  EXPECT_EQ(ctas_for(1), 1u);
  EXPECT_EQ(ctas_for(3 << 10), 3u);  // one for each tile
  EXPECT_EQ(ctas_for(1 << 20), 8u);  // the stand-in has four multiprocessors, with two CTAs each
}

TEST(LaunchTest, RefusesWhatItCannotLaunch) {
  StartedPlugin();
  const DenseReduceParams params;
  EXPECT_ERROR(Launch(Kernel::kDenseReduce, &params, nullptr), onebitInvalidUsage,
               "no CUDA device is current");
  const Entered entered(0);
  EXPECT_ERROR(Plugin().Launch(Plugin().kernel_count, &params, nullptr), onebitInvalidArgument,
               "there is no kernel");
  EXPECT_ERROR(Launch(Kernel::kDenseReduce, nullptr, nullptr), onebitInvalidArgument,
               "it got no parameters");
  CUcontext other = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&other, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxPushCurrent(other), CUDA_SUCCESS);
  EXPECT_ERROR(Launch(Kernel::kDenseReduce, &params, nullptr), onebitInvalidUsage,
               "CUDA device 1 is current, but was never entered");
  ASSERT_EQ(cuCtxPopCurrent(&other), CUDA_SUCCESS);
}

TEST(LaunchTest, NamesTheKernelThatFails) {
  StartedPlugin();
  const Entered entered(0);
  DeviceArray<float> values(3);
  DeviceArray<float> output(1);
  const DenseReduceParams params = SumOfThree(values, 1, output.data());
  onebitTestCudaFail("cuLaunchKernel", 0, 1, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_ERROR(Launch(Kernel::kDenseReduce, &params, nullptr), onebitUnhandledCudaError,
               std::string("launching ") +
                   kernels::cuda::kKernels[static_cast<size_t>(Kernel::kDenseReduce)].symbol);
}

TEST(LaunchTest, SteadyStateAllocatesNothingAndNeverWaits) {
  StartedPlugin();
  const Entered entered(0);
  OwnedStream stream;
  OwnedEvent event;
  PinnedArray<uint32_t> word(1);
  DeviceArray<float> values(300);
  DeviceArray<float> output(100);
  const DenseReduceParams params = SumOfThree(values, 100, output.data());
  const auto step = [&] {
    const Entered other(1);
    const Entered back(0);
    int is_done = 0;
    int is_capturing = 0;
    DevicePointerInfo info;
    ASSERT_OK(Plugin().InspectPointer(values.data(), &info));
    ASSERT_OK(Plugin().IsCapturing(stream, &is_capturing));
    ASSERT_OK(Plugin().WaitValue(stream, word.data(), 0));
    ASSERT_OK(Plugin().Fill(values.data(), 0, values.bytes(), stream));
    ASSERT_OK(Launch(Kernel::kDenseReduce, &params, stream));
    ASSERT_OK(Plugin().Copy(output.data(), values.data(), 4, stream));
    ASSERT_OK(Plugin().RecordEvent(event, stream));
    ASSERT_OK(Plugin().WaitEvent(stream, event));
    ASSERT_OK(Plugin().QueryEvent(event, &is_done));
  };
  // Until the stand-in has used all places of its queue, each of which it makes at its first use.
  for (int i = 0; i < 200; ++i) step();
  Finish(stream);
  onebitTestCudaCounts before;
  onebitTestCudaGetCounts(&before);
  const uint64_t heap_before = AllocationsOfThisThread();
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(AllocationsOfThisThread(), heap_before);
  onebitTestCudaCounts after;
  onebitTestCudaGetCounts(&after);
  EXPECT_EQ(after.launches, before.launches + 10);
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.frees, before.frees);
  EXPECT_EQ(after.host_waits, before.host_waits);
  Finish(stream);
}

}  // namespace
}  // namespace onebit::testing
