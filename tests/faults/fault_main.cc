// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include <gtest/gtest.h>

#include "tests/support/faulty_transport.h"

int main(int argc, char** argv) {
  setenv("ONEBIT_PLUGIN_PATH", PLUGIN_PATH, 1);
  onebit::testing::RegisterFaultyTransports();
  setenv("ONEBIT_DEBUG", "NONE", 0);  // errors are checked, so the log is not needed
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
