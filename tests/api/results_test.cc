// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Result codes, their names, versions and the last error's text.
#include <set>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "onebit/onebit.h"
#include "onebit/onebit.hpp"

namespace onebit::testing {
namespace {

constexpr onebitResult_t kResults[] = {
    onebitSuccess,          onebitUnhandledCudaError, onebitSystemError, onebitInternalError,
    onebitInvalidArgument,  onebitInvalidUsage,       onebitRemoteError, onebitInProgress,
    onebitTimeout,          onebitMismatch,           onebitCorrupt,     onebitPeerLost,
    onebitNotAuthenticated, onebitDetached,           onebitAborted,     onebitOutOfMemory};

TEST(ResultTest, EveryCodeHasANameOfItsOwn) {
  std::set<std::string> names;
  for (const onebitResult_t result : kResults) {
    const std::string name = onebitGetErrorString(result);
    EXPECT_NE(name, "unknown result code") << result;
    EXPECT_TRUE(names.insert(name).second) << name << " twice";
  }
}

TEST(ResultTest, UnknownCodesHaveANameToo) {
  for (const int code : {9, 99, 107, 127}) {  // within the range of the enumeration
    EXPECT_STREQ(onebitGetErrorString(static_cast<onebitResult_t>(code)), "unknown result code");
  }
}

// Programs written for NCCL compare numbers.
TEST(ResultTest, FirstNineCodesAreNccls) {
  EXPECT_EQ(onebitSuccess, 0);
  EXPECT_EQ(onebitInternalError, 3);
  EXPECT_EQ(onebitInvalidArgument, 4);
  EXPECT_EQ(onebitInvalidUsage, 5);
  EXPECT_EQ(onebitRemoteError, 6);
  EXPECT_EQ(onebitInProgress, 7);
  EXPECT_EQ(onebitFloat16, 6);
  EXPECT_EQ(onebitFloat32, 7);
  EXPECT_EQ(onebitBfloat16, 9);
  EXPECT_EQ(onebitUint8, 1);
  EXPECT_EQ(onebitInt32, 2);
  EXPECT_EQ(onebitInt64, 4);
  EXPECT_EQ(onebitFloat64, 8);
  EXPECT_EQ(onebitSum, 0);
  EXPECT_EQ(onebitMax, 2);
  EXPECT_EQ(onebitMin, 3);
  EXPECT_EQ(onebitAvg, 4);
}

TEST(VersionTest, IsThatOfTheHeader) {
  int version = 0;
  EXPECT_EQ(onebitGetVersion(&version), onebitSuccess);
  EXPECT_EQ(version, ONEBIT_VERSION_CODE);
  EXPECT_EQ(onebitGetVersion(nullptr), onebitInvalidArgument);
}

TEST(LastErrorTest, IsThatOfThisThreadAndStaysAfterSuccess) {
  EXPECT_EQ(onebitGetVersion(nullptr), onebitInvalidArgument);
  const std::string text = onebitGetLastError(nullptr);
  EXPECT_EQ(text, "version is NULL");
  std::thread([] {
    EXPECT_STREQ(onebitGetLastError(nullptr), "");
    EXPECT_EQ(onebitCommInitAll(nullptr, 1, nullptr), onebitInvalidArgument);
    EXPECT_STREQ(onebitGetLastError(nullptr), "comms is NULL");
  }).join();
  int version = 0;
  EXPECT_EQ(onebitGetVersion(&version), onebitSuccess);
  EXPECT_EQ(onebitGetLastError(nullptr), text);
}

TEST(LastErrorTest, OfACommunicatorIsEmptyUntilItFails) {
  onebitComm_t handle = nullptr;
  ASSERT_EQ(onebitCommInitAll(&handle, 1, nullptr), onebitSuccess);
  const UniqueComm comm(handle);
  EXPECT_STREQ(onebitGetLastError(comm.get()), "");
  // A wrong argument leaves the communicator usable.
  EXPECT_EQ(onebitBroadcast(nullptr, nullptr, 1, onebitFloat32, 0, comm.get(), nullptr),
            onebitInvalidArgument);
  EXPECT_STREQ(onebitGetLastError(comm.get()), "");
  EXPECT_EQ(onebitCommAbort(comm.get()), onebitSuccess);
  EXPECT_STREQ(onebitGetLastError(comm.get()), "rank 0: onebitCommAbort was called on this rank");
}

TEST(ExplainTest, JoinsNameAndText) {
  EXPECT_EQ(Explain(onebitSuccess), "no error");
  EXPECT_EQ(Explain(onebitGetVersion(nullptr)), "invalid argument: version is NULL");
}

}  // namespace
}  // namespace onebit::testing
