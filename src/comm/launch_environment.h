// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Reads from the launcher's environment variables which rank this process is, how many ranks there
// are, and where they meet. Each launcher has its own family of variables.
//
//   RANK, WORLD_SIZE                              torchrun, onebit_run
//   OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE    mpirun of Open MPI
//   PMI_RANK, PMI_SIZE                            mpiexec of MPICH and its kin
//   SLURM_PROCID, SLURM_NTASKS                    srun
//
// Inside a Slurm allocation every process inherits the variables of the batch step, which has one
// task with SLURM_PROCID=0. Slurm's family therefore counts only if no other one is complete.
#pragma once

#include <span>
#include <string>

#include "base/status.h"
#include "comm/launch_rendezvous.h"

namespace onebit {

inline constexpr int kMaxLaunchRanks = 65536;

struct LaunchEnvironment {
  int rank = 0;
  int ranks = 1;
  std::string source;  // variables the ranks came from, for texts: "RANK and WORLD_SIZE"
  Rendezvous rendezvous;
  std::string job;  // FindJobWord; empty for one rank
};

// Reads an environment, given as "NAME=value" texts. kInvalidUsage when it says nothing, when
// something is missing, does not parse or contradicts something else; the text names the variables,
// their values, and what to do.
Result<LaunchEnvironment> ReadLaunchEnvironment(
    std::span<const char* const> environment,
    const LaunchProcess& process = CurrentLaunchProcess());

}  // namespace onebit
