// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Transport nccl with the installed NCCL, in a process that uses no GPU.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/nccl/nccl_plugin.h"

namespace onebit::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class RealNcclTest : public ::testing::Test {
 protected:
  void SetUp() override {
    void* library = dlopen(ONEBIT_REAL_NCCL, RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr) GTEST_SKIP() << "NCCL is not installed: " << dlerror();
  }
};

TEST_F(RealNcclTest, IsFoundAndNeedsADriver) {
  const Plugin plugin;
  ASSERT_EQ(plugin.start_result(), onebitSuccess) << Plugin::warnings();
  EXPECT_THAT(Plugin::lines(), ContainsRegex("NCCL 2\\.[0-9]+\\.[0-9]+ of .*libnccl\\.so"));
  const onebitTransportCommInfo info{.structSize = sizeof info, .rank = 0, .nranks = 1};
  void* comm = nullptr;
  const onebitResult_t result = Plugin::functions().open(plugin.transport_context(), &info, &comm);
  EXPECT_NE(result, onebitSuccess);
  EXPECT_THAT(Plugin::warnings(), ContainsRegex("there is no GPU to use|no device is current"));
}

TEST_F(RealNcclTest, RefusesToJoinWithoutAGpu) {
  const Plugin plugin;
  ASSERT_EQ(plugin.start_result(), onebitSuccess) << Plugin::warnings();
  int world = 0;
  void* native = &world;  // never dereferenced: there is no device
  void* group = nullptr;
  int rank = 0;
  int ranks = 0;
  EXPECT_NE(Plugin::functions().adopt(plugin.transport_context(), &native, sizeof native, 100,
                                      &group, &rank, &ranks),
            onebitSuccess);
  EXPECT_THAT(Plugin::warnings(), HasSubstr("joining a communicator: "));
}

}  // namespace
}  // namespace onebit::testing
