// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a launched job meet. The first of these that there is:
//
//   1. ONEBIT_RENDEZVOUS: "host:port", "[IPv6 address]:port", or a path, which has a slash.
//   2. MASTER_ADDR and MASTER_PORT + 1. MASTER_PORT itself is taken: torchrun keeps its store
//   there.
//   3. With ranks from Slurm: the first host of the step, where rank 0 is unless somebody asked for
//      another distribution of tasks; SlurmPort() is the port.
//   4. With all ranks on one host: a file named after the job, in "$XDG_RUNTIME_DIR/onebit" or
//      "/tmp/onebit-UID". Whoever makes this folder must see to it that it is its user's alone.
//
// A job's name is what its launcher tells all ranks: torchrun TORCHELASTIC_RUN_ID, Open MPI
// PMIX_NAMESPACE or OMPI_MCA_ess_base_jobid, Slurm the ids of job and step. MPICH's launcher tells
// nothing of the kind; there it is the process id of the parent, which on one host is the same
// proxy for all ranks as long as no script starts the program in between.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "comm/environment_view.h"

namespace onebit {

struct Rendezvous {
  enum class Kind { kNone, kAddress, kFile } kind = Kind::kNone;
  std::string host;    // kAddress: a name or an address, without brackets
  uint16_t port = 0;   // kAddress
  std::string path;    // kFile
  std::string source;  // variables it came from, for texts
};

// Who says what rank this is.
enum class LaunchFamily { kTorch, kOpenMpi, kPmi, kSlurm };

// What the system knows of this process and no variable says.
struct LaunchProcess {
  int64_t parent_pid = 0;
  uint32_t user_id = 0;
};
LaunchProcess CurrentLaunchProcess();

// kNone for one rank. kInvalidUsage when variables are incomplete or do not parse, and when there
// is no place at all.
Result<Rendezvous> FindRendezvous(const EnvironmentView& environment,
                                  std::span<const LaunchFamily> families, int ranks,
                                  const LaunchProcess& process);

// In 20000 ... 29999, below the ports that systems give out by themselves. Steps of a job and jobs
// that follow each other have different ones.
uint16_t SlurmPort(uint64_t job_id, uint64_t step_id);

}  // namespace onebit
