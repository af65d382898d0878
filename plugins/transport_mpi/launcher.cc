// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Reads the environment variables of launchers.
#include "plugins/transport_mpi/launcher.h"

#include <mpi.h>

#include <array>
#include <cstdlib>

#include "plugins/common/host_identity.h"

namespace onebit::mpi {
namespace {

constexpr std::array kSigns = {"OMPI_COMM_WORLD_SIZE",
                               "PMIX_RANK",
                               "PMIX_NAMESPACE",
                               "PMI_RANK",
                               "PMI_FD",
                               "PMI_PORT",
                               "PMI_CONTROL_PORT",
                               "MPI_LOCALNRANKS",
                               "SLURM_STEP_NUM_TASKS",
                               "FLUX_JOB_ID",
                               "PALS_RANKID",
                               "ALPS_APP_PE"};
// Variables that MPI launchers set. (WORLD_SIZE is torchrun's, which does not start MPI ranks.)
constexpr std::array kSizes = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"};
constexpr std::array kJobs = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID",
                              "SLURM_JOB_ID", "SLURM_STEP_ID"};

}  // namespace

#if defined(OPEN_MPI)
const char kMpiName[] = "Open MPI";
const char kLauncherName[] = "mpirun.openmpi";
#else
const char kMpiName[] = "MPICH";
const char kLauncherName[] = "mpiexec.mpich";
#endif

bool HasLauncher() {
  for (const char* name : kSigns) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

std::string WrongLauncher(int world_size) {
  // Without its own launcher, MPI treats each process as a job of one rank. A larger size comes
  // from the right launcher.
  if (world_size != 1) return "";
  for (const char* name : kSizes) {
    const char* text = std::getenv(name);
    if (text == nullptr || std::atoi(text) <= 1) continue;
    return std::string(name)
        .append(" is ")
        .append(text)
        .append(", but ")
        .append(kMpiName)
        .append(" sees 1 rank: the launcher of another MPI has started this program; use that of ")
        .append(kMpiName)
        .append(" (")
        .append(kLauncherName)
        .append("), or link the program with the MPI of the launcher");
  }
  return "";
}

uint64_t IdentityOfThisJob() {
  std::string all;
  for (const char* name : kJobs) {
    const char* text = std::getenv(name);
    all.append(name).append("=").append(text == nullptr ? "" : text).append(";");
  }
  return plugin::HashOf(all.data(), all.size(), 4);
}

}  // namespace onebit::mpi
