// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sweep of MPI_Allreduce: allreduce_openmpi and allreduce_mpich, started by their own mpirun. With
// more ranks than cores Open MPI's should wait politely: mpirun --mca mpi_yield_when_idle 1.
#include <memory>

#include "perf/studies/baselines/baseline.h"
#include "perf/studies/baselines/mpi_system.h"

int main(int argc, char** argv) {
  return onebit::perf::RunBaseline(
      argc, argv,
      {.tool = ONEBIT_BASELINE_NAME,
       .description = "Time and check MPI_Allreduce of fp32 sums over message sizes.",
       .check_help = "passes that check results against exact sums; 0: none",
       .rank_variables = onebit::perf::kMpiRankVariables,
       .add_flags = nullptr,
       .start = [] { return std::make_unique<onebit::perf::MpiSystem>(); }});
}
