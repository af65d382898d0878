// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Creates and uses a communicator under the environment that CTest gives, and prints the result.
#include <cstdio>

#include "onebit/onebit.hpp"

int main() {
  onebitComm_t comm = nullptr;
  const onebitResult_t result = onebitCommInitAll(&comm, 1, nullptr);
  std::printf("init: %s\n", onebit::Explain(result).c_str());
  onebitSetting_t setting = {};
  std::printf("settings: %s\n", onebit::Explain(onebitGetSetting(0, &setting)).c_str());
  if (result != onebitSuccess) return 0;
  std::printf("barrier: %s\n", onebit::Explain(onebitBarrier(comm, nullptr)).c_str());
  onebitCommDestroy(comm);
  return 0;
}
