// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/launch_job.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/settings.h"

namespace onebit {
namespace {

constexpr size_t kMaxJobNameBytes = 64;

constexpr std::array<std::string_view, 2> kSlurmJobIds = {"SLURM_JOB_ID", "SLURM_JOBID"};
constexpr std::array<std::string_view, 2> kSlurmStepIds = {"SLURM_STEP_ID", "SLURM_STEPID"};
constexpr std::array<std::string_view, 2> kOpenMpiJobs = {"PMIX_NAMESPACE",
                                                          "OMPI_MCA_ess_base_jobid"};

// Replaces bytes that are special in a path by '_' and appends a hash of the name, so that
// different names stay different. The result cannot be "." or "..", because callers prepend a word.
std::string SafeName(std::string_view name) {
  std::string safe;
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : name) {
    const bool is_safe = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                         (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.';
    if (safe.size() < kMaxJobNameBytes) safe += is_safe ? c : '_';
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return safe == name ? safe : Format("{}-{:016x}", safe, hash);
}

// "name=value"; empty if the variable is unset or empty.
std::string WordOf(const EnvironmentView& environment, std::string_view name) {
  const std::string_view value = environment.Find(name).value_or("");
  return value.empty() ? std::string() : Format("{}={}", name, SafeName(value));
}

std::string SlurmWord(const EnvironmentView& environment, int ranks) {
  std::string word = WordOf(environment, environment.FirstSet(kSlurmJobIds));
  const std::string_view tasks = environment.Find("SLURM_STEP_NUM_TASKS").value_or("");
  if (!word.empty() && tasks == Format("{}", ranks)) {
    AppendFormat(&word, ".{}",
                 SafeName(environment.Find(environment.FirstSet(kSlurmStepIds)).value_or("")));
  }
  return word;
}

}  // namespace

LaunchProcess CurrentLaunchProcess() {
  return {.parent_pid = getppid(),
          .user_id = static_cast<uint32_t>(geteuid()),
          .is_secure_execution = IsSecureExecution()};
}

Result<std::optional<SlurmIds>> ReadSlurmIds(const EnvironmentView& environment) {
  SlurmIds ids;
  const std::string_view job_name = environment.FirstSet(kSlurmJobIds);
  if (job_name.empty()) return std::optional<SlurmIds>();
  ONEBIT_ASSIGN_OR_RETURN(ids.job, environment.Number(job_name, 0, UINT64_MAX));
  if (const std::string_view step_name = environment.FirstSet(kSlurmStepIds); !step_name.empty()) {
    ONEBIT_ASSIGN_OR_RETURN(ids.step, environment.Number(step_name, 0, UINT64_MAX));
  }
  return std::optional(ids);
}

Result<std::optional<LocalJob>> FindLocalJob(const EnvironmentView& environment,
                                             LaunchFamily family, const LaunchProcess& process) {
  switch (family) {
    case LaunchFamily::kTorch: {
      const auto id = environment.Find("TORCHELASTIC_RUN_ID");
      if (!id || id->empty()) return std::optional<LocalJob>();
      // A restart within the run is another group of ranks.
      const auto restarts = environment.Find("TORCHELASTIC_RESTART_COUNT").value_or("0");
      return std::optional(LocalJob{Format("torchrun-{}", SafeName(Format("{}-{}", *id, restarts))),
                                    "TORCHELASTIC_RUN_ID"});
    }
    case LaunchFamily::kOpenMpi: {
      const std::string_view name = environment.FirstSet(kOpenMpiJobs);
      if (name.empty()) return std::optional<LocalJob>();
      return std::optional(
          LocalJob{Format("mpirun-{}", SafeName(*environment.Find(name))), std::string(name)});
    }
    case LaunchFamily::kPmi:
      if (process.parent_pid <= 1) return std::optional<LocalJob>();  // its launcher is gone
      return std::optional(LocalJob{Format("mpiexec-{}", process.parent_pid),
                                    "MPI_LOCALNRANKS and the parent process"});
    case LaunchFamily::kSlurm: {
      ONEBIT_ASSIGN_OR_RETURN(const std::optional<SlurmIds> ids, ReadSlurmIds(environment));
      if (!ids) return std::optional<LocalJob>();
      return std::optional(
          LocalJob{Format("slurm-{}-{}", ids->job, ids->step), "SLURM_JOB_ID and SLURM_STEP_ID"});
    }
  }
  return std::optional<LocalJob>();
}

Result<std::string> FindJobWord(const EnvironmentView& environment,
                                std::span<const LaunchFamily> families, int ranks) {
  if (environment.Has("ONEBIT_JOB")) {
    std::string word = WordOf(environment, "ONEBIT_JOB");
    if (!word.empty()) return word;
    return Error(Code::kInvalidUsage,
                 "environment variable ONEBIT_JOB is empty: give every job a word of its own, "
                 "equal on all its ranks, or unset it");
  }
  const auto has = [&](LaunchFamily family) {
    return std::ranges::find(families, family) != families.end();
  };
  std::string word;
  if (has(LaunchFamily::kTorch) && environment.Find("TORCHELASTIC_RUN_ID") != "none") {
    word = WordOf(environment, "TORCHELASTIC_RUN_ID");
  }
  if (word.empty() && has(LaunchFamily::kOpenMpi)) {
    word = WordOf(environment, environment.FirstSet(kOpenMpiJobs));
  }
  if (word.empty() && has(LaunchFamily::kPmi)) word = WordOf(environment, "PMI_JOBID");
  return word.empty() ? SlurmWord(environment, ranks) : word;
}

}  // namespace onebit
