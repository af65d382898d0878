// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Chooses where the ranks of a launched job meet. The first available of these:
//
//   1. ONEBIT_RENDEZVOUS: "host:port", "[IPv6 address]:port", or a path, which has a slash.
//   2. MASTER_ADDR and MASTER_PORT + 1. MASTER_PORT itself is taken: torchrun keeps its store
//   there.
//   3. With ranks from Slurm: the first host of the step, where rank 0 is unless somebody asked for
//      another distribution of tasks; SlurmPort() is the port.
//   4. With all ranks on one host: a file named after the job, in "$XDG_RUNTIME_DIR/onebit" or
//      "/tmp/onebit-UID". The folder must belong to its user alone.
//
// A job's name is what its launcher tells all ranks: torchrun TORCHELASTIC_RUN_ID, Open MPI
// PMIX_NAMESPACE or OMPI_MCA_ess_base_jobid, Slurm the ids of job and step. MPICH's launcher sets
// no such variable; there the name is the process id of the parent, which on one host is the same
// launcher proxy for all ranks unless a script starts the program.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "comm/environment_view.h"
#include "comm/launch_job.h"

namespace onebit {

struct Rendezvous {
  enum class Kind { kNone, kAddress, kFile } kind = Kind::kNone;
  std::string host;    // kAddress: a name or an address, without brackets
  uint16_t port = 0;   // kAddress
  std::string path;    // kFile
  std::string source;  // variables it came from, for texts
};

// Returns kNone for one rank. kInvalidUsage: variables are incomplete or do not parse, or none of
// them gives a rendezvous.
Result<Rendezvous> FindRendezvous(const EnvironmentView& environment,
                                  std::span<const LaunchFamily> families, int ranks,
                                  const LaunchProcess& process);

// Returns a port in 20000 ... 29999, below the ephemeral ports. Steps of a job, and consecutive
// jobs, get different ones.
uint16_t SlurmPort(uint64_t job_id, uint64_t step_id);

}  // namespace onebit
