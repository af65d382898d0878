// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs tests of the kernels on the first CUDA device and prints its name. Exits with 77 if there is
// none.
#include <cstdio>

#include <gtest/gtest.h>

#include "tests/kernels/cuda_stage.h"

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;
  testing::InitGoogleTest(&argc, argv);
  if (testing::GTEST_FLAG(list_tests)) return RUN_ALL_TESTS();
  const auto* const device = onebit::kernels::cuda::TestDevice::Find();
  if (device == nullptr) return kSkipped;
  const onebit::Devices& devices = device->devices();
  onebit::DeviceInfo info;
  const onebit::Status status =
      devices.Check(devices.functions().Describe(0, &info), "describe CUDA device 0");
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.text().c_str());
    return 1;
  }
  std::printf("kernels run on %s, compute capability %d.%d\n", info.name, info.compute_major,
              info.compute_minor);
  return RUN_ALL_TESTS();
}
