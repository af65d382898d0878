// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// One rank of a program that uses both MPI and onebit: application_rank CHECK. If a check fails it
// prints the reason and ends the job.
#include "tests/mpi/application_rank.h"

#include <cstdio>
#include <cstring>

namespace onebit::testing {

void Fail(const std::string& what) {
  std::fprintf(stderr, "rank %d: %s (%s)\n", WorldRank(), what.c_str(),
               onebitGetLastError(nullptr));
  std::fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

void Expect(bool is_true, const std::string& what) {
  if (!is_true) Fail(what);
}

void Check(onebitResult_t result, const std::string& what) {
  if (result != onebitSuccess)
    Fail(std::string(what).append(" returned ").append(std::to_string(result)));
}

int WorldRank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int WorldSize() {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

}  // namespace onebit::testing

int main(int argc, char** argv) {
  for (const onebit::testing::ApplicationCheck& check : onebit::testing::ApplicationChecks()) {
    if (argc < 2 || std::strcmp(check.name, argv[1]) != 0) continue;
    int provided = 0;
    if (check.thread_level >= 0) MPI_Init_thread(nullptr, nullptr, check.thread_level, &provided);
    check.run();
    if (check.thread_level >= 0) MPI_Finalize();
    return 0;
  }
  std::fprintf(stderr, "there is no such check\n");
  return 2;
}
