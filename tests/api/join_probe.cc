// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Joins under the environment that CTest gives, and prints the result and every setting.
#include <cstdio>

#include "onebit/onebit.hpp"

int main() {
  onebitComm_t comm = nullptr;
  const onebitResult_t result = onebitCommInitEnv(&comm, nullptr);
  std::printf("join: %s\n", onebit::Explain(result).c_str());
  onebitSetting_t setting = {};
  for (int i = 0; onebitGetSetting(i, &setting) == onebitSuccess; ++i) {
    std::printf("%s=%s\n", setting.name, setting.value);
  }
  if (result != onebitSuccess) return 0;
  int rank = -1;
  int ranks = -1;
  onebitCommUserRank(comm, &rank);
  onebitCommCount(comm, &ranks);
  std::printf("rank %d of %d, barrier: %s\n", rank, ranks,
              onebit::Explain(onebitBarrier(comm, nullptr)).c_str());
  std::printf("finalize: %s\n", onebit::Explain(onebitCommFinalize(comm)).c_str());
  onebitCommDestroy(comm);
  return 0;
}
