// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs the tests of the C API with settings of their own, which must stand before the library reads
// its environment.
#include <cstdlib>

#include <gtest/gtest.h>

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  setenv("ONEBIT_DEBUG", "INFO", 1);
  setenv("ONEBIT_DEBUG_FILE", "/tmp/onebit_api_test.%h.%p.log", 1);
  setenv("ONEBIT_COLLECTIVE_TIMEOUT_MS", "20000", 1);
  setenv("ONEBIT_ONE_EXCHANGE_ELEMENTS", "100", 1);
  return RUN_ALL_TESTS();
}
