// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs the tests of the C API with settings that must be in the environment before the library
// reads it.
#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  char folder[] = "/tmp/onebit_api_test.XXXXXX";
  if (mkdtemp(folder) == nullptr) return EXIT_FAILURE;
  const std::filesystem::path log = std::filesystem::path(folder) / "%h.%p.log";
  setenv("ONEBIT_DEBUG", "INFO", 1);
  setenv("ONEBIT_DEBUG_FILE", log.c_str(), 1);
  setenv("ONEBIT_COLLECTIVE_TIMEOUT_MS", "20000", 1);
  setenv("ONEBIT_ONE_EXCHANGE_ELEMENTS", "100", 1);
  const int result = RUN_ALL_TESTS();
  std::filesystem::remove_all(folder);
  return result;
}
