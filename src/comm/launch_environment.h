// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What the launcher of this job says about this process: its rank, the number of ranks, and where
// the ranks meet. Launchers say it in environment variables of their own, in families.
//
//   RANK, WORLD_SIZE                              torchrun, onebit_run
//   OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE    mpirun of Open MPI
//   PMI_RANK, PMI_SIZE                            mpiexec of MPICH and its kin
//   SLURM_PROCID, SLURM_NTASKS                    srun
//
// Inside an allocation of Slurm everything inherits the variables of the batch step, where there is
// one task with SLURM_PROCID=0. So Slurm's count only where no other family is complete.
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
};

// Reads an environment, given as "NAME=value" texts. kInvalidUsage when it says nothing, when
// something is missing, does not parse or contradicts something else; the text names the variables,
// their values, and what to do.
Result<LaunchEnvironment> ReadLaunchEnvironment(
    std::span<const char* const> environment,
    const LaunchProcess& process = CurrentLaunchProcess());

}  // namespace onebit
