// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Tries the possible rendezvous in order of preference.
#include "comm/launch_rendezvous.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>

#include "comm/slurm_hostlist.h"

namespace onebit {
namespace {

constexpr uint64_t kHighestPort = 65535;

constexpr std::array<std::string_view, 3> kSlurmNodeLists = {
    "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"};
constexpr std::array<std::string_view, 3> kSlurmNodeCounts = {
    "SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"};

Status BadRendezvous(std::string_view value, const char* problem) {
  return Error(Code::kInvalidUsage,
               "environment variable ONEBIT_RENDEZVOUS: \"{}\" {}: write host:port, [IPv6 "
               "address]:port, or the path of a file, with a slash in it",
               value, problem);
}

Result<Rendezvous> ParseRendezvous(std::string_view value, const LaunchProcess& process) {
  Rendezvous rendezvous;
  rendezvous.source = "ONEBIT_RENDEZVOUS";
  if (value.find('/') != std::string_view::npos) {
    if (process.is_secure_execution) {
      return Error(Code::kInvalidUsage,
                   "environment variable ONEBIT_RENDEZVOUS: \"{}\" is a file, but this program has "
                   "more rights than its caller and opens none for it: write host:port",
                   value);
    }
    rendezvous.kind = Rendezvous::Kind::kFile;
    rendezvous.path = value;
    return rendezvous;
  }
  const size_t colon = value.rfind(':');
  if (colon == std::string_view::npos) return BadRendezvous(value, "has neither port nor slash");
  std::string_view host = value.substr(0, colon);
  const std::string_view digits = value.substr(colon + 1);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return BadRendezvous(value, "has several colons and no brackets around the address");
  }
  if (host.empty() || host.find_first_of(" \t\r\n[]") != std::string_view::npos) {
    return BadRendezvous(value, "has no host");
  }
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), rendezvous.port);
  if (error != std::errc() || end != digits.data() + digits.size() || rendezvous.port == 0) {
    return BadRendezvous(value, "has no port from 1 to 65535");
  }
  rendezvous.kind = Rendezvous::Kind::kAddress;
  rendezvous.host = host;
  return rendezvous;
}

using MaybeRendezvous = Result<std::optional<Rendezvous>>;

MaybeRendezvous FromMaster(const EnvironmentView& environment) {
  const auto address = environment.Find("MASTER_ADDR");
  const bool has_port = environment.Has("MASTER_PORT");
  if (!address && !has_port) return std::optional<Rendezvous>();
  if (!address || !has_port) {
    return Error(Code::kInvalidUsage,
                 "environment variable {} is set, but {} is not: set both, or ONEBIT_RENDEZVOUS to "
                 "host:port instead",
                 address ? "MASTER_ADDR" : "MASTER_PORT", address ? "MASTER_PORT" : "MASTER_ADDR");
  }
  if (address->empty()) {
    return Error(Code::kInvalidUsage,
                 "environment variable MASTER_ADDR is empty: set it to the "
                 "host of rank 0");
  }
  const Result<uint64_t> port = environment.Number("MASTER_PORT", 1, kHighestPort - 1);
  if (!port.ok()) {
    return Error(Code::kInvalidUsage,
                 "{}: onebit's ranks meet at the port after it. Set ONEBIT_RENDEZVOUS to host:port "
                 "to choose another",
                 port.status().text());
  }
  std::string_view host = *address;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  Rendezvous rendezvous;
  rendezvous.kind = Rendezvous::Kind::kAddress;
  rendezvous.host = host;
  rendezvous.port = static_cast<uint16_t>(port.value() + 1);
  rendezvous.source = "MASTER_ADDR and MASTER_PORT";
  return std::optional(std::move(rendezvous));
}

MaybeRendezvous FromSlurmHosts(const EnvironmentView& environment) {
  const std::string_view list_name = environment.FirstSet(kSlurmNodeLists);
  if (list_name.empty()) return std::optional<Rendezvous>();
  ONEBIT_ASSIGN_OR_RETURN(const std::optional<SlurmIds> ids, ReadSlurmIds(environment));
  if (!ids) {
    return Error(Code::kInvalidUsage,
                 "environment variable {} is set, but SLURM_JOB_ID is not: set ONEBIT_RENDEZVOUS "
                 "to host:port on all ranks",
                 list_name);
  }
  Result<std::string> host = FirstSlurmHost(*environment.Find(list_name));
  if (!host.ok()) {
    return Error(Code::kInvalidUsage,
                 "environment variable {}: {}. Set ONEBIT_RENDEZVOUS=host:port instead", list_name,
                 host.status().text());
  }
  Rendezvous rendezvous;
  rendezvous.kind = Rendezvous::Kind::kAddress;
  rendezvous.host = std::move(host).value();
  rendezvous.port = SlurmPort(ids->job, ids->step);
  rendezvous.source = Format("{}, SLURM_JOB_ID and SLURM_STEP_ID", list_name);
  return std::optional(std::move(rendezvous));
}

// The variable with the number of ranks, or for Slurm of hosts, of this job.
std::string_view LocalCountName(const EnvironmentView& environment, LaunchFamily family) {
  switch (family) {
    case LaunchFamily::kTorch:
      return "LOCAL_WORLD_SIZE";
    case LaunchFamily::kOpenMpi:
      return "OMPI_COMM_WORLD_LOCAL_SIZE";
    case LaunchFamily::kPmi:
      return "MPI_LOCALNRANKS";
    case LaunchFamily::kSlurm:
      return environment.FirstSet(kSlurmNodeCounts);
  }
  return {};
}

Result<bool> AreAllHere(const EnvironmentView& environment, LaunchFamily family, int ranks) {
  const std::string_view name = LocalCountName(environment, family);
  if (name.empty() || !environment.Has(name)) return false;
  const auto all = static_cast<uint64_t>(ranks);
  ONEBIT_ASSIGN_OR_RETURN(const uint64_t count, environment.Number(name, 1, all));
  return count == (family == LaunchFamily::kSlurm ? 1 : all);
}

std::string JobFolder(const EnvironmentView& environment, const LaunchProcess& process) {
  const std::string_view runtime = environment.Find("XDG_RUNTIME_DIR").value_or("");
  // The specification of this variable says to ignore relative paths.
  if (runtime.starts_with('/') && !process.is_secure_execution) return Format("{}/onebit", runtime);
  return Format("/tmp/onebit-{}", process.user_id);
}

MaybeRendezvous FromJob(const EnvironmentView& environment, std::span<const LaunchFamily> families,
                        int ranks, const LaunchProcess& process) {
  for (const LaunchFamily family : families) {
    ONEBIT_ASSIGN_OR_RETURN(const bool are_all_here, AreAllHere(environment, family, ranks));
    if (!are_all_here) continue;
    ONEBIT_ASSIGN_OR_RETURN(std::optional<LocalJob> job,
                            FindLocalJob(environment, family, process));
    if (!job) continue;
    Rendezvous rendezvous;
    rendezvous.kind = Rendezvous::Kind::kFile;
    rendezvous.path = Format("{}/{}", JobFolder(environment, process), job->name);
    rendezvous.source = std::move(job->source);
    return std::optional(std::move(rendezvous));
  }
  return std::optional<Rendezvous>();
}

}  // namespace

uint16_t SlurmPort(uint64_t job_id, uint64_t step_id) {
  constexpr uint64_t kFirstPort = 20000;
  constexpr uint64_t kPorts = 10000;
  constexpr uint64_t kStepsApart = 37;  // coprime to kPorts: no two near jobs share a port
  return static_cast<uint16_t>(kFirstPort +
                               (job_id % kPorts * kStepsApart + step_id % kPorts) % kPorts);
}

Result<Rendezvous> FindRendezvous(const EnvironmentView& environment,
                                  std::span<const LaunchFamily> families, int ranks,
                                  const LaunchProcess& process) {
  if (ranks == 1) return Rendezvous();
  if (const auto value = environment.Find("ONEBIT_RENDEZVOUS")) {
    return ParseRendezvous(*value, process);
  }
  ONEBIT_ASSIGN_OR_RETURN(std::optional<Rendezvous> found, FromMaster(environment));
  const bool is_slurm =
      std::find(families.begin(), families.end(), LaunchFamily::kSlurm) != families.end();
  if (!found && is_slurm) {
    ONEBIT_ASSIGN_OR_RETURN(found, FromSlurmHosts(environment));
  }
  if (!found) {
    ONEBIT_ASSIGN_OR_RETURN(found, FromJob(environment, families, ranks, process));
  }
  if (found) return *std::move(found);
  return Error(Code::kInvalidUsage,
               "{} ranks have no place to meet: set ONEBIT_RENDEZVOUS on every rank, to host:port "
               "with the host of rank 0 and a free port there, or, with all ranks on one host, to "
               "the path of a file that does not exist yet; or set MASTER_ADDR and MASTER_PORT",
               ranks);
}

}  // namespace onebit
