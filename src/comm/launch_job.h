// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The names of a job, by which its ranks know each other among those of other jobs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/status.h"
#include "comm/environment_view.h"

namespace onebit {

// The launcher whose variables define the rank.
enum class LaunchFamily { kTorch, kOpenMpi, kPmi, kSlurm };

// Facts about this process that come from the system, not from variables.
struct LaunchProcess {
  int64_t parent_pid = 0;
  uint32_t user_id = 0;
  bool is_secure_execution = false;  // its caller must not choose which files it opens
};
LaunchProcess CurrentLaunchProcess();

struct SlurmIds {
  uint64_t job = 0;
  uint64_t step = 0;  // 0 if there is none
};
// Returns no value if there is no job id.
Result<std::optional<SlurmIds>> ReadSlurmIds(const EnvironmentView& environment);

// A job whose ranks are all on this host: a name for its file, and the variables it comes from. No
// value if the launcher does not tell.
struct LocalJob {
  std::string name;
  std::string source;
};
Result<std::optional<LocalJob>> FindLocalJob(const EnvironmentView& environment,
                                             LaunchFamily family, const LaunchProcess& process);

// The word of this job, "VARIABLE=value", which ranks on all hosts have in common and other jobs
// do not have; empty if nothing gives one. The first of these:
//
//   1. ONEBIT_JOB, which onebit_run sets.
//   2. TORCHELASTIC_RUN_ID, unless it is "none", torchrun's default. The count of restarts is not
//      part of it: after a restart torchrun's agents on several hosts count differently.
//   3. PMIX_NAMESPACE or OMPI_MCA_ess_base_jobid of Open MPI; PMI_JOBID, where an mpiexec sets it.
//   4. SLURM_JOB_ID and, if the step has as many tasks as there are ranks, SLURM_STEP_ID. Scripts
//      start the torchruns of one job in steps of their own.
//
// kInvalidUsage: ONEBIT_JOB is empty.
Result<std::string> FindJobWord(const EnvironmentView& environment,
                                std::span<const LaunchFamily> families, int ranks);

}  // namespace onebit
