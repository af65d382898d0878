// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Reads every family of variables and accepts no contradiction.
#include "comm/launch_environment.h"

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "comm/environment_view.h"

namespace onebit {
namespace {

struct FamilyNames {
  LaunchFamily family;
  std::string_view rank;
  // The number of ranks: the first that is set counts.
  std::array<std::string_view, 3> ranks;
};

// Slurm's comes last and counts only if the others are unset. A step may have fewer tasks than the
// allocation, which older versions call SLURM_NPROCS.
constexpr std::array kFamilies = {
    FamilyNames{LaunchFamily::kTorch, "RANK", {"WORLD_SIZE"}},
    FamilyNames{LaunchFamily::kOpenMpi, "OMPI_COMM_WORLD_RANK", {"OMPI_COMM_WORLD_SIZE"}},
    FamilyNames{LaunchFamily::kPmi, "PMI_RANK", {"PMI_SIZE"}},
    FamilyNames{LaunchFamily::kSlurm,
                "SLURM_PROCID",
                {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"}},
};

std::string_view DefaultRanksName(const FamilyNames& names) {
  return names.family == LaunchFamily::kSlurm ? names.ranks[1] : names.ranks[0];
}

// The values of one family.
struct Claim {
  LaunchFamily family;
  std::string_view rank_name;
  std::string_view ranks_name;
  int rank;
  int ranks;

  std::string Text() const { return Format("{}={} and {}={}", rank_name, rank, ranks_name, ranks); }
};

// Returns no value if the family is unset.
Result<std::optional<Claim>> ReadFamily(const EnvironmentView& environment,
                                        const FamilyNames& names) {
  const std::string_view ranks_name = environment.FirstSet(names.ranks);
  const bool has_rank = environment.Has(names.rank);
  if (!has_rank && ranks_name.empty()) return std::optional<Claim>();
  if (!has_rank || ranks_name.empty()) {
    return Error(Code::kInvalidUsage,
                 "environment variable {} is set, but {} is not: a launcher sets both, so start "
                 "every rank with the same one (onebit_run, torchrun, mpirun, srun), or unset {}",
                 has_rank ? names.rank : ranks_name,
                 has_rank ? DefaultRanksName(names) : names.rank,
                 has_rank ? names.rank : ranks_name);
  }
  ONEBIT_ASSIGN_OR_RETURN(const uint64_t ranks, environment.Number(ranks_name, 1, kMaxLaunchRanks));
  const Result<uint64_t> rank = environment.Number(names.rank, 0, ranks - 1);
  if (!rank.ok()) {
    return Error(Code::kInvalidUsage, "{} ({} is {})", rank.status().text(), ranks_name, ranks);
  }
  return std::optional(Claim{names.family, names.rank, ranks_name, static_cast<int>(rank.value()),
                             static_cast<int>(ranks)});
}

Result<std::vector<Claim>> ReadFamilies(const EnvironmentView& environment) {
  std::vector<Claim> claims;
  for (const FamilyNames& names : kFamilies) {
    if (names.family == LaunchFamily::kSlurm && !claims.empty()) break;
    ONEBIT_ASSIGN_OR_RETURN(const std::optional<Claim> claim, ReadFamily(environment, names));
    if (claim) claims.push_back(*claim);
  }
  return claims;
}

Status RequireAgreement(const std::vector<Claim>& claims) {
  if (claims.empty()) {
    std::string known;
    for (const FamilyNames& names : kFamilies) {
      AppendFormat(&known, "{}{} and {}", known.empty() ? "" : "; ", names.rank,
                   DefaultRanksName(names));
    }
    return Error(Code::kInvalidUsage,
                 "this process was not started by a launcher: none of these pairs of environment "
                 "variables is set: {}. Start it with `onebit_run -n RANKS PROGRAM`, torchrun, "
                 "mpirun or srun",
                 known);
  }
  for (const Claim& claim : claims) {
    if (claim.rank == claims[0].rank && claim.ranks == claims[0].ranks) continue;
    std::string all;
    for (const Claim& other : claims) {
      AppendFormat(&all, "{}{}", all.empty() ? "" : "; ", other.Text());
    }
    return Error(Code::kInvalidUsage,
                 "environment variables contradict each other: {}. Unset those of the launcher "
                 "that did not start this process as a rank",
                 all);
  }
  return OkStatus();
}

}  // namespace

Result<LaunchEnvironment> ReadLaunchEnvironment(std::span<const char* const> environment,
                                                const LaunchProcess& process) {
  const EnvironmentView view(environment);
  ONEBIT_ASSIGN_OR_RETURN(const std::vector<Claim> claims, ReadFamilies(view));
  ONEBIT_TRY(RequireAgreement(claims));

  LaunchEnvironment launch;
  launch.rank = claims[0].rank;
  launch.ranks = claims[0].ranks;
  std::vector<LaunchFamily> families;
  for (const Claim& claim : claims) {
    families.push_back(claim.family);
    AppendFormat(&launch.source, "{}{} and {}", launch.source.empty() ? "" : ", ", claim.rank_name,
                 claim.ranks_name);
  }
  ONEBIT_ASSIGN_OR_RETURN(launch.rendezvous, FindRendezvous(view, families, launch.ranks, process));
  if (launch.ranks > 1) {
    ONEBIT_ASSIGN_OR_RETURN(launch.job, FindJobWord(view, families, launch.ranks));
  }
  return launch;
}

}  // namespace onebit
